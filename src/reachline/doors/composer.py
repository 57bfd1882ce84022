"""YAML text to plain values with the place of every key and value. YAML 1.2 scalars: `yes`, `on`, `NO`, `1:30` are texts.

PyYAML parses; composing is our own, from its events: iterative, so that depth cannot overflow, with caps that hold alias
bombs, and with duplicate keys and tags refused. Everything found wrong is returned, not raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from reachline.doors.origin import Path, Place, Places

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Composed", "Trouble", "compose", "walk"]

MAX_BYTES: Final = 8 << 20
"""A document of 50 000 lines has about 4 MB."""
MAX_NODES: Final = 600_000
"""Keys and values with aliases counted where they are used: 50 000 lines of five keys; read in some seconds."""
MAX_DEPTH: Final = 32
"""Blocks in blocks; the settings have eight."""

_INT: Final = re.compile(r"[-+]?[0-9]{1,18}")
_BASED: Final = re.compile(r"0x[0-9a-fA-F]{1,15}|0o[0-7]{1,20}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS: Final = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd\ufeff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing wrong with the text itself. `path` is where it was being read."""

    place: Place
    path: Path = ()
    rule: str
    hint: str = ""
    is_repeated: bool = False
    """A key stands there again: the value is whole all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """The document as dicts, lists and scalars. Keys are texts. `whole` False: the text broke off, nothing more is known."""

    value: Any
    places: Places
    troubles: tuple[Trouble, ...]
    whole: bool


@dataclass(slots=True, kw_only=True)
class _Block:
    """A mapping or list being filled."""

    value: dict[str, Any] | list[Any]
    path: Path
    anchor: str | None
    key: str | None = None
    """The key whose value comes next, in a mapping."""
    weight: int = 1
    skipped: bool = False
    """The key stood there before: its value is read and dropped."""


class _Stop(Exception):  # noqa: N818  (a signal inside this module, never seen outside)
    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.rule)
        self.trouble = trouble


def compose(text: str, *, name: str, last_counts: bool = False) -> Composed:
    """The single document in `text`. `name` is the file's name in places; `last_counts`: of a key that stands there twice."""
    composer = _Composer(last_counts=last_counts)
    whole = False
    try:
        _refuse_binary(text)
        for event in yaml.parse(text, Loader=_LOADER):
            composer.take(event)
        whole = True
    except _Stop as stop:
        composer.troubles.append(stop.trouble)
    except yaml.MarkedYAMLError as error:
        composer.troubles.append(_syntax(error))
    except (yaml.YAMLError, UnicodeError) as error:
        composer.troubles.append(Trouble(place=Place(1, 1), rule=f"is not YAML text: {str(error).splitlines()[0]}"))
    places = Places(name=name, values=composer.values, keys=composer.keys, aliases=composer.aliases)
    return Composed(value=composer.root, places=places, troubles=tuple(composer.troubles), whole=whole)


_LOADER: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _refuse_binary(text: str) -> None:
    if len(text) > MAX_BYTES:
        raise _Stop(Trouble(place=Place(1, 1), rule=f"is larger than {MAX_BYTES >> 20} MiB: that is no configuration"))
    found = _CONTROL.search(text, 1 if text.startswith("\ufeff") else 0)
    if found:
        before = text[: found.start()]
        place = Place(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        raise _Stop(Trouble(place=place, rule="holds bytes that are no text", hint="a document is UTF-8 YAML"))


def _syntax(error: yaml.MarkedYAMLError) -> Trouble:
    mark = error.problem_mark or error.context_mark
    place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
    said = " ".join(str(part) for part in (error.context, error.problem) if part)
    hint = "indent with spaces" if "'\\t'" in said else "look at the indentation, a missing ':' or a missing quote"
    return Trouble(place=place, rule=f"is not YAML: {said}", hint=hint)


def _place(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


@dataclass(slots=True)
class _Composer:
    """Events in, values out. Written by `compose` alone."""

    last_counts: bool = False
    root: Any = None
    values: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)
    blocks: list[_Block] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int, Path]] = field(default_factory=dict)
    aliases: dict[Path, Path] = field(default_factory=dict)
    nodes: int = 0
    documents: int = 0

    def take(self, event: Any) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self.documents += 1
                if self.documents > 1:
                    raise _Stop(
                        Trouble(place=_place(event), rule="begins a second document", hint="one file, one document")
                    )
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.AliasEvent():
                self._alias(event)
            case _:
                return

    def _open(self, event: Any) -> None:
        place = _place(event)
        self._count(1, place)
        self._no_tag(event)
        if len(self.blocks) >= MAX_DEPTH:
            raise _Stop(Trouble(place=place, path=self._path(), rule=f"is nested deeper than {MAX_DEPTH} blocks"))
        if self._wants_key():
            raise _Stop(
                Trouble(place=place, path=self._path(), rule="uses a block as a key", hint="keys are plain names")
            )
        path = self._next_path()
        self._stands(path, place)
        empty: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.blocks.append(_Block(value=empty, path=path, anchor=event.anchor))

    def _close(self) -> None:
        block = self.blocks.pop()
        if block.anchor:
            self.anchors[block.anchor] = (block.value, block.weight, block.path)
        self._put(block.value, block.weight)

    def _scalar(self, event: Any) -> None:
        place = _place(event)
        self._count(1, place)
        if self._wants_key():
            self._key(event.value, place)
            return
        self._no_tag(event)
        path = self._next_path()
        self._stands(path, place)
        value = _plain(event.value) if event.implicit[0] else event.value
        if event.anchor:
            self.anchors[event.anchor] = (value, 1, path)
        self._put(value, 1)

    def _key(self, key: str, place: Place) -> None:
        block = self.blocks[-1]
        path = (*block.path, key)
        if key == "<<":
            self.troubles.append(
                Trouble(
                    place=place,
                    path=path,
                    rule="merge keys are not read",
                    hint="repeat the keys, or use the top-level block",
                )
            )
        is_repeated = key in block.value
        block.skipped = key == "<<" or (is_repeated and not self.last_counts)
        if is_repeated:
            rule = f"stands here a second time (first at line {self.keys[path].line})"
            self.troubles.append(Trouble(place=place, path=path, rule=rule, hint="keep one of them", is_repeated=True))
        if not is_repeated or self.last_counts:
            self.keys[path] = place
        block.key = key

    def _alias(self, event: Any) -> None:
        place = _place(event)
        if self._wants_key():
            raise _Stop(
                Trouble(place=place, path=self._path(), rule="uses an alias as a key", hint="keys are plain names")
            )
        if event.anchor not in self.anchors:
            raise _Stop(
                Trouble(place=place, path=self._path(), rule=f"refers to *{event.anchor}, which is not set above")
            )
        value, weight, origin = self.anchors[event.anchor]
        self._count(weight, place)
        path = self._next_path()
        self._stands(path, place)
        self.aliases.setdefault(path, origin)
        self._put(value, weight)

    def _put(self, value: Any, weight: int) -> None:
        if not self.blocks:
            self.root = value
            return
        block = self.blocks[-1]
        block.weight += weight
        if isinstance(block.value, list):
            block.value.append(value)
            return
        if not block.skipped and block.key is not None:
            block.value[block.key] = value
        block.key = None

    def _count(self, nodes: int, place: Place) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            rule = f"has more than {MAX_NODES} keys and values, aliases counted where they are used"
            raise _Stop(Trouble(place=place, path=self._path(), rule=rule))

    def _no_tag(self, event: Any) -> None:
        if event.tag is not None:
            tag = event.tag.removeprefix("tag:yaml.org,2002:")
            self.troubles.append(
                Trouble(
                    place=_place(event), path=self._path(), rule=f"has the tag !{tag.lstrip('!')}; tags are not read"
                )
            )

    def _wants_key(self) -> bool:
        return bool(self.blocks) and isinstance(self.blocks[-1].value, dict) and self.blocks[-1].key is None

    def _next_path(self) -> Path:
        if not self.blocks:
            return ()
        block = self.blocks[-1]
        step = len(block.value) if isinstance(block.value, list) else block.key
        return (*block.path, step if step is not None else "")

    def _stands(self, path: Path, place: Place) -> None:
        if self.last_counts:
            self.values[path] = place
        else:
            self.values.setdefault(path, place)

    def _path(self) -> Path:
        return self.blocks[-1].path if self.blocks else ()


def _plain(text: str) -> object:
    """An unquoted scalar by YAML 1.2's core schema, with decimal integers only where no base is written."""
    if text in _NULLS:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every scalar of a composed value with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from walk(inner, (*path, index))
    else:
        yield path, value
