"""Which segments of a journal are dropped: whole ones, oldest first, by age and by size."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from reachline.errors import JournalError
from reachline.model import Seconds
from reachline.store.segment import Segment, SegmentWriter, discard, listed, size_of

__all__ = ["Keep", "Retention"]

log = logging.getLogger(__name__)


class Keep(NamedTuple):
    """What retention leaves: segments younger than `age`, `size` bytes in all; None: no limit. Never less than the newest."""

    age: Seconds | None = None
    size: int | None = None


class Retention:
    """Drops segments of one journal. Used by its writer's thread alone."""

    def __init__(self, directory: Path, keep: Keep) -> None:
        self._directory, self._keep = directory, keep
        self._opened: dict[Path, int] = {}

    def apply(self, current: SegmentWriter, now_ms: int) -> None:
        """Whole segments go, oldest first, never the one being written, nor while it cannot stand alone."""
        older = [path for path in listed(self._directory) if path != current.path]
        if current.fresh or not older:
            return
        total = size_of(current.path) + sum(map(size_of, older))
        ends = [*(self._opened_ms(path, current) for path in older[1:]), current.meta.opened_ms]
        for path, ended_ms in zip(older, ends, strict=True):
            is_old = self._keep.age is not None and now_ms - ended_ms > self._keep.age * 1_000
            if not is_old and (self._keep.size is None or total <= self._keep.size):
                return
            total -= size_of(path)
            with suppress(OSError):  # tried again at the next mark
                discard(path)
                log.info("segment_dropped", extra={"segment": path.name, "reason": "age" if is_old else "size"})

    def _opened_ms(self, path: Path, current: SegmentWriter) -> int:
        if path not in self._opened:
            try:
                with Segment(path) as segment:
                    self._opened[path] = segment.meta.opened_ms
            except JournalError:
                self._opened[path] = current.meta.opened_ms  # unreadable: kept as if new, dropped by size alone
        return self._opened[path]
