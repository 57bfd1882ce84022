"""A maglev table that takes another list of endpoints without being filled anew, slot by slot what a filling would give.

Slots are taken in turn, each by the first of its taker's order that is free. So a take that comes in pushes out a later one, which
goes on to the next in its own order; and a slot that is left falls to the first of the later takes that once asked for it in vain.
Both go on until nobody is pushed out and no slot is free: some hundred takes, not all of the table.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from reachline.core.pick.apart import alike, apart, differing
from reachline.core.pick.filling import FREE, NOBODY, Filled, few_of
from reachline.core.pick.ranks import Ranks
from reachline.core.pick.turns import last_takes

__all__ = ["TAKES_MOST", "Mending"]

TAKES_MOST: Final = 32
"""Takes that come in or go at once up to which it is less work than a filling."""
_LAST_MOST: Final = 2_048
"""Takes at the end of a table that are known in their order: most of what happens is there, and who comes later is soon gone through."""
_SEARCHES_MOST: Final = 12
"""Searches through all endpoints, a millisecond of ten thousand, of one change beyond which a table is worth filling again…"""
_FAR_MOST: Final = 8
"""…as it is once so many times more than at the beginning went far, whom every search goes through."""
_UNKNOWN: Final = 0
"""The round of an asker that is not known any more: before any other."""


class _Take(NamedTuple):
    """One turn; they come in this order."""

    turn: int
    """The round…"""
    key: str
    """…in which takers come by key."""
    who: int
    number: int
    """Of the taker's own takes: 0, 1, …"""


class Mending:
    """Written by the one that builds pickers. Of no more use where that one is stopped in the middle of `moved`, or it says False."""

    def __init__(
        self, keys: Sequence[str], starts: Sequence[tuple[int, int]], rounds: Sequence[tuple[int, ...]], found: Filled
    ) -> None:
        """Of a table `recorded`; by place, in the order of keys, `starts` as there and `rounds` of `recordable`."""
        self.owners: Final = array("i", found.owners)
        """By slot, the number of its endpoint…"""
        self.order: Final = list(range(len(keys)))
        """…and these numbers in the order of keys. Who goes keeps its own, without a take."""
        self._size: Final = len(found.owners)
        self._few: Final = few_of(self._size)
        self._present = list(keys)
        self._keys: Final = list(keys)
        self._starts: Final = list(starts)
        self._rounds: Final = list(rounds)
        self._ranks: Final = Ranks(starts, self._size)
        self._turns, self._askers, self._asked, self._taken = found.turns, found.askers, found.asked, found.taken
        self._far: Final = dict.fromkeys(found.far)
        for who, taken in enumerate(self._taken):
            self._ranks.ends(who, taken[-1] if taken else None)
        self._last: list[tuple[int, str]] = []
        """The last takes, by round and key, in their order…"""
        self._last_who: list[int] = []
        """…and whose they are."""
        self._due: list[_Take] = []
        self._free: dict[int, None] = {}
        self._called: dict[_Take, list[int]] = {}
        """Free slots, by the take that is to look at them."""
        self._searches = 0

    def moved(
        self,
        keys: Sequence[str],
        starts: Sequence[tuple[int, int]],
        rounds: Sequence[tuple[int, ...]],
        most: int = TAKES_MOST,
    ) -> bool:
        """Take the endpoints of now, as above, where no more than so many takes come in or go; False where filling a table is less work."""
        if self._is_worn():
            return False
        other = differing(self._present, keys, most)
        if other is None:
            return False
        moves: list[tuple[int, tuple[int, ...]]] = [(self._dismiss(key), ()) for key in other[0]]
        for key in other[1]:
            self._admit(key, starts[bisect_left(keys, key)])
        known = self._rounds
        for who, now in zip(self.order, rounds, strict=True):
            if known[who] is not now and known[who] != now:
                moves.append((who, now))
        if sum(apart(known[who], now) for who, now in moves) > most:
            return False
        left = [each for who, now in moves for each in self._moved(who, now)]
        last = last_takes(self.order, rounds, min(_LAST_MOST, self._size // 2))
        self._last, self._last_who = [(turn, self._keys[who]) for turn, who in last], [who for _, who in last]
        if len(last) < self._few:
            return False
        for slot, take in left:
            self._call(slot, take)
        while self._due:
            self._settle(heappop(self._due))
        return True

    def _is_worn(self) -> bool:
        """Whether too much of what was known is not any more."""
        many, self._searches = self._searches > _SEARCHES_MOST, 0
        return many or len(self._far) > _FAR_MOST * self._few or len(self._keys) > 2 * len(self._present)

    def _dismiss(self, key: str) -> int:
        """The number of one that went."""
        at = bisect_left(self._present, key)
        del self._present[at]
        return self.order.pop(at)

    def _admit(self, key: str, start: tuple[int, int]) -> None:
        """One that came has a number."""
        at = bisect_left(self._present, key)
        self._present.insert(at, key)
        self.order.insert(at, len(self._keys))
        self._keys.append(key)
        self._starts.append(start)
        self._rounds.append(())
        self._taken.append([])
        self._ranks.add(start)

    def _moved(self, who: int, now: tuple[int, ...]) -> list[tuple[int, _Take]]:
        """Have its takes come in other rounds; the slots that it leaves, and by which takes."""
        key, before, taken = self._keys[who], self._rounds[who], self._taken[who]
        same = alike(before, now)
        left = [(slot, _Take(before[at], key, who, at)) for at, slot in enumerate(taken[same:], same)]
        for slot, _ in left:
            self._release(slot)
        del taken[same:]
        self._ranks.ends(who, taken[-1] if taken else None)
        self._rounds[who] = now
        for at, turn in enumerate(now[same:], same):
            heappush(self._due, _Take(turn, key, who, at))
        return left

    def _settle(self, take: _Take) -> None:
        """Let a take have the best slot that is there for it now; whom it pushes out is due, as is who waits for what it leaves."""
        turn, _, who, number = take
        taken = self._taken[who]
        here = taken[number] if number < len(taken) else None
        holds = here is not None and self._holds(here, who, turn)
        slot = None if here is None else self._better(who, here)
        if slot is None and not holds:
            slot = self._onward(take, here)
        if slot is not None:
            self._take(take, slot)
            if holds and here is not None:
                self._release(here)
                self._call(here, take)
        for each in self._called.pop(take, ()):
            if each in self._free:
                self._call(each, take)

    def _holds(self, slot: int, who: int, turn: int) -> bool:
        return self.owners[slot] == who and self._turns[slot] == turn

    def _take(self, take: _Take, slot: int) -> None:
        turn, _, who, number = take
        if slot in self._free:
            del self._free[slot]
            # Also he who left it may want it again, whom nobody wrote down: looked for once somebody wants to know.
            self._asked[slot] = _UNKNOWN
        else:
            other, then = self.owners[slot], self._turns[slot]
            heappush(self._due, _Take(then, self._keys[other], other, self._rounds[other].index(then)))
            self._askers[slot], self._asked[slot] = other, then
        self.owners[slot], self._turns[slot] = who, turn
        self._taken[who][number : number + 1] = [slot]
        self._ranks.ends(who, self._taken[who][-1])

    def _release(self, slot: int) -> None:
        self.owners[slot], self._turns[slot], self._free[slot] = NOBODY, FREE, None

    def _call(self, slot: int, left: _Take) -> None:
        """The first take after `left` that would rather have this free slot is due to look at it."""
        heirs = [heir for who in self._wanting(slot, left) if (heir := self._wants(who, slot, left)) is not None]
        if heirs:
            heappush(self._due, heir := min(heirs))
            self._called.setdefault(heir, []).append(slot)

    def _wanting(self, slot: int, left: _Take) -> list[int]:
        """Among whom the first is that asks for a slot after `left`."""
        if self._last and self._last[0] <= left[:2]:
            return self._ranks.wanting(slot, self._last_who[bisect_right(self._last, left[:2]) :])
        asker, turn = self._askers[slot], self._asked[slot]
        if turn == FREE:
            return self._ranks.wanting(slot, (left.who, *self._far))
        found = None if turn == _UNKNOWN else self._wants(asker, slot, left)
        if found is not None and found.turn == turn:
            return self._ranks.wanting(slot, (asker, left.who, *self._far))
        self._searches += 1
        return self._ranks.wanting(slot)

    def _wants(self, who: int, slot: int, left: _Take) -> _Take | None:
        """The taker's first take after `left` that would rather have this slot than its own."""
        rank, key, of = self._ranks.of(who, slot), self._keys[who], self._ranks.of
        for number, (own, turn) in enumerate(zip(self._taken[who], self._rounds[who], strict=False)):
            if (turn, key) > (left.turn, left.key) and of(who, own) > rank:
                return _Take(turn, key, who, number)
        return None

    def _better(self, who: int, here: int) -> int | None:
        """The best free slot that comes before this one in the taker's order."""
        if not self._free:
            return None
        slot = min(self._free, key=lambda each: self._ranks.of(who, each))
        return slot if self._ranks.of(who, slot) < self._ranks.of(who, here) else None

    def _onward(self, take: _Take, here: int | None) -> int:
        """The next slot of the taker's order that is free or has a later take, from the one it lost on, or its last one."""
        turn, key, who, number = take
        start, skip = self._starts[who]
        after = here if here is not None else self._taken[who][-1] if number else None
        slot = start if after is None else (after + skip) % self._size
        if self._few and self._last[-self._few] <= take[:2]:
            self._far[who] = None
            return self._ranks.nearest(who, slot, self._later(take))
        turns, asked, rest = self._turns, self._asked, self._size - skip
        while turns[slot] < turn or (turns[slot] == turn and self._keys[self.owners[slot]] <= key):
            if turn < asked[slot] or (turn == asked[slot] and key < self._keys[self._askers[slot]]):
                self._askers[slot], asked[slot] = who, turn
            slot = slot + skip if slot < rest else slot - rest
        return slot

    def _later(self, take: _Take) -> list[int]:
        """Slots that are free, or have later takes than this one of the last."""
        found = list(self._free)
        at = bisect_right(self._last, take[:2])
        for (turn, _), who in zip(self._last[at:], self._last_who[at:], strict=True):
            number, taken = self._rounds[who].index(turn), self._taken[who]
            if number < len(taken) and self._holds(taken[number], who, turn):
                found.append(taken[number])
        return found
