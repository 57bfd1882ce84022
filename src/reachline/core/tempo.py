"""When a line is probed next. Pure: the driver brings the time and the chance, and holds what is due.

Rounds lie on an absolute grid, phase + k * interval, the phase drawn from the line's id: lines of one plan never start
together, two agents with one plan do not drift, and a late round does not push the next one. Each start is moved a little
around its grid point, so that no periodic disturbance of the line stays hidden between two probes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

from reachline.model import Seconds

__all__ = ["JITTER", "Due", "interval", "next_due", "overlap", "phase", "stretch"]

JITTER: Final = 0.1
"""Share of the interval by which a start is moved, either way."""
_ON_GRID: Final = 1e-6
"""Of an interval: a grid point computed as float counts as the grid point it was meant to be."""
_OVERLAP: Final = 2, 8
"""Least and most rounds in flight: one may always be slow; beyond eight a dead line would hold a burst of sockets."""


class Due(NamedTuple):
    """The next round: start `at` (may be past: at once); `grid` is its point without jitter, given back as `last`."""

    at: Seconds
    grid: Seconds
    skipped: int = 0
    """Rounds left out because they were more than one interval late: counted, never made up for."""


def phase(line: str) -> float:
    """The line's place in its interval, 0 <= phase < 1: the same in every process, unlike `hash`."""
    return int.from_bytes(hashlib.blake2b(line.encode(), digest_size=6).digest()) / 2**48


def interval(usual: Seconds, suspect: Seconds, *, hinted: bool, failed: bool, factor: float = 1.0) -> Seconds:
    """How often: the suspect interval while the center holds the line for not healthy, or its own last round failed.

    `factor` is what `stretch` says; it slows all lines of an agent alike.
    """
    return factor * (min(usual, suspect) if hinted or failed else usual)


def next_due(place: float, every: Seconds, last: Seconds | None, now: Seconds, rng: Random) -> Due:
    """The round after the one whose grid point was `last` (None: the first one, from `now` on).

    `place` is the line's `phase`, `every` the interval now: it may have changed since `last`, and then the next point of
    the new grid counts. More than one interval late: the missed points are skipped, the newest of them is due at once.
    """
    start = now if last is None else last
    step = (start / every) - place
    k = math.ceil(step - _ON_GRID) if last is None else math.floor(step + _ON_GRID) + 1
    late = now / every - place - k
    skipped = int(late) if late > 1 else 0
    grid = (place + k + skipped) * every
    return Due(grid + rng.uniform(-JITTER, JITTER) * every, grid, skipped)


def overlap(wait: Seconds, every: Seconds) -> int:
    """How many rounds of one line may be in flight: all that `wait` can hold at this interval, and one for the jitter."""
    least, most = _OVERLAP
    return max(least, min(most, math.ceil(wait / every) + 1))


def stretch(rates: Iterable[float], cap: float) -> float:
    """The factor, 1 or more, that brings the sum of `rates` (attempts a second) down to `cap`, the same for all lines."""
    return max(1.0, math.fsum(rates) / cap)
