"""When a line is probed next. Pure: the driver brings the time and the chance, and holds what is due.

Rounds lie on an absolute grid, phase + k * interval, the phase drawn from the line's id: lines of one plan never start
together, two agents with one plan do not drift, and a late round does not push the next one. Each start is moved a little
around its grid point, so that no periodic disturbance of the line stays hidden between two probes.

How often depends on what is known: a line in doubt is asked at its suspect interval, one that is long dead half as often as
otherwise, and all stretch alike where their sum is above the agent's rate: whatever lines are like, the total stays.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

from reachline.model import Seconds

__all__ = [
    "DEAD",
    "DOUBT",
    "FASTER",
    "JITTER",
    "SLOWER",
    "Due",
    "gap",
    "interval",
    "next_due",
    "overlap",
    "phase",
    "stretch",
]

JITTER: Final = 0.1
"""Share of the interval by which a start is moved, either way."""
DOUBT: Final[Seconds] = 60.0
"""After a lost packet, or a turn of our own opinion, a line is in doubt: long enough for 25 rounds at the suspect interval, which
tell a single loss from one of a few percent."""
FASTER: Final = 4
"""Times as often in doubt, at most: a kind that is asked seldom for what it costs the other side stays seldom."""
DEAD: Final[Seconds] = 600.0
"""Without one round that got through: whoever mends it now does not wait for five seconds more, and nobody calls it anyway."""
SLOWER: Final = 2
"""Times the interval of a line that is long dead."""
_SPREAD: Final = 0.1
"""Share of the interval that one round's attempts are spread over: a disturbance of milliseconds must not hit all of them."""
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


def interval(
    usual: Seconds, suspect: Seconds, *, failing: bool, doubted: bool = False, dead: bool = False, factor: float = 1.0
) -> Seconds:
    """How often: the suspect interval while the line is failing (the center holds it for not healthy, or its last round did not
    get through), that or `FASTER` while it is in `DOUBT`, `SLOWER` once it is long `DEAD`.

    `factor` is what `stretch` says; it slows all lines of an agent alike.
    """
    every = min(usual, suspect) if failing else usual
    if doubted:
        every = min(every, max(suspect, usual / FASTER))
    return factor * (SLOWER * every if dead else every)


def gap(every: Seconds, burst: int) -> Seconds:
    """From one attempt of a round to its next."""
    return _SPREAD * every / burst


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
