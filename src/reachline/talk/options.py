"""Options of a plan as values: each read once by name, every mistake collected, none passed over."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import TypeVar

from reachline.errors import ConfigError, Problem

__all__ = ["Options", "listed"]

T = TypeVar("T")

_SECRET = frozenset({"headers", "password"})
"""Options whose value is never shown."""


class Options:
    """One probe's options while they are read. `finish` raises ConfigError with all problems found."""

    __slots__ = ("_given", "_kind", "_problems", "_read")

    def __init__(self, kind: str, given: Mapping[str, str | int | bool]) -> None:
        self._kind = kind
        self._given = given
        self._read: set[str] = set()
        self._problems: list[Problem] = []

    def text(self, name: str, default: str = "") -> str:
        """A text; numbers are taken as they are written."""
        value = self._take(name, default)
        if isinstance(value, bool):
            self.refuse(name, "must be a text")
            return default
        return str(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._take(name, default)
        if isinstance(value, bool):
            return value
        self.refuse(name, "must be true or false")
        return default

    def number(self, name: str, default: int, *, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        value = self._take(name, default)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.refuse(name, f"must be a whole number from {low} to {high}")
        return default

    def parsed(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        """What `parse` makes of the text; its ValueError becomes the rule that is broken."""
        if name not in self._given:
            self._read.add(name)
            return default
        try:
            return parse(self.text(name))
        except ValueError as error:
            self.refuse(name, str(error))
            return default

    def parsed_or(self, name: str, usual: str, parse: Callable[[str], T], default: T, *, place: str) -> T:
        """As `parsed`, where the text that is usual is the target's and may be wrong as well: then `place` is at fault."""
        if name in self._given:
            return self.parsed(name, default, parse)
        self._read.add(name)
        try:
            return parse(usual)
        except ValueError as error:
            self.refuse(place, str(error))
            return default

    def refuse(self, name: str, rule: str, hint: str = "") -> None:
        """One more problem with the option `name`."""
        value = repr(self._given[name]) if name in self._given and name not in _SECRET else ""
        self._problems.append(Problem(place=f"{self._kind} probe", path=name, value=value, rule=rule, hint=hint))

    def finish(self) -> None:
        """All options are read: ConfigError where one was wrong or is unknown."""
        for name in sorted(self._given.keys() - self._read):
            close = difflib.get_close_matches(name, sorted(self._read), n=1)
            known = f"known here: {', '.join(sorted(self._read))}" if self._read else "it takes none"
            self.refuse(name, "is not an option of this probe", f"did you mean {close[0]}?" if close else known)
        if self._problems:
            raise ConfigError(*self._problems)

    def _take(self, name: str, default: T) -> str | int | bool | T:
        self._read.add(name)
        return self._given.get(name, default)


def listed(text: str) -> tuple[str, ...]:
    """Parts of a comma-separated text, empty ones left out."""
    return tuple(part for piece in text.split(",") if (part := piece.strip()))
