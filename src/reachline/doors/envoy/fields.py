"""One block of an Envoy document with its fields by protobuf's JSON rules; what is wrong is collected, never raised.

As Envoy's own reader has it: names may be written as in the reference (`dns_refresh_rate`) or in camel case
(`dnsRefreshRate`), names of enums in any case, numbers and truths in quotes, and one value where there should be a list; null
is as if the field were not there. Every field must be taken: what is left is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from reachline.doors.findings import Finding, Findings
from reachline.doors.origin import Path
from reachline.doors.wording import WIDEST, dotted, nearest
from reachline.errors import Problem

__all__ = ["UINT32", "UINT64", "VARIABLE", "Block", "problem_of"]

UINT32: Final = 2**32 - 1
UINT64: Final = 2**64 - 1
_DURATION: Final = re.compile(r"(-?)([0-9]{1,12}(?:\.[0-9]{0,9})?)s")
_LONGEST: Final = 315_576_000_000
"""Seconds: protobuf's limit, ten thousand years."""
_TRUTHS: Final = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
"""Of YAML 1.1 and of protobuf's reader: both are before Envoy's settings."""
_ANY: Final = "type.googleapis.com/"
VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
"""As envsubst fills it in; without braces a regex may mean another thing."""
_MAPS: Final = frozenset({"typed_per_filter_config"})
_DIGITS: Final = frozenset("0123456789")
_NO_BLOCK: Final = "must be a block of fields"
_OTHERS_MOST: Final = 8
"""Items of a list that are read as empty blocks in the place of what they are: each costs as much as a right one."""
_V2: Final = re.compile(r"\.v2(alpha[0-9]*)?\.")
_OLD: Final = {
    "hosts": "load_assignment", "tls_context": "transport_socket", "config": "typed_config", "tls_contexts": "transport_socket",
    "regex": "safe_regex", "regex_match": "string_match", "host_rewrite": "host_rewrite_literal",
    "auto_host_rewrite_header": "host_rewrite_header", "verify_subject_alt_name": "match_typed_subject_alt_names",
}  # fmt: skip
"""Fields that were, and what they are called today."""
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")


def problem_of(found: Finding, document: object, place: str) -> Problem:
    """The finding about `document` as it is told: at `place`, with what stands there, short."""
    value = "" if found.about_key else _shown(document, found.path)
    hint = found.hint
    if value and found.is_error and (variable := VARIABLE.search(value)):
        hint = f"nothing fills in {variable[0]} here: run the document through envsubst first"
    return Problem(place=place, path=dotted(found.path), value=value, rule=found.rule, hint=hint)


def _shown(value: object, path: Path) -> str:
    for step in path:
        try:
            value = value[step]  # type: ignore[index]  # whatever it is: a step that does not fit is caught
        except (KeyError, IndexError, TypeError):
            return ""
    if isinstance(value, Mapping):
        return "a block"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list"
    text = "nothing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}…"


class Block:
    """A mapping of the document; wrong values are told once and read as the default."""

    __slots__ = ("_keys", "_taken", "_value", "found", "path")

    def __init__(self, value: object, path: Path, found: Findings) -> None:
        self.path: Final = path
        if not isinstance(value, Mapping):
            found.refuse(path, _NO_BLOCK)
            # What it lacks is not told as well.
            found, value = Findings(), {}
        self.found: Final = found
        self._value: Final[Mapping[Any, object]] = value
        self._taken: Final[dict[str, None]] = {}
        self._keys: dict[str, str] = {}
        for key in value:
            name = _snake(str(key))
            if name in self._keys:
                found.refuse((*path, str(key)), f"stands here twice, as {self._keys[name]} as well", about_key=True)
            self._keys.setdefault(name, str(key))

    def at(self, name: str) -> Path:
        """The path of a field as it is written there."""
        return (*self.path, self._keys.get(name, name))

    def refuse(self, name: str, rule: str, hint: str = "") -> None:
        self.found.refuse(self.at(name), rule, hint)

    def has(self, name: str) -> bool:
        """Whether the field is set. Does not take it."""
        return name in self._keys and self._value.get(self._keys[name]) is not None

    def raw(self, name: str) -> object:
        """The value as it stands, None where it is not set."""
        self._taken[name] = None
        return self._value.get(self._keys[name]) if name in self._keys else None

    def block(self, name: str) -> Block | None:
        value = self.raw(name)
        return None if value is None else Block(value, self.at(name), self.found)

    def blocks(self, name: str) -> tuple[Block, ...]:
        """A list's items; those that are none are refused, and past the first few of them left out."""
        value = self.raw(name)
        if value is None:
            return ()
        here = self.at(name)
        if isinstance(value, Mapping):
            return (Block(value, here, self.found),)
        blocks, others = list[Block](), 0
        for at, each in enumerate(self.values(name)):
            others += not isinstance(each, Mapping)
            if others > _OTHERS_MOST and not isinstance(each, Mapping):
                self.found.refuse((*here, at), _NO_BLOCK)
            else:
                blocks.append(Block(each, (*here, at), self.found))
        return tuple(blocks)

    def typed(self, name: str) -> tuple[str, Block] | None:
        """A `typed_config`: the name of its type without `type.googleapis.com/`, and its fields."""
        inner = self.block(name)
        if inner is None:
            return None
        kind = inner.text("@type", needed=True).removeprefix(_ANY)
        if _V2.search(kind):
            inner.refuse("@type", "is of Envoy's API v2, which no Envoy reads any longer", "write the type of v3")
        return kind, inner

    def named(self, name: str, key: str) -> Block | None:
        """An entry of a map by its name, which is no field's; the other entries are not looked at."""
        value = self.raw(name)
        if value is not None and not isinstance(value, Mapping):
            self.refuse(name, "must be a block of blocks by name")
            return None
        inner = None if value is None else value.get(key)
        return None if inner is None else Block(inner, (*self.at(name), key), self.found)

    def values(self, name: str) -> Sequence[object]:
        """A list's items."""
        value = self.raw(name)
        if value is None:
            return ()
        return value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.values(name)
        if all(isinstance(each, str) for each in values):
            return tuple(map(str, values))
        self.refuse(name, "must be a list of texts")
        return ()

    def text(self, name: str, default: str = "", *, needed: bool = False) -> str:
        value = self.raw(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, "must be a text", "write it in quotes")
            return default
        if needed and not value:
            self.found.refuse(self.at(name), "is needed and must not be empty", about_key=name not in self._keys)
        return value or default

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw(name)
        value = _TRUTHS.get(value.lower(), value) if isinstance(value, str) else value
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.refuse(name, "must be true or false")
        return default

    def whole(self, name: str, default: int = 0, *, least: int = 0, most: int = UINT32) -> int:
        value = self.raw(name)
        return default if value is None else self._bounded(name, value, default, least, most)

    def maybe(self, name: str, *, least: int = 0, most: int = UINT32) -> int | None:
        """A whole number, None where it is not set."""
        if not self.has(name):
            self._taken[name] = None
            return None
        return self.whole(name, least=least, most=most)

    def _bounded(self, name: str, value: object, default: int, least: int, most: int) -> int:
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, "must be a whole number")
            return default
        if not least <= value <= most:
            self.refuse(name, f"must be a whole number from {least} to {most}")
            return default
        return value

    def number(self, name: str, default: float) -> float:
        value = self.raw(name)
        if value is None:
            return default
        try:
            if not isinstance(value, bool) and isinstance(value, int | float | str):
                return float(value)
        except (ValueError, OverflowError):
            pass
        self.refuse(name, "must be a number")
        return default

    def word(self, name: str, words: Sequence[str], default: str) -> str:
        """One of an enum's names; by its number as well."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(words):
            return words[value]
        if isinstance(value, str):
            if value in _DIGITS and int(value) < len(words):
                return words[int(value)]
            named = next((each for each in words if each.upper() == value.upper()), None)
            if named is not None:
                return named
        close = nearest(str(value), words)
        self.refuse(name, f"must be {' or '.join(words)}", f"did you mean {close}?" if close else "")
        return default

    def ms(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        """A duration in milliseconds, rounded down as Envoy does; `least` is in nanoseconds: 1 is above zero."""
        value = self.raw(name)
        if value is None:
            return default
        nanos = self._nanos(name, value)
        if nanos is None:
            return default
        if nanos < least:
            above = f"must be above {(least - 1) / 1e9:g}s"
            self.refuse(name, above if least else "must not be negative")
            return default
        if least and nanos < 1_000_000:
            self.refuse(name, "must be 0.001s or more", "nothing here is timed more finely than in milliseconds")
            return default
        return nanos // 1_000_000

    def _nanos(self, name: str, value: object) -> int | None:
        if isinstance(value, Mapping):
            return self._parts(name)
        found = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            self.refuse(name, "must be a duration in seconds such as 0.25s or 10s", _duration_hint(value))
            return None
        seconds = Decimal(found[2])
        if seconds > _LONGEST:
            self.refuse(name, f"must be at most {_LONGEST}s")
            return None
        return int(seconds * 1_000_000_000) * (-1 if found[1] else 1)

    def _parts(self, name: str) -> int | None:
        """A duration written as a message."""
        parts = self.block(name)
        assert parts is not None
        seconds = parts.whole("seconds", least=-_LONGEST, most=_LONGEST)
        nanos = parts.whole("nanos", least=-999_999_999, most=999_999_999)
        parts.done()
        return seconds * 1_000_000_000 + nanos

    def maybe_seconds(self, name: str, *, least: int = 0) -> float | None:
        """A duration in seconds, None where it is not set; `least` as in `ms`."""
        found = self.ms(name, least=least)
        return None if found is None else found / 1_000

    def seconds(self, name: str, default: float, *, least: int = 1) -> float:
        """A duration in seconds; as `ms`."""
        found = self.ms(name, least=least)
        return default if found is None else found / 1_000

    def percent(self, name: str, default: float) -> float:
        """`{value: 0…100}`."""
        block = self.block(name)
        if block is None:
            return default
        value = block.number("value", 0.0)
        block.done()
        if not 0 <= value <= 100:
            block.refuse("value", "must be from 0 to 100")
            return default
        return value

    def aside(self, *names: str) -> None:
        """Fields that say nothing about steering: taken and not read."""
        for name in names:
            self.raw(name)

    def noticed(self, *names: str, why: str = "changes nothing of where a request goes") -> None:
        """Fields without effect here; one that stands there is told as a notice."""
        for name in names:
            if self.has(name) and self.raw(name) not in (False, "", {}, []):
                self.found.notice(self.at(name), "has no effect here", why)
            self._taken[name] = None

    def unsupported(self, hints: Mapping[str, str]) -> None:
        """Fields that Envoy knows and this door does not; one that stands there is refused by name.

        A message says something also where it is empty (`self: {}`); a map does not.
        """
        self._taken.update(dict.fromkeys(hints))
        if self._keys.keys().isdisjoint(hints):
            return
        for name, hint in hints.items():
            unset: tuple[object, ...] = (False, "", [], *(({},) if name in _MAPS else ()))
            if self.has(name) and self.raw(name) not in unset:
                self.found.refuse(self.at(name), "is not supported here", hint, about_key=True)

    def one_of(self, names: Iterable[str]) -> str | None:
        """The one of a oneof's fields that is set."""
        here = [name for name in names if self.has(name)]
        for name in here[1:]:
            self.found.refuse(self.at(name), f"excludes {here[0]}, which stands here too", about_key=True)
        return here[0] if here else None

    def done(self) -> None:
        """All fields that are known were taken: what is left is unknown."""
        for name, key in self._keys.items():
            if name not in self._taken:
                if name in _OLD:
                    self.found.refuse(
                        (*self.path, key), "is a field of Envoy's API v2", f"write {_OLD[name]}", about_key=True
                    )
                    continue
                close = nearest(name, tuple(self._taken))
                hint = f"did you mean '{close}'?" if close else _known(self._taken)
                self.found.refuse((*self.path, key), "unknown field", hint, about_key=True)


def _known(names: Iterable[str]) -> str:
    text = ", ".join(names)
    return f"known here: {text[: 4 * WIDEST]}{'…' if len(text) > 4 * WIDEST else ''}"


def _snake(name: str) -> str:
    """`dnsRefreshRate` as `dns_refresh_rate`."""
    return name if name.islower() else re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: "_" + found[1].lower(), name)


def _duration_hint(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"write {value}s"
    found = re.fullmatch(r"([0-9]+)ms", value) if isinstance(value, str) else None
    return f"write {int(found[1]) / 1_000:g}s" if found and len(found[1]) < 12 else ""
