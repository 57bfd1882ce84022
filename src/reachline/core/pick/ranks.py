"""Where slots of a maglev table stand in the orders of its takers: asked of one, of a few, or of all of ten thousand in a millisecond."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

__all__ = ["Ranks"]


class Ranks:
    """By the numbers of takers; a rank is 0 for the first slot of an order. Written by the `Mending` it belongs to."""

    __slots__ = ("_last", "_plus", "_size", "_times")

    def __init__(self, starts: Sequence[tuple[int, int]], size: int) -> None:
        """`starts` are offset and skip, `size` is a prime."""
        self._size: Final = size
        # A slot's rank is slot x times + plus.
        self._times: Final = _inverses([skip for _, skip in starts], size)
        self._plus: Final = [-offset * times % size for (offset, _), times in zip(starts, self._times, strict=True)]
        self._last: Final = [0] * len(starts)
        """The rank of a taker's last slot."""

    def add(self, start: tuple[int, int]) -> None:
        """One more taker, who has no slot."""
        times = pow(start[1], -1, self._size)
        self._times.append(times)
        self._plus.append(-start[0] * times % self._size)
        self._last.append(0)

    def ends(self, who: int, slot: int | None) -> None:
        """This is a taker's last slot; None: it has none."""
        self._last[who] = 0 if slot is None else self.of(who, slot)

    def of(self, who: int, slot: int) -> int:
        """A slot's rank."""
        return (slot * self._times[who] + self._plus[who]) % self._size

    def wanting(self, slot: int, among: Iterable[int] | None = None) -> list[int]:
        """Of these, or of all, whose last slot comes after this one."""
        size = self._size
        if among is None:
            rows = zip(range(len(self._last)), self._times, self._plus, self._last, strict=True)
            return [who for who, times, plus, last in rows if (slot * times + plus) % size < last]
        every, more, lasts = self._times, self._plus, self._last
        return [who for who in among if (slot * every[who] + more[who]) % size < lasts[who]]

    def nearest(self, who: int, start: int, slots: Iterable[int]) -> int:
        """The first of these slots in the taker's order from `start` on, and around."""
        times, size = self._times[who], self._size
        return min(slots, key=lambda slot: (slot - start) * times % size)


def _inverses(numbers: Sequence[int], prime: int) -> list[int]:
    """What each number is to be multiplied by for a rest of 1: all by one inversion, which is dear."""
    products = list(accumulate(numbers, lambda one, other: one * other % prime, initial=1))
    inverse, found = pow(products.pop(), -1, prime), list[int]()
    for number, before in zip(reversed(numbers), reversed(products), strict=True):
        found.append(inverse * before % prime)
        inverse = inverse * number % prime
    return found[::-1]
