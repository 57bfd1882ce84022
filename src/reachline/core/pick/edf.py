"""Earliest deadline first: the schedule behind weighted round robin.

After each pick an endpoint's next deadline is 1/weight later; the earliest is picked, and of equal ones the one that waits longer.
Doubles, in Envoy's order of operations, because their rounding decides ties (three thirds): its cycles are ours.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from itertools import accumulate
from random import Random
from typing import Final, Generic, TypeVar

__all__ = ["Deadlines", "Entry", "heap_after", "turns"]

T = TypeVar("T")

Entry = tuple[float, int, int]
"""Deadline, order of insertion (equal deadlines: first in, first out), and place in the list of weights."""

_PICKS_MOST: Final = (2**32 - 1) // 10
"""Envoy's own limit of picks that may lie before a start."""
_LIFT: Final = 1e-13
"""Added to each weight at the start, as in Envoy: keeps one weight's multiples of another from rounding to either side."""


def heap_after(weights: Sequence[float], picks: int) -> tuple[list[Entry], int]:
    """The schedule's heap as it stands after `picks` picks, and the next order of insertion; weights are above 0.

    In the time of one pick for each endpoint, however many picks lie before.
    """
    picks %= _PICKS_MOST
    lifted = [weight + _LIFT for weight in weights]
    total = 0.0
    for weight in lifted:
        total += weight  # one by one: `sum` rounds otherwise from Python 3.12 on
    done, heap = 0, []
    for place, weight in enumerate(lifted):
        early = int(weight * picks / total)
        if early > 0 and early / weight >= picks / total:
            early -= 1
        heap.append(((early + 1) / weight, place, place))
        done += early
    heapify(heap)
    order = len(heap)
    for _ in range(picks - done if heap else 0):
        deadline, _, place = heap[0]
        heapreplace(heap, (deadline + 1.0 / weights[place], order, place))
        order += 1
    return heap, order


def turns(weights: Sequence[float], picks: int, count: int) -> list[int]:
    """Places of the `count` picks that follow `picks` earlier ones."""
    heap, start = heap_after(weights, picks)
    steps = [1.0 / weight for weight in weights]
    found = []
    for order in range(start, start + count):
        deadline, _, place = heap[0]
        heapreplace(heap, (deadline + steps[place], order, place))
        found.append(place)
    return found


class Deadlines(Generic[T]):
    """The schedule kept as it runs, for weights without a short cycle, or that change from pick to pick.

    One thread at a time holds the heap, by taking it out of its box; whoever finds the box empty does not wait but draws by
    chance with the same weights. So a pick never waits, and a fork in the middle of another thread's pick harms nothing.
    """

    __slots__ = ("_box", "_order", "_steps", "_sums", "_weigh", "items")

    def __init__(
        self,
        items: Sequence[T],
        weights: Sequence[float],
        *,
        picks: int = 0,
        weigh: Callable[[int], float] | None = None,
    ) -> None:
        """`weigh` says a place's weight at its pick, where it is not always the same; `weights` are those at the start."""
        heap, self._order = heap_after(weights, picks)
        self.items: Final = tuple(items)
        self._box: Final = [heap]
        self._steps: Final = [1.0 / weight for weight in weights]
        self._sums: Final = list(accumulate(map(float, weights)))
        self._weigh: Final = weigh

    def pick(self, rng: Random, key: int | None = None, attempt: int = 0) -> T | None:  # noqa: ARG002 - a turn needs no key
        """The item whose deadline is earliest, or None without items."""
        if not self.items:
            return None
        try:
            heap = self._box.pop()
        except IndexError:
            return self.items[min(bisect(self._sums, rng.random() * self._sums[-1]), len(self.items) - 1)]
        # Not put back where a signal interrupts this: half a step might lose an endpoint, and chance loses none.
        deadline, _, place = heap[0]
        step = self._steps[place] if self._weigh is None else 1.0 / self._weigh(place)
        heapreplace(heap, (deadline + step, self._order, place))
        self._order += 1
        self._box.append(heap)
        return self.items[place]
