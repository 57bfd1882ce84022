"""What people did, a line each: who, from where, what, and what came of it. Appended, never changed; the last ten megabytes and those before."""

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
    """One file. Any thread may write."""

    def __init__(self, path: Path) -> None:
        self._path, self._older = path, path.with_name(f"{path.name}.1")
        self._lock = threading.Lock()
        self.failed = 0
        """Deeds that could not be written: the disk is full, as a rule."""

    def note(self, deed: Deed) -> None:
        """Never an error: what cannot be written is counted."""
        try:
            with self._lock:
                if self._path.exists() and self._path.stat().st_size > _MOST:
                    self._path.replace(self._older)
                with self._path.open("ab") as file:
                    file.write(msgspec.json.encode(deed) + b"\n")
        except OSError:
            self.failed += 1

    def newest(self, most: int) -> list[Deed]:
        """The last so many, newest first; a line that a power cut left half written is passed over."""
        found = deque[Deed](maxlen=most)
        for path in (self._older, self._path):
            try:
                lines = path.read_bytes().splitlines()
            except FileNotFoundError:
                continue
            for line in lines[-most:]:
                try:
                    found.append(msgspec.json.decode(line, type=Deed))
                except msgspec.MsgspecError:
                    continue
        return [*reversed(found)]
