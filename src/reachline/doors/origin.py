"""Where a document's values stand in its file, and the secrets that its references stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Final, NamedTuple
from urllib.parse import quote

from reachline.errors import Problem

__all__ = ["REFERENCE", "Origin", "Path", "Place", "Places", "read_secret", "resolve"]

Path = tuple[str | int, ...]

REFERENCE: Final = re.compile(r"\$\{([^}]*)\}")
_MAX_SECRET: Final = 64 << 10
"""Bytes of a secret's file: a key or a token, not a database."""


class Place(NamedTuple):
    """Line and column, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where every key and every value of a document stands."""

    name: str = ""
    values: Mapping[Path, Place] = field(default_factory=dict)
    keys: Mapping[Path, Place] = field(default_factory=dict)

    aliases: Mapping[Path, Path] = field(default_factory=dict)
    """Where an alias stands, and the path of what it repeats."""

    def at(self, path: Path, *, key: bool = False) -> Place:
        """The value's place, or its key's; else that of the nearest block above it."""
        if key and (found := self._find(path, self.keys)):
            return found
        for length in range(len(path), -1, -1):
            if found := self._find(path[:length], self.values):
                return found
        return Place(1, 1)

    def _find(self, path: Path, table: Mapping[Path, Place]) -> Place | None:
        """The place of `path`, by way of the aliases it lies under."""
        while path not in table:
            used = next(
                (path[:length] for length in range(len(path) - 1, 0, -1) if path[:length] in self.aliases), None
            )
            if used is None:
                return None
            path = (*self.aliases[used], *path[len(used) :])
        return table[path]

    def text(self, place: Place) -> str:
        """`file:line:column`."""
        return f"{self.name}:{place.line}:{place.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a document knows of its file beside its settings."""

    places: Places = field(default_factory=Places)
    locate: Callable[[Path], Path] = field(default=lambda path: path)
    """From a path of the settings to the path of the file: lists become names on the way."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()

    def place(self, path: Path) -> str:
        """`file:line:column`; the file's name alone where the document was not read from text."""
        if not self.places.values:
            return self.places.name or "document"
        return self.places.text(self.places.at(self.locate(path)))

    def revealed(self, text: str) -> str:
        """The text with its references filled in, quoted as a URL's part needs it."""
        return REFERENCE.sub(lambda found: quote(self.secrets.get(found[1], ""), safe=""), text)


def read_secret(path: str) -> str:
    """A secret's file without its last line break; OSError or ValueError where it cannot be had."""
    file = FilePath(path)
    if file.is_fifo() or file.is_char_device() or file.is_block_device():
        raise ValueError("is no file: a pipe may never answer, a device never end")
    with file.open("rb") as opened:
        data = opened.read(_MAX_SECRET + 1)
    if len(data) > _MAX_SECRET:
        raise ValueError(f"is larger than {_MAX_SECRET >> 10} KiB")
    return data.decode().rstrip("\r\n")


def resolve(
    reference: str, environ: Mapping[str, str], secret_file: Callable[[str], str]
) -> tuple[str | None, tuple[str, str]]:
    """What `env:X` or `file:/…` stands for; else None and (rule, hint)."""
    kind, _, name = reference.partition(":")
    if kind == "env" and name:
        value = environ.get(name)
        if value:
            return value, ("", "")
        return None, (f"refers to the environment variable {name}, which is not set", "export it before the start")
    if kind == "file" and name.startswith("/"):
        return _from_file(name, secret_file)
    return None, ("refers to nothing known", "write ${env:NAME} or ${file:/absolute/path}")


def _from_file(name: str, secret_file: Callable[[str], str]) -> tuple[str | None, tuple[str, str]]:
    try:
        value = secret_file(name)
    except OSError as error:
        return None, (f"refers to the file {name}: {error.strerror or error}", "")
    except ValueError:
        return None, (f"refers to the file {name}, which is no text, no file or too large", "")
    return (value, ("", "")) if value else (None, (f"refers to the file {name}, which is empty", ""))
