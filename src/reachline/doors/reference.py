"""The document described from its own settings: its JSON Schema, and its values as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from reachline.doors.addresses import masked
from reachline.doors.effective import Path, key_of
from reachline.doors.settings import CircuitBreaker, Document
from reachline.doors.units import duration, share, size, text_of_seconds, text_of_share, text_of_size

__all__ = ["MODELINE", "key", "models", "schema", "text", "unit_of", "values"]

MODELINE: Final = "# yaml-language-server: $schema=reachline.schema.json"

_UNITS: Final = {duration: "duration", share: "share", size: "size"}


def schema() -> dict[str, Any]:
    """The JSON Schema of the reach document (draft 2020-12); unknown keys are refused by it too."""
    found = Document.model_json_schema(by_alias=True)
    for model in models(Document):
        written = found if model is Document else found["$defs"][model.__name__]
        for name, field in model.model_fields.items():
            _say_default(written["properties"][key_of(model, name)], field)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": f"In a document: {MODELINE}"}
    return {**head, **found, "title": "Reachline"}


def models(root: type[BaseModel]) -> tuple[type[BaseModel], ...]:
    """A settings model and every one inside it, outermost first, each once."""
    found = [root]
    for model in found:
        for field in model.model_fields.values():
            found += [inner for inner in _models_in(field.annotation) if inner not in found]
    return tuple(found)


def _models_in(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for inner in get_args(kind):
        yield from _models_in(inner)


def _say_default(written: dict[str, Any], field: FieldInfo) -> None:
    """Defaults as people write them: `5s`, not 5.0. Those of blocks are said by their own keys."""
    default = written.pop("default", None)
    if isinstance(default, bool | int | float | str) and default != "":
        unit = unit_of(field)
        written["default"] = text(field.default, unit) if unit else default


def key(path: Path) -> str:
    """A path of settings as people write it in text: `judge.tick`."""
    return ".".join(map(str, path))


def values(model: BaseModel, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every value of a block with its path, as it would be written; secrets hidden, unset options left out."""
    for name, field in type(model).model_fields.items():
        value, here = getattr(model, name), (*path, key_of(type(model), name))
        if isinstance(value, BaseModel):
            yield from values(value, here)
        elif not _is_second_home(model, name, value):
            yield here, text(value, unit_of(field))


def unit_of(field: FieldInfo) -> str:
    """`duration`, `share`, `size`, or empty where a field has no unit."""
    parts: list[Any] = [field.annotation, *field.metadata]
    for part in parts:
        if isinstance(part, BeforeValidator) and part.func in _UNITS:
            return _UNITS[part.func]
        parts += get_args(part)
    return ""


def _is_second_home(model: BaseModel, name: str, value: object) -> bool:
    """A key that is read at two levels is shown at one."""
    return value is None and (
        name == "recovery" or (isinstance(model, CircuitBreaker) and name == "cooldown_multiplier")
    )


def text(value: object, unit: str = "") -> str:
    """One value as the document would have it."""
    match value:
        case None:
            return "never" if unit in {"duration", "share"} else "–"
        case bool():
            return str(value).lower()
        case int() | float():
            return _number(value, unit)
        case SecretStr():
            return "***"
        case tuple():
            return ", ".join(text(item, unit) for item in value) or "–"
        case dict():
            return ", ".join(f"{name}: {text(item)}" for name, item in value.items()) or "–"
        case _:
            return masked(str(value)) or "–"


def _number(value: float, unit: str) -> str:
    match unit:
        case "duration":
            return text_of_seconds(value)
        case "share":
            return text_of_share(value)
        case "size":
            return text_of_size(int(value))
        case _:
            return str(value).removesuffix(".0")
