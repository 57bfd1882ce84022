r"""Regular expressions as RE2 has them, in the words of `re`: what one of them does not know is refused, not read as something else.

Where both know a sign but mean different things (`\z`, `{,2}`, `++`, `[[:alpha:]]`, `$` before a line break) RE2's meaning counts.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from reachline.doors.envoy.linear import Part, Program, TooLargeError, program

__all__ = ["REGEX_MOST", "Expression", "compiled", "substitution"]

REGEX_MOST: Final = 1_024
"""Characters of an expression. Envoy allows a program of 100 instructions, of which a character takes one or so."""
_REPEAT_MOST: Final = 1_000
_COUNTED: Final = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_FLAGS: Final = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAMED: Final = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_CLASS: Final = re.compile(r"\[:(\^?)([a-z]+):\]")
_CLASSES: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_ESCAPES: Final = frozenset("dDwWsSbBAafnrtv")
_HEX: Final = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")


class _Wrong(Exception):  # noqa: N818  (a signal inside this module, never seen outside)
    def __init__(self, rule: str, hint: str = "") -> None:
        super().__init__(rule)
        self.rule, self.hint = rule, hint


_SHORT: Final = 1_024
"""Characters of a text that `re` is asked about: with two repetitions at most a million steps, some milliseconds."""
_FREE_MOST: Final = 2
"""Repetitions without end, none in another, that `re` is trusted with."""


class Expression:
    """An expression to be asked about whole texts, in time that a text made for it does not blow up; equal by its pattern."""

    __slots__ = ("_program", "_quick", "groups", "is_nested", "is_quick", "parts", "pattern")

    def __init__(self, quick: re.Pattern[str], parts: Sequence[Part]) -> None:
        """`parts` are those of `quick`. TooLargeError where there would be too many of them."""
        self.pattern: Final = quick.pattern
        self.groups: Final = quick.groups
        self.is_nested: Final = _is_nested(parts)
        """Whether a repetition without end holds another repetition."""
        free = sum(each.kind == "repeat" and _is_endless(each.text) for each in parts)
        self.is_quick: Final = not self.is_nested and free <= _FREE_MOST
        self.parts: Final = tuple(parts)
        self._quick = quick
        self._program: Program | None = None if self.is_quick else program(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.pattern == self.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def __repr__(self) -> str:
        return f"Expression({self.pattern!r})"

    def fits(self, text: str) -> bool:
        """Whether the whole text does."""
        if self.is_quick and len(text) <= _SHORT:
            return self._quick.fullmatch(text) is not None
        if self._program is None:
            self._program = program(self.parts)
        return self._program.fits(text)

    def found(self, text: str) -> Iterator[re.Match[str]]:
        """Every match within a text, for one that is not nested: nothing else keeps that in bounds."""
        return self._quick.finditer(text)


def _is_endless(text: str) -> bool:
    return text[0] in "*+" or ",}" in text


def _is_nested(parts: Sequence[Part]) -> bool:
    """Whether a group that is repeated without end, or often, holds a repetition or alternatives."""
    holds: list[bool] = [False]
    for at, part in enumerate(parts):
        follows = parts[at + 1] if at + 1 < len(parts) else None
        if part.kind == "open" and not part.text.endswith(")"):
            holds.append(False)
        elif part.kind in ("repeat", "or"):
            holds[-1] = True
        elif part.kind == "close":
            inner = holds.pop()
            if inner and follows is not None and follows.kind == "repeat" and not follows.text.startswith("?"):
                return True
            holds[-1] = holds[-1] or inner
    return False


def compiled(text: str) -> tuple[Expression | None, str, str]:
    """The expression; or None with what is wrong: (rule, hint)."""
    if not text:
        return None, "must not be empty", ""
    if len(text) > REGEX_MOST:
        return None, f"has more than {REGEX_MOST} characters", ""
    try:
        translation = _Translation(text)
        return Expression(re.compile(translation.whole(), re.ASCII), translation.parts), "", ""
    except TooLargeError:
        return None, "repeats too much", "fewer repetitions of repetitions"
    except _Wrong as wrong:
        return None, wrong.rule, wrong.hint
    except (re.error, OverflowError, RecursionError) as error:
        return None, f"is no regular expression: {error}", ""


def substitution(text: str, groups: int) -> tuple[str, str]:
    r"""RE2's replacement text (`\1`, `\\`) in the words of `re.sub`, and what is wrong with it: empty if nothing."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            found.append(text[at])
            at += 1
            continue
        sign = text[at + 1 : at + 2]
        if sign == "\\":
            found.append("\\\\")
        elif sign.isdecimal() and sign.isascii():
            if int(sign) > groups:
                return "", f"refers to group {sign}: the expression has {groups}"
            found.append(f"\\g<{sign}>")
        else:
            return "", "holds a backslash that is followed by neither a digit nor a backslash"
        at += 2
    return "".join(found), ""


@dataclass(slots=True)
class _Translation:
    """From left to right through one expression. Used once."""

    text: str
    at: int = 0
    made: list[str] = field(default_factory=list)
    repeatable: bool = False
    """Whether what stands last may be repeated."""
    parts: list[Part] = field(default_factory=list)
    """What was made, piece by piece; a set is one."""
    is_in_set: bool = False

    def whole(self) -> str:
        while self.at < len(self.text):
            self._next()
        return "".join(self.made)

    def _put(self, made: str, length: int, *, repeatable: bool, kind: str = "char") -> None:
        self.made.append(made)
        if not self.is_in_set and made:
            self.parts.append(Part(kind, made))
        self.at += length
        self.repeatable = repeatable

    def _next(self) -> None:
        sign = self.text[self.at]
        match sign:
            case "\\":
                self._escape()
            case "[":
                self._set()
            case "(":
                self._group()
            case "*" | "+" | "?":
                self._repeat(sign)
            case "{":
                counted = _COUNTED.match(self.text, self.at)
                if counted is None:
                    self._put(r"\{", 1, repeatable=True)
                else:
                    self._counted(counted)
            case "$":
                self._put(r"\Z", 1, repeatable=False, kind="at")
            case "|" | "^" | ")":
                kind = {"|": "or", "^": "at"}.get(sign, "close")
                self._put(sign, 1, repeatable=sign == ")", kind=kind)
            case _:
                self._put(sign, 1, repeatable=True)

    def _counted(self, found: re.Match[str]) -> None:
        least, most = int(found[1]), int(found[3]) if found[3] else None
        if least > _REPEAT_MOST or (most is not None and not least <= most <= _REPEAT_MOST):
            raise _Wrong(f"has a wrong repetition {found[0]}", f"0 to {_REPEAT_MOST}, the smaller one first")
        self._repeat(found[0])

    def _repeat(self, sign: str) -> None:
        if not self.repeatable:
            raise _Wrong(f"has {sign} with nothing to repeat before it")
        end = self.at + len(sign)
        lazy = "?" if self.text.startswith("?", end) else ""
        self._put(sign + lazy, len(sign + lazy), repeatable=False, kind="repeat")
        if self.text.startswith(("*", "+", "?"), self.at) or _COUNTED.match(self.text, self.at):
            raise _Wrong("repeats a repetition", "put the inner one in (?:…)")

    def _group(self) -> None:
        named, flags = _NAMED.match(self.text, self.at), _FLAGS.match(self.text, self.at)
        if named is not None:
            self._put(f"(?P<{named[1]}>", len(named[0]), repeatable=False, kind="open")
        elif flags is not None:
            self._flags(flags)
        elif self.text.startswith("(?", self.at):
            beginning = self.text[self.at : self.at + 4]
            raise _Wrong(
                f"has {beginning}…, which RE2 does not know", "there is no looking ahead or behind, and no comment"
            )
        else:
            self._put("(", 1, repeatable=False, kind="open")

    def _flags(self, found: re.Match[str]) -> None:
        on, off, end = found[1], found[2] or "", found[3]
        if "U" in on + off:
            raise _Wrong("has the flag U, which is not supported here", "write *? and +?")
        if "m" in on + off:
            raise _Wrong("has the flag m, which is not supported here", "there is one line in what is matched")
        if end == ")" and (self.at or off):
            raise _Wrong(f"has {found[0]} after its beginning, which is not supported here", f"write (?{on}:…)")
        made = f"(?{on}-{off}{end}" if off else f"(?{on}{end}"
        self._put(made, len(found[0]), repeatable=False, kind="open")

    def _escape(self, *, is_set: bool = False) -> None:
        sign = self.text[self.at + 1 : self.at + 2]
        hexadecimal = _HEX.match(self.text, self.at)
        if hexadecimal is not None:
            self._put(_character(int(hexadecimal[1] or hexadecimal[2], 16)), len(hexadecimal[0]), repeatable=True)
        elif sign == "Q" and not is_set:
            inner, end, _ = self.text[self.at + 2 :].partition("\\E")
            self.at += 2
            for each in inner:
                self._put(re.escape(each), 1, repeatable=True)
            self._put("", len(end), repeatable=bool(inner))
        elif sign == "z" and not is_set:
            self._put(r"\Z", 2, repeatable=False, kind="at")
        elif sign in ("p", "P", "C"):
            raise _Wrong(f"has \\{sign}, which is not supported here", "name the characters")
        elif sign in _ESCAPES and not (is_set and sign in "bBA"):
            self._put("\\" + sign, 2, repeatable=sign not in "bBA", kind="at" if sign in "bBA" else "char")
        elif sign and sign in string.punctuation:
            self._put(re.escape(sign), 2, repeatable=True)
        else:
            raise _Wrong(f"has the unknown escape \\{sign}")

    def _set(self) -> None:
        """`[…]`: what `re` would read as an operation of sets is escaped."""
        begin = "[^" if self.text.startswith("[^", self.at) else "["
        start, self.is_in_set = len(self.made), True
        self._put(begin, len(begin), repeatable=False)
        if self.text.startswith("]", self.at):
            self._put(r"\]", 1, repeatable=False)
        while not self.text.startswith("]", self.at):
            if self.at >= len(self.text):
                raise _Wrong("has a [ without its ]")
            named = _CLASS.match(self.text, self.at)
            if named is not None:
                self._put(_class(named), len(named[0]), repeatable=False)
            elif self.text[self.at] == "\\":
                self._escape(is_set=True)
            else:
                sign = self.text[self.at]
                self._put("\\" + sign if sign in "[&~|" else sign, 1, repeatable=False)
        self._put("]", 1, repeatable=True)
        self.is_in_set = False
        self.parts.append(Part("char", "".join(self.made[start:])))


def _class(found: re.Match[str]) -> str:
    inner = _CLASSES.get(found[2])
    if inner is None:
        raise _Wrong(f"has the unknown class {found[0]}", f"known: {', '.join(_CLASSES)}")
    if found[1]:
        raise _Wrong(f"has {found[0]}, which is not supported here", "write [^…]")
    return inner


def _character(code: int) -> str:
    if code > 0x10_FFFF:
        raise _Wrong(f"has a character beyond Unicode: {code:#x}")
    return f"\\U{code:08x}"
