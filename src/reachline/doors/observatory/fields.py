"""One block of an Xray document with its fields by the rules of Go's JSON: keys in any case, null as if the field were not there,
fields nobody knows ignored. What is wrong is collected, never raised; what is ignored and looks like a slip is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from reachline.doors.findings import Finding, Findings
from reachline.doors.observatory.durations import nanoseconds
from reachline.doors.origin import Path
from reachline.doors.wording import WIDEST, dotted, nearest
from reachline.errors import Problem

__all__ = ["Block", "problem_of", "shown"]

_SECRETIVE: Final = re.compile(
    r"^(pass(word)?|id|uuid|.*key|.*secret.*|.*token.*|auth|seed|psk|accounts|users|headers)$", re.IGNORECASE
)
"""Fields of Xray's documents that hold credentials."""
_TEMPLATE: Final = re.compile(
    r"\{\{.*?\}\}|\$\{[^}]*\}|%\{[^}]*\}|<%.*?%>|<[A-Z][A-Z0-9_ -]{2,40}>|__[A-Z][A-Z0-9_]*__"
)
_BLOCKS: Final = ("a block", "a list", "an empty list")
_INT32: Final = 2**31 - 1


def problem_of(found: Finding, document: object, place: str) -> Problem:
    """The finding about `document` as it is told: at `place`, with what stands there, short and without secrets."""
    value = "" if found.about_key else shown(document, found.path)
    if not found.is_error and value in _BLOCKS:
        value = ""
    return Problem(place=place, path=dotted(found.path), value=value, rule=found.rule, hint=found.hint)


def shown(value: object, path: Path) -> str:
    """What stands at a path as it may be printed."""
    for step in path:
        try:
            value = value[step]  # type: ignore[index]  # whatever it is: a step that does not fit is caught
        except (KeyError, IndexError, TypeError):
            return ""
    if any(isinstance(step, str) and _SECRETIVE.match(step) for step in path):
        return "***"
    if isinstance(value, Mapping):
        return _BLOCKS[0]
    if isinstance(value, list):
        return _BLOCKS[1] if value else _BLOCKS[2]
    text = "nothing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}…"


class Block:
    """A mapping of the document; wrong values are told once and read as the default."""

    __slots__ = ("_keys", "_known", "_value", "found", "path")

    def __init__(self, value: object, path: Path, found: Findings) -> None:
        self.path: Final = path
        self.found: Final = found
        if not isinstance(value, Mapping):
            found.refuse(path, "must be a block of fields, {…}")
            value = {}
        self._value: Final[Mapping[str, object]] = value
        self._keys: Final = {key.casefold(): key for key in value}
        self._known: Final[dict[str, str]] = {}

    def at(self, name: str) -> Path:
        """The path of a field as it is written there."""
        return (*self.path, self._keys.get(name.casefold(), name))

    def refuse(self, name: str, rule: str, hint: str = "") -> None:
        self.found.refuse(self.at(name), rule, hint, about_key=not self.has(name))

    def warn(self, name: str, rule: str, hint: str = "") -> None:
        self.found.warn(self.at(name), rule, hint, about_key=not self.has(name))

    def has(self, name: str) -> bool:
        """Whether the field is set. Does not take it."""
        return self.peek(name) is not None

    def peek(self, name: str) -> object:
        key = self._keys.get(name.casefold())
        return None if key is None else self._value[key]

    def raw(self, name: str) -> object:
        """The value as it stands, None where it is not set."""
        self._known[name.casefold()] = name
        return self.peek(name)

    def block(self, name: str) -> Block | None:
        value = self.raw(name)
        return None if value is None else Block(value, self.at(name), self.found)

    def blocks(self, name: str) -> tuple[Block, ...]:
        """A list's items, all of them blocks; null items are skipped, as Go skips them."""
        value = self.raw(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.refuse(name, "must be a list, […]")
            return ()
        return tuple(Block(each, (*self.at(name), at), self.found) for at, each in enumerate(value) if each is not None)

    def entries(self, name: str) -> Iterator[tuple[str, Block]]:
        """A map's blocks by their names, which are no fields'."""
        value = self.raw(name)
        if value is not None and not isinstance(value, Mapping):
            self.refuse(name, "must be a block of blocks by name")
            return
        for key, each in (value or {}).items():
            yield key, Block(each, (*self.at(name), key), self.found)

    def text(self, name: str, default: str = "", *, needed: bool = False) -> str:
        value = self.raw(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, "must be a text", "put it in double quotes")
            return default
        if needed and not value:
            self.found.refuse(self.at(name), "is needed and must not be empty", about_key=not self.has(name))
        if isinstance(value, str):
            self._no_template(self.at(name), value)
        return value if isinstance(value, str) else default

    def _no_template(self, path: Path, value: str) -> None:
        if found := _TEMPLATE.search(value):
            self.found.refuse(
                path, f"is a template: {found[0]!r} was not filled in", "render the document first", about_key=True
            )

    def texts(self, name: str, *, is_list: bool = False) -> tuple[str, ...]:
        """Xray's list of texts: a list, or one text parted by commas where the field takes that (`is_list`: it does not)."""
        value = self.raw(name)
        if value is None:
            return ()
        if isinstance(value, str) and is_list:
            self.refuse(name, "must be a list of texts", f"[{value!r}]".replace("'", '"'))
            return ()
        if isinstance(value, str):
            self._no_template(self.at(name), value)
            return tuple(each.strip() for each in value.split(","))
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            for at, each in enumerate(value):
                self._no_template((*self.at(name), at), each)
            return tuple(value)
        self.refuse(name, "must be a list of texts")
        return ()

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.refuse(name, "must be true or false", "without quotes" if isinstance(value, str) else "")
        return default

    def whole(self, name: str, default: int = 0, *, least: int = -_INT32 - 1, most: int = _INT32) -> int:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, "must be a whole number", "without quotes" if isinstance(value, str) else "")
            return default
        if not least <= value <= most:
            self.refuse(name, f"must be a whole number from {least} to {most}")
            return default
        return value

    def number(self, name: str, default: float = 0.0) -> float:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(name, "must be a number", "without quotes" if isinstance(value, str) else "")
            return default
        return float(value)

    def nanos(self, name: str, default: int = 0) -> int:
        """A duration in nanoseconds: Xray takes texts only."""
        value = self.raw(name)
        return default if value is None else self._nanos(self.at(name), value, default)

    def durations(self, name: str) -> tuple[int, ...]:
        value = self.raw(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.refuse(name, "must be a list of durations", '["100ms", "300ms"]')
            return ()
        return tuple(self._nanos((*self.at(name), at), each, 0) for at, each in enumerate(value))

    def _nanos(self, path: Path, value: object, default: int) -> int:
        found = nanoseconds(value) if isinstance(value, str) else None
        if found is not None:
            return found
        bare = isinstance(value, int | float) and not isinstance(value, bool)
        is_template = isinstance(value, str) and _TEMPLATE.search(value) is not None
        rule = "is a template that was not filled in" if is_template else "must be a duration in quotes, with its unit"
        hint = f'write "{value}s" or "{value}ms"' if bare else '"10s", "100ms", "2h45m": ns, us, ms, s, m, h'
        self.found.refuse(path, rule, hint)
        return default

    def aside(self, *names: str) -> None:
        """Fields that say nothing here: known and not read."""
        for name in names:
            self._known[name.casefold()] = name

    def done(self, *, ours: bool = False) -> None:
        """All fields that are known were taken. What is left is ignored by Xray, and refused in blocks of `ours`."""
        for folded, key in self._keys.items():
            if folded in self._known:
                continue
            close = nearest(folded, tuple(self._known))
            hint = (
                f"did you mean '{self._known[close]}'?"
                if close
                else f"known here: {', '.join(self._known.values())}"[: 4 * WIDEST]
            )
            if ours:
                self.found.refuse((*self.path, key), "unknown field", hint, about_key=True)
            elif close:
                self.found.warn((*self.path, key), "unknown field, which Xray ignores", hint, about_key=True)
