"""A sampling profile of this very process, by CPU time: which line of code it stands on. Costs a few per cent while it runs."""

from __future__ import annotations

import contextlib
import linecache
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from benchmarks.probing.results import Profile, Spot

__all__ = ["Sampler"]

_EVERY: Final = 0.001
"""Seconds of CPU between samples; the kernel rounds it up to its tick."""
_MOST: Final = 12
"""Lines that are told: those after them have a per cent or less."""
_ROOTS: Final = ("src/reachline/", "benchmarks/", f"lib/python{sys.version_info.major}.{sys.version_info.minor}/")


class Sampler:
    """Counts where we stand while `running`. A call into C or the kernel stands on the line that made it."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[CodeType, int]] = Counter()
        self._kernel = self._all = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """SIGPROF is ours meanwhile."""
        before = resource.getrusage(resource.RUSAGE_SELF)
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            after = resource.getrusage(resource.RUSAGE_SELF)
            self._kernel = after.ru_stime - before.ru_stime
            self._all = self._kernel + after.ru_utime - before.ru_utime

    def profile(self) -> Profile:
        """What was seen, the most frequent lines first."""
        total = self._seen.total()
        spots = tuple(
            Spot(share=count / total, place=_place(code), source=linecache.getline(code.co_filename, line).strip())
            for (code, line), count in self._seen.most_common(_MOST)
        )
        return Profile(samples=total, kernel=self._kernel / self._all if self._all else 0.0, spots=spots)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number
        if frame is not None:
            self._seen[frame.f_code, frame.f_lineno or 0] += 1  # a few instructions belong to no line


def _place(code: CodeType) -> str:
    """`net/engine.py turn`: no directory of this machine."""
    name = Path(code.co_filename).as_posix()
    for root in _ROOTS:
        _, found, tail = name.rpartition(root)
        if found:
            name = tail
            break
    else:
        name = Path(name).name
    return f"{name} {code.co_qualname}"
