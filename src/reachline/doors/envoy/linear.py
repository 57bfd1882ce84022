"""Whether a whole text fits an expression, in time that grows with the text alone, whatever the expression is.

`re` goes back and tries again, which a path made for it turns into minutes; here all ways are followed at once, and where they
led by a character is remembered. Groups are not told: who needs them asks `re`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["Part", "Program", "TooLargeError", "program"]

_CODE_MOST: Final = 5_000
"""Instructions. Envoy refuses an expression of more than a hundred."""
_KNOWN_MOST: Final = 8_192
"""Steps that are remembered: some states by some dozens of characters; then all are forgotten."""
_CHAR, _SPLIT, _AT, _END = range(4)


class TooLargeError(Exception):
    """The expression has too many repetitions of repetitions."""


class Part(NamedTuple):
    """One piece of an expression in the words of `re`. `kind`: char, open, close, or, repeat, at."""

    kind: str
    text: str


class _Do(NamedTuple):
    """One instruction. A char goes on to the next one, a split to each of `to`, so many on; `at` only where `text` holds."""

    kind: int
    to: tuple[int, ...] = ()
    test: re.Pattern[str] | None = None
    text: str = ""


class Program:
    """An expression to be asked. Written by whoever asks, one thread at a time: what it remembers is its own."""

    __slots__ = ("_code", "_reached", "_stepped")

    def __init__(self, code: Sequence[_Do]) -> None:
        self._code: Final = tuple(code)
        self._reached: dict[tuple[frozenset[int], tuple[bool, bool, bool, bool]], frozenset[int]] = {}
        self._stepped: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def fits(self, text: str) -> bool:
        """Whether the whole text does."""
        found = frozenset((0,))
        last = len(text)
        for at in range(last + 1):
            before, after = text[at - 1 : at] if at else "", text[at : at + 1]
            found = self._all(found, (at == 0, at == last, _is_word(before), _is_word(after)))
            if at == last:
                break
            found = self._step(found, after)
            if not found:
                return False
        return any(self._code[each].kind == _END for each in found)

    def _all(self, places: frozenset[int], where: tuple[bool, bool, bool, bool]) -> frozenset[int]:
        """Every instruction that is reached without a character."""
        key = (places, where)
        known = self._reached.get(key)
        if known is not None:
            return known
        seen: set[int] = set()
        left = list(places)
        while left:
            place = left.pop()
            if place in seen:
                continue
            seen.add(place)
            each = self._code[place]
            if each.kind == _SPLIT:
                left += (place + by for by in each.to)
            elif each.kind == _AT and _holds(each.text, where):
                left.append(place + 1)
        if len(self._reached) > _KNOWN_MOST:
            self._reached.clear()
        found = self._reached[key] = frozenset(each for each in seen if self._code[each].kind in (_CHAR, _END))
        return found

    def _step(self, places: frozenset[int], sign: str) -> frozenset[int]:
        key = (places, sign)
        known = self._stepped.get(key)
        if known is not None:
            return known
        if len(self._stepped) > _KNOWN_MOST:
            self._stepped.clear()
        found = self._stepped[key] = frozenset(place + 1 for place in places if _takes(self._code[place], sign))
        return found


def _takes(each: _Do, sign: str) -> bool:
    return each.test is not None and each.test.fullmatch(sign) is not None


def _is_word(sign: str) -> bool:
    return sign.isascii() and (sign.isalnum() or sign == "_")


def _holds(text: str, where: tuple[bool, bool, bool, bool]) -> bool:
    begins, ends, before, after = where
    match text:
        case "^" | r"\A":
            return begins
        case r"\Z":
            return ends
        case r"\b":
            return before is not after
        case _:
            return before is after


def program(parts: Sequence[Part]) -> Program:
    """The program of an expression that `re` takes; TooLargeError."""
    code = _Parsing(tuple(parts)).whole()
    return Program(code)


class _Parsing:
    """From left to right through the parts, into instructions. Used once."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts
        self._at = 0

    def whole(self) -> list[_Do]:
        flags = int(re.ASCII)
        while self._at < len(self._parts) and _is_flags(self._parts[self._at]):
            flags = _flags(self._parts[self._at].text, flags)
            self._at += 1
        return [*self._branches(flags), _Do(_END)]

    def _branches(self, flags: int) -> list[_Do]:
        """Alternatives, up to the end of their group."""
        found = [self._sequence(flags)]
        while self._at < len(self._parts) and self._parts[self._at].kind == "or":
            self._at += 1
            found.append(self._sequence(flags))
        code = found[-1]
        for each in reversed(found[:-1]):
            # A way into the one, whose end jumps over the other.
            code = _small([_Do(_SPLIT, (1, len(each) + 2)), *each, _Do(_SPLIT, (len(code) + 1,)), *code])
        return code

    def _sequence(self, flags: int) -> list[_Do]:
        code: list[_Do] = []
        while self._at < len(self._parts) and self._parts[self._at].kind not in ("or", "close"):
            part = self._parts[self._at]
            self._at += 1
            match part.kind:
                case "open":
                    one = self._branches(_flags(part.text, flags))
                    self._at += 1
                case "at":
                    one = [_Do(_AT, text=part.text)]
                case _:
                    one = [_Do(_CHAR, test=re.compile(part.text, flags))]
            if self._at < len(self._parts) and self._parts[self._at].kind == "repeat":
                one = _repeated(one, *_bounds(self._parts[self._at].text))
                self._at += 1
            code = _small([*code, *one])
        return code


def _is_flags(part: Part) -> bool:
    """Of the whole expression, at its beginning."""
    return part.kind == "open" and part.text.endswith(")")


def _flags(text: str, flags: int) -> int:
    """What a group's beginning makes of the flags: `(?i-s:`."""
    found = _FLAGS.fullmatch(text)
    if found is None:
        return flags
    # A letter may stand there twice.
    on, off = (sum(_BITS[each] for each in set(letters or "")) for letters in found.groups())
    return (flags | on) & ~off


_FLAGS: Final = re.compile(r"\(\?([is]*)(?:-([is]+))?[:)]")
_BITS: Final = {"i": int(re.IGNORECASE), "s": int(re.DOTALL)}
_COUNTED: Final = re.compile(r"\{([0-9]+)(,([0-9]*))?\}\??")


def _bounds(text: str) -> tuple[int, int | None]:
    """How often at least and at most; None: without end. Whether it is lazy makes no difference to a whole text."""
    found = _COUNTED.fullmatch(text)
    if found is None:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[text[0]]
    least = int(found[1])
    return least, (least if found[2] is None else int(found[3]) if found[3] else None)


def _repeated(one: list[_Do], least: int, most: int | None) -> list[_Do]:
    if len(one) * max(least, most or 0) > _CODE_MOST:
        raise TooLargeError
    code = one * least
    if most is None:
        return [*code, _Do(_SPLIT, (1, len(one) + 2)), *one, _Do(_SPLIT, (-len(one) - 1,))]
    rest: list[_Do] = []
    for _ in range(most - least):
        rest = _small([_Do(_SPLIT, (1, len(one) + len(rest) + 1)), *one, *rest])
    return _small([*code, *rest])


def _small(code: list[_Do]) -> list[_Do]:
    if len(code) > _CODE_MOST:
        raise TooLargeError
    return code
