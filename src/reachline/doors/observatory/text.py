"""Xray's JSON text to plain values with the place of every key and value: comments (`//`, `#`, `/* */`) and trailing commas as people
write them. Iterative and bounded, so that no depth, size or number overflows anything; a template that was not filled in is named as one.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from reachline.doors.composer import MAX_BYTES, MAX_DEPTH, Composed, Trouble
from reachline.doors.origin import Path, Place, Places

__all__ = ["MAX_NODES", "compose"]

MAX_NODES: Final = 200_000
"""Keys and values: 5 000 outbounds of forty, read in a second or two."""
_SPACE: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)+", re.DOTALL)
_TEXT: Final = re.compile(r'"((?:[^"\\\x00-\x1f]|\\.)*)"')
_ESCAPES: Final = re.compile(r'(?:[^\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_WORDS: Final = {"true": True, "false": False, "null": None}
_LONGEST: Final = 40
"""Characters of a number: what a double and an int64 need, with room."""
_TEMPLATE: Final = re.compile(r"\{\{|\$\{|%\{|\{%|<%|<[A-Za-z][\w .-]{0,40}>|__[A-Z][A-Z0-9_]*__|%[A-Z][A-Z0-9_]+%")
"""Beginnings of what template engines fill in: Jinja and Go, shells and Terraform, ERB, and the habits of those who use sed."""
_LONE: Final = re.compile(r"[\ud800-\udfff]")

_Value = dict[str, object] | list[object] | str | int | float | bool | None


class _Stop(Exception):  # noqa: N818  (a signal inside this module, never seen outside)
    def __init__(self, at: int, rule: str, hint: str = "") -> None:
        super().__init__(rule)
        self.at, self.rule, self.hint = at, rule, hint


@dataclass(slots=True, kw_only=True)
class _Block:
    """A mapping or list being filled; `key` is the key whose value comes next."""

    value: dict[str, object] | list[object]
    path: Path
    key: str | None = None
    keys: dict[str, int] = field(default_factory=dict)
    """Keys as Go compares them, and where they stand."""


def compose(text: str, *, name: str) -> Composed:
    """The single value in `text`. `name` is the file's name in places. Everything found wrong is returned, not raised."""
    reader = _Reader(text)
    whole = False
    try:
        reader.read()
        whole = True
    except _Stop as stop:
        at, rule, hint = reader.explained(stop)
        reader.note(at, rule, hint)
    places = Places(name=name, values=reader.values, keys=reader.keys)
    return Composed(value=reader.root, places=places, troubles=tuple(reader.troubles), whole=whole)


class _Reader:
    """Text in, values out. Written by `compose` alone."""

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.at = 1 if text.startswith("\ufeff") else 0
        self.root: _Value = None
        self.values: dict[Path, Place] = {}
        self.keys: dict[Path, Place] = {}
        self.troubles: list[Trouble] = []
        self._blocks: list[_Block] = []
        self._nodes = 0
        self._lines = [0, *(found.end() for found in re.finditer("\n", text[: MAX_BYTES + 1]))]

    def place(self, at: int) -> Place:
        line = bisect_right(self._lines, at)
        return Place(line, at - self._lines[line - 1] + 1)

    def note(self, at: int, rule: str, hint: str = "") -> None:
        path = self._blocks[-1].path if self._blocks else ()
        self.troubles.append(Trouble(place=self.place(at), path=path, rule=rule, hint=hint))

    def explained(self, stop: _Stop) -> tuple[int, str, str]:
        """What stopped us and where, said as a template that was not filled in where it looks like one."""
        line = self.place(stop.at).line
        end = self.text.find("\n", stop.at)
        begin = self._lines[line - 1]
        found = _TEMPLATE.search(self.text[begin : end if end >= 0 else len(self.text)][:1_000])
        if found and (at := begin + found.start()) + 2 >= stop.at - 1:
            return (
                at,
                f"is a template: {found[0]!r} was not filled in",
                "render it first; this reads the document it becomes",
            )
        return stop.at, stop.rule, stop.hint

    def read(self) -> None:
        if len(self.text) > MAX_BYTES:
            raise _Stop(0, f"is larger than {MAX_BYTES >> 20} MiB: that is no configuration")
        self._space()
        if self.at == len(self.text):
            raise _Stop(self.at, "is empty", "an Xray document is a block: {…}")
        self._value()
        while self._blocks:
            self._next()
        self._space()
        if self.at < len(self.text):
            raise _Stop(self.at, "goes on after its end", "Xray reads the first value of a file and drops the rest")

    def _space(self) -> None:
        if found := _SPACE.match(self.text, self.at):
            self.at = found.end()
        if self.text.startswith("/*", self.at):
            raise _Stop(self.at, "begins a comment that does not end", "close it by */")

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _next(self) -> None:
        """One item of the innermost block, or its end."""
        block = self._blocks[-1]
        close = "}" if isinstance(block.value, dict) else "]"
        self._space()
        if self._peek() == close:
            self._close()
            return
        if block.value or block.keys:
            self._comma(close)
            if self._peek() == close:
                self._close()
                return
        if isinstance(block.value, dict):
            self._key(block)
        self._value()

    def _comma(self, close: str) -> None:
        if self._peek() != ",":
            raise _Stop(self.at, f"lacks a comma or {close!r} here", self._missing())
        self.at += 1
        self._space()

    def _missing(self) -> str:
        return "the document ends early" if self.at == len(self.text) else "put a comma between items"

    def _close(self) -> None:
        self.at += 1
        self._blocks.pop()

    def _key(self, block: _Block) -> None:
        at = self.at
        if self._peek() != '"':
            hint = (
                "put it in double quotes" if _WORD.match(self.text, at) else self._missing() if not self._peek() else ""
            )
            raise _Stop(at, "must be a key in double quotes", hint)
        key = self._text()
        self._space()
        if self._peek() != ":":
            raise _Stop(self.at, f"lacks ':' after the key {key[:40]!r}")
        self.at += 1
        path = (*block.path, key)
        folded = key.casefold()
        if folded in block.keys:
            first = self.place(block.keys[folded])
            self.troubles.append(
                Trouble(
                    place=self.place(at),
                    path=path,
                    rule=f"stands here a second time (first at line {first.line}; case makes no difference)",
                    hint="keep one of them",
                )
            )
        block.keys[folded] = at
        block.key = key
        self.keys.setdefault(path, self.place(at))

    def _value(self) -> None:
        self._space()
        at, sign = self.at, self._peek()
        self._count(at)
        if sign and sign in "{[":
            self._open(at, {} if sign == "{" else [])
        elif sign == '"':
            self._put(at, self._text())
        elif found := _NUMBER.match(self.text, at):
            self._put(at, self._number(found[0]))
        else:
            self._put(at, self._word())

    def _count(self, at: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _Stop(at, f"has more than {MAX_NODES} values")

    def _open(self, at: int, empty: dict[str, object] | list[object]) -> None:
        if len(self._blocks) >= MAX_DEPTH:
            raise _Stop(at, f"is nested deeper than {MAX_DEPTH} blocks")
        path = self._put(at, empty)
        self.at += 1
        self._blocks.append(_Block(value=empty, path=path))

    def _text(self) -> str:
        at = self.at
        found = _TEXT.match(self.text, at)
        if found is None:
            raise _Stop(
                at, "begins a text that does not end on its line", "close it by a double quote; a line break is \\n"
            )
        wrong = _ESCAPES.match(found[1])
        if wrong is not None and wrong.end() < len(found[1]):
            raise _Stop(at + 1 + wrong.end(), "is no escape", 'known are \\" \\\\ \\/ \\b \\f \\n \\r \\t \\u1234')
        self.at = found.end()
        text: str = json.loads(found[0]) if "\\" in found[1] else found[1]
        return _LONE.sub("\ufffd", text)

    def _number(self, text: str) -> int | float:
        if len(text) > _LONGEST:
            raise _Stop(self.at, f"is a number of more than {_LONGEST} characters")
        after = self.text[self.at + len(text) : self.at + len(text) + 1]
        if after.isalnum() or after == ".":
            raise _Stop(self.at, "is no number", "a text stands in double quotes")
        self.at += len(text)
        is_whole = text.lstrip("-").isdecimal()
        number: int | float = int(text) if is_whole else float(text)
        if number in (float("inf"), float("-inf")):
            raise _Stop(self.at - len(text), "is larger than any number")
        return number

    def _word(self) -> bool | None:
        found = _WORD.match(self.text, self.at)
        if found is None:
            hint = (
                "texts stand in double quotes"
                if self._peek() == "'"
                else "the document ends early"
                if not self._peek()
                else ""
            )
            raise _Stop(self.at, "is no value", hint)
        if found[0] not in _WORDS:
            known = found[0].lower() in _WORDS
            raise _Stop(
                self.at,
                f"is no value: {found[0][:40]}",
                f"write {found[0].lower()}" if known else "a text stands in double quotes",
            )
        self.at = found.end()
        return _WORDS[found[0]]

    def _put(self, at: int, value: _Value) -> Path:
        if not self._blocks:
            self.root = value
            self.values[()] = self.place(at)
            return ()
        block = self._blocks[-1]
        step: str | int
        if isinstance(block.value, list):
            step = len(block.value)
            block.value.append(value)
        else:
            step = block.key or ""
            block.value[step] = value
        path = (*block.path, step)
        self.values.setdefault(path, self.place(at))
        return path
