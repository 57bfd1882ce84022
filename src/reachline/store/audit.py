"""What people did, a line each: who, from where, what, and what came of it. Appended, never changed; the last ten megabytes and those before.

What was refused has a file of its own: anybody can be refused as often as it likes, and must not push out what others did.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["Audit", "Deed"]

_MOST: Final = 10_000_000
"""Bytes of one file: fifty thousand deeds. One older file stays."""
_REFUSED: Final = 400
"""Statuses from here on are refusals."""


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody did, or tried to."""

    at: datetime
    who: str
    """Empty: nobody was told apart."""
    address: str
    what: str
    status: int
    """Of HTTP."""
    why: str = ""


class Audit:
    """Two files, `path` and one beside it. Any thread may write."""

    def __init__(self, path: Path) -> None:
        self._done, self._refused = path, path.with_name(f"{path.stem}-refused{path.suffix}")
        self._lock = threading.Lock()
        self.failed = 0
        """Deeds that could not be written: the disk is full, as a rule."""

    def note(self, deed: Deed) -> None:
        """Never an error: what cannot be written is counted."""
        try:
            with self._lock:
                path = self._refused if deed.status >= _REFUSED else self._done
                if path.exists() and path.stat().st_size > _MOST:
                    path.replace(_older(path))
                with path.open("ab") as file:
                    file.write(msgspec.json.encode(deed) + b"\n")
        except OSError:
            self.failed += 1

    def newest(self, most: int) -> list[Deed]:
        """The last so many, newest first; a line that a power cut left half written is passed over."""
        found = [*_last(self._done, most), *_last(self._refused, most)]
        return sorted(found, key=lambda deed: deed.at, reverse=True)[:most]


def _last(path: Path, most: int) -> list[Deed]:
    """Newest first, so that of two at the same moment the later one stays before."""
    found = deque[Deed](maxlen=most)
    for each in (_older(path), path):
        try:
            lines = each.read_bytes().splitlines()
        except FileNotFoundError:
            continue
        for line in lines[-most:]:
            try:
                found.append(msgspec.json.decode(line, type=Deed))
            except msgspec.MsgspecError:
                continue
    return [*reversed(found)]


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")
