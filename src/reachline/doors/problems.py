"""What pydantic found, as problems a person can act on: place, key, value, rule, hint. Never shows a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from reachline.doors.addresses import derived_names, masked
from reachline.doors.effective import key_of
from reachline.doors.origin import Path, Place, Places
from reachline.doors.settings import Document
from reachline.doors.units import seconds, text_of_seconds, text_of_share
from reachline.doors.wording import WIDEST, dotted, nearest
from reachline.errors import Problem

__all__ = ["Finding", "Locator", "dotted", "explained", "nearest", "shown"]

_KEY: Final = "[key]"
_SECRETIVE: Final = re.compile(r"token|secret|passw|credential|authorization|cookie|api.?key|^headers$", re.IGNORECASE)
_BOUNDS: Final = {"greater_than_equal": ("ge", "at least"), "greater_than": ("gt", "more than")} | {
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_KINDS: Final = {
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be a text",
    "dict_type": "must be a block of keys",
    "model_type": "must be a block of keys",
    "tuple_type": "must be a list",
    "string_pattern_mismatch": "holds characters that are not allowed here",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One rule broken at a path of the settings. `about_key`: the key itself is wrong, or missing in the block named."""

    path: Path
    rule: str
    hint: str = ""
    about_key: bool = False
    is_error: bool = True
    missing: str = ""


class Located(NamedTuple):
    """A problem with the place it sorts by."""

    place: Place
    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Locator:
    """From a path of the settings to the file: lists of lines have names there, shorthands have no inner keys."""

    value: Any
    places: Places
    names: dict[int, dict[str, int]] = field(default_factory=dict)
    """For each list of lines, by its identity, the place of every derived name; filled when first asked for."""

    def path(self, path: Path) -> Path:
        """The path of the file; as much of it as stands there."""
        found: list[str | int] = []
        here = self.value
        for step in path:
            step = self._index(here, step)
            is_known = step in here if isinstance(here, dict) else _is_index(here, step)
            if not is_known and step == 0 and isinstance(here, dict):
                continue  # one block where a list may stand
            if not is_known:
                break
            here = here[step]
            found.append(step)
        return tuple(found)

    def _index(self, here: object, step: str | int) -> str | int:
        if not isinstance(here, list) or isinstance(step, int):
            return step
        if id(here) not in self.names:
            targets = [str(item.get("to", "") if isinstance(item, dict) else item) for item in here]
            self.names[id(here)] = {name: index for index, name in enumerate(derived_names(targets))}
        return self.names[id(here)].get(step, step)

    def at(self, path: Path) -> Any:
        """What stands at a path of the file."""
        here = self.value
        for step in path:
            here = here[step]
        return here

    def located(self, finding: Finding) -> Located:
        """The finding with its place and value."""
        path = self.path(finding.path)
        place = self.places.at(path, key=finding.about_key)
        value = "" if finding.about_key else shown(path, self.at(path))
        name = dotted((*path, finding.missing) if finding.missing else path)
        problem = Problem(place=self.places.text(place), path=name, value=value, rule=finding.rule, hint=finding.hint)
        return Located(place, problem)


def _is_index(here: object, step: str | int) -> bool:
    return isinstance(here, list) and isinstance(step, int) and 0 <= step < len(here)


def shown(path: Path, value: object) -> str:
    """A value as it may be printed: short, and hidden where it may be secret."""
    match value:
        case dict():
            return "a block"
        case list():
            return "a list" if value else "an empty list"
        case None:
            return "nothing"
        case _:
            return _scalar(path, value)


def _scalar(path: Path, value: object) -> str:
    if any(isinstance(step, str) and _SECRETIVE.search(step) for step in path):
        return "***"
    text = masked(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    text = text if len(text) <= WIDEST else f"{text[:WIDEST]}…"
    return repr(text) if isinstance(value, str) else text


def explained(error: ErrorDetails, locator: Locator) -> Finding:
    """One error of pydantic in our words."""
    loc = error["loc"]
    if loc and loc[-1] == _KEY:
        rule, hint = _said(error, locator)
        return Finding(path=loc[:-1], about_key=True, rule=rule, hint=hint)
    match error["type"]:
        case "extra_forbidden":
            return Finding(path=loc, rule="unknown key", hint=_meant(loc), about_key=True)
        case "missing":
            hint = _described(loc)
            return Finding(path=loc[:-1], missing=str(loc[-1]), rule="is needed", hint=hint, about_key=True)
        case _:
            rule, hint = _said(error, locator)
            return Finding(path=loc, rule=rule, hint=hint)


def _said(error: ErrorDetails, locator: Locator) -> tuple[str, str]:
    """Rule and hint."""
    kind, context = error["type"], error.get("ctx", {})
    raw = locator.at(locator.path(tuple(step for step in error["loc"] if step != _KEY)))
    if kind == "reachline":
        return context["rule"], context.get("hint", "")
    if raw is None:
        return "is empty", "give it a value or remove the key"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"must be {words} {_in_unit(context[name], raw)}", ""
    if kind == "literal_error":
        return _choice(str(context["expected"]), raw)
    if kind in {"string_too_long", "too_long"}:
        return f"must have at most {context['max_length']} characters or items", ""
    return _KINDS.get(kind, error["msg"]), _hint(kind, raw)


def _in_unit(bound: float, raw: object) -> str:
    """A bound in the unit the person used."""
    if isinstance(raw, str) and seconds(raw) is not None:
        return text_of_seconds(bound)
    if isinstance(raw, str) and raw.strip().endswith("%"):
        return text_of_share(bound)
    return f"{bound:,}".replace(",", " ") if isinstance(bound, int) else f"{bound:g}"


def _choice(expected: str, raw: object) -> tuple[str, str]:
    names = re.findall(r"'([^']*)'", expected) or [expected]
    close = nearest(str(raw), names)
    return f"must be {' or '.join(names)}", f"did you mean {close}?" if close else ""


def _hint(kind: str, raw: object) -> str:
    if kind == "bool_type" and str(raw).lower() in {"yes", "no", "on", "off", "y", "n"}:
        return f"write {'true' if str(raw).lower() in {'yes', 'on', 'y'} else 'false'}: in YAML 1.2 {raw} is a text"
    if kind == "string_type" and isinstance(raw, int | float):
        return "write it in quotes"
    return ""


def _meant(loc: Path) -> str:
    """What may have been meant by an unknown key."""
    model = _model_at(loc[:-1])
    if model is None:
        return ""
    known = [key_of(model, name) for name in model.model_fields]
    if close := nearest(str(loc[-1]), known):
        return f"did you mean '{close}'?"
    if homes := _homes().get(str(loc[-1])):
        return f"it belongs under {' or '.join(homes[:2])}"
    return f"known here: {', '.join(known)}"


def _described(loc: Path) -> str:
    model = _model_at(loc[:-1])
    name = next((each for each in model.model_fields if key_of(model, each) == loc[-1]), None) if model else None
    return (model.model_fields[name].description or "") if model and name else ""


def _model_at(loc: Path) -> type[BaseModel] | None:
    """The settings model that stands at a path."""
    kind: Any = Document
    for step in loc:
        kind = _step(_plain(kind), step)
    kind = _plain(kind)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _step(kind: Any, step: str | int) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return next((field.annotation for name, field in kind.model_fields.items() if key_of(kind, name) == step), None)
    return get_args(kind)[-1] if get_origin(kind) is dict else None


def _plain(kind: Any) -> Any:
    """A type without Annotated and without None."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    inner = [each for each in get_args(kind) if each is not type(None)]
    is_optional = len(inner) < len(get_args(kind)) and len(inner) == 1
    return _plain(inner[0]) if is_optional else kind


@cache
def _homes() -> Mapping[str, tuple[str, ...]]:
    """The blocks that know a key, by key, as they are told: to go through all settings anew for each unknown key is dear."""
    found: dict[str, set[str]] = {}
    for home, key in _everywhere(Document, ()):
        found.setdefault(key, set()).add(dotted(home) or "the top level")
    return {key: tuple(sorted(homes)) for key, homes in found.items()}


def _everywhere(model: type[BaseModel], path: Path) -> Iterator[tuple[Path, str]]:
    """Every block of the document with every key it knows; of clusters, lines and agents only what all of them share."""
    for name, info in model.model_fields.items():
        key, kind = key_of(model, name), _plain(info.annotation)
        yield path, key
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _everywhere(kind, (*path, key))
        elif get_origin(kind) is dict:
            inner = _plain(get_args(kind)[-1])
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from ((home, each) for home, each in _everywhere(inner, (*path, key, "NAME")) if len(home) <= 4)
