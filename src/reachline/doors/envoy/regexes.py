r"""Regular expressions as RE2 has them, in the words of `re`: what one of them does not know is refused, not read as something else.

Where both know a sign but mean different things (`\z`, `{,2}`, `++`, `[[:alpha:]]`, `$` before a line break) RE2's meaning counts.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field
from typing import Final

__all__ = ["REGEX_MOST", "compiled", "substitution"]

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


def compiled(text: str) -> tuple[re.Pattern[str] | None, str, str]:
    """The pattern, to be matched as a whole; or None with what is wrong: (rule, hint)."""
    if not text:
        return None, "must not be empty", ""
    if len(text) > REGEX_MOST:
        return None, f"has more than {REGEX_MOST} characters", ""
    try:
        return re.compile(_Translation(text).whole(), re.ASCII), "", ""
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

    def whole(self) -> str:
        while self.at < len(self.text):
            self._next()
        return "".join(self.made)

    def _put(self, made: str, length: int, *, repeatable: bool) -> None:
        self.made.append(made)
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
                self._put(r"\Z", 1, repeatable=False)
            case "|" | "^":
                self._put(sign, 1, repeatable=False)
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
        self._put(sign + lazy, len(sign + lazy), repeatable=False)
        if self.text.startswith(("*", "+", "?"), self.at) or _COUNTED.match(self.text, self.at):
            raise _Wrong("repeats a repetition", "put the inner one in (?:…)")

    def _group(self) -> None:
        named, flags = _NAMED.match(self.text, self.at), _FLAGS.match(self.text, self.at)
        if named is not None:
            self._put(f"(?P<{named[1]}>", len(named[0]), repeatable=False)
        elif flags is not None:
            self._flags(flags)
        elif self.text.startswith("(?", self.at):
            beginning = self.text[self.at : self.at + 4]
            raise _Wrong(
                f"has {beginning}…, which RE2 does not know", "there is no looking ahead or behind, and no comment"
            )
        else:
            self._put("(", 1, repeatable=False)

    def _flags(self, found: re.Match[str]) -> None:
        on, off, end = found[1], found[2] or "", found[3]
        if "U" in on + off:
            raise _Wrong("has the flag U, which is not supported here", "write *? and +?")
        if "m" in on + off:
            raise _Wrong("has the flag m, which is not supported here", "there is one line in what is matched")
        if end == ")" and (self.at or off):
            raise _Wrong(f"has {found[0]} after its beginning, which is not supported here", f"write (?{on}:…)")
        made = f"(?{on}-{off}{end}" if off else f"(?{on}{end}"
        self._put(made, len(found[0]), repeatable=False)

    def _escape(self, *, is_set: bool = False) -> None:
        sign = self.text[self.at + 1 : self.at + 2]
        hexadecimal = _HEX.match(self.text, self.at)
        if hexadecimal is not None:
            self._put(_character(int(hexadecimal[1] or hexadecimal[2], 16)), len(hexadecimal[0]), repeatable=True)
        elif sign == "Q" and not is_set:
            inner = self.text[self.at + 2 :].partition("\\E")[0]
            length = len(inner) + (4 if self.text.startswith("\\E", self.at + 2 + len(inner)) else 2)
            self._put(re.escape(inner), length, repeatable=bool(inner))
        elif sign == "z" and not is_set:
            self._put(r"\Z", 2, repeatable=False)
        elif sign in ("p", "P", "C"):
            raise _Wrong(f"has \\{sign}, which is not supported here", "name the characters")
        elif sign in _ESCAPES and not (is_set and sign in "bBA"):
            self._put("\\" + sign, 2, repeatable=sign not in "bBA")
        elif sign and sign in string.punctuation:
            self._put(re.escape(sign), 2, repeatable=True)
        else:
            raise _Wrong(f"has the unknown escape \\{sign}")

    def _set(self) -> None:
        """`[…]`: what `re` would read as an operation of sets is escaped."""
        begin = "[^" if self.text.startswith("[^", self.at) else "["
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
