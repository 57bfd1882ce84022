"""Where attempts are kept: 6 bytes each in arrays that all windows of a process share, newest over oldest, aged by ticks.

Knows what an attempt is made of, not what it means.
"""

from __future__ import annotations

import math
from array import array
from typing import Final

from reachline.model import Seconds

__all__ = ["BLURRED", "Columns", "Ring"]

BLURRED: Final = -math.inf
"""Stands for the RTT of an attempt that was answered but not measured (a retransmitted SYN): sorts before all others."""
_BLOCK: Final = 32
"""Rings a block holds: growing copies nothing, and one ring alone costs 45 kB."""
_TICKS: Final = 400
"""To an age: 0.3 s of 120 s. The distance of two attempts fits a byte up to 0.64 ages…"""
_LONGEST: Final = 255
"""…and after a longer silence the old attempts are dropped at once instead of at their age."""
_USUAL: Final = b"\x01"
"""One packet sent, none lost."""
_NIBBLE: Final = 15
"""Packets of an attempt at most: the kernel gives a connect up after 6 retransmissions."""


class _Block:
    """The columns of some rings of one size; written by them."""

    __slots__ = ("code", "gap", "rtt")

    def __init__(self, attempts: int) -> None:
        self.rtt = array("f", bytes(4 * attempts))
        """Microseconds (exact up to 16 s); inf: never answered; BLURRED: answered, not measured."""
        self.code = bytearray(attempts)
        """Column of `model.Counts` and, above it, the class of the status code."""
        self.gap = bytearray(attempts)
        """Ticks since the attempt before."""


class Columns:
    """Storage that all rings of a process share: no object for any attempt. Written by its rings' owner."""

    __slots__ = ("_free", "_rates")

    def __init__(self) -> None:
        self._free: dict[int, list[tuple[_Block, int]]] = {}
        self._rates: dict[Seconds, tuple[Seconds, float]] = {}

    def rate(self, age: Seconds) -> tuple[Seconds, float]:
        """The age and its ticks a second, the same objects for all rings of that age."""
        return self._rates.setdefault(age, (age, _TICKS / age))

    def take(self, size: int) -> tuple[_Block, int]:
        """Room for `size` attempts: a block, and where in it."""
        free = self._free.setdefault(size, [])
        if not free:
            block = _Block(size * _BLOCK)
            free.extend((block, at) for at in range(size * (_BLOCK - 1), -1, -size))
        return free.pop()

    def give_back(self, block: _Block, at: int, size: int) -> None:
        """The room may be used by another ring of that size."""
        self._free[size].append((block, at))


class Ring:
    """The newest `size` attempts, none older than `age` once `age_out` was told the time. One writer."""

    __slots__ = (
        "_block",
        "_columns",
        "_end",
        "_head",
        "_newest",
        "_oldest",
        "_packets",
        "_rate",
        "age",
        "count",
        "size",
    )

    def __init__(self, columns: Columns, *, size: int, age: Seconds) -> None:
        self._columns, self.size = columns, size
        self.age, self._rate = columns.rate(age)
        self._packets: bytearray | None = None
        """By slot: sent, and above it lost. None: one sent and none lost by each attempt, as on nearly all lines."""
        self._block, self._head = columns.take(size)
        """Where in the block the next attempt goes…"""
        self._end = self._head + size
        """…and where its part of the block ends."""
        self._newest = self._oldest = 0
        self.count = 0

    def append(self, now: Seconds, rtt: float, code: int, sent: int, lost: int) -> None:
        """One attempt that ended at `now`, with its packets; the oldest makes room for it."""
        tick, gap = int(now * self._rate), 0
        if self.count:
            # A result that is handed over a little late never moves the clock back.
            if tick > self._newest:
                gap = tick - self._newest
                if gap > _LONGEST or self._oldest < tick - _TICKS:
                    gap = self._make_room(tick, gap)
                self._newest = tick
        else:
            self._newest = self._oldest = tick
        block, slot = self._block, self._head
        block.rtt[slot], block.code[slot] = rtt, code
        if sent != 1 or lost or self._packets is not None:
            self._note(slot, min(sent, _NIBBLE) | min(lost, _NIBBLE) << 4)
        after = slot + 1 if slot + 1 < self._end else self._end - self.size
        if self.count < self.size:
            self.count += 1
        elif after != slot:
            self._oldest += block.gap[after]
        else:
            self._oldest = self._newest
        block.gap[slot] = gap
        self._head = after

    def _note(self, slot: int, packets: int) -> None:
        if self._packets is None:
            self._packets = bytearray(_USUAL * self.size)
        self._packets[slot - self._end + self.size] = packets

    def _make_room(self, tick: int, gap: int) -> int:
        """Drop what is too old beside an attempt of `tick`; the gap it has then to the one before."""
        self._drop_before(tick - _TICKS)
        if gap > _LONGEST:
            self.count = 0
        if not self.count:
            self._oldest = tick
            return 0
        return gap

    def age_out(self, now: Seconds) -> None:
        """Drop what is older than `age` at `now`."""
        self._drop_before(int(now * self._rate) - _TICKS)

    def drop_since(self, since: Seconds) -> None:
        """Take back the attempts that ended after `since`."""
        limit = int(since * self._rate)
        while self.count and self._newest > limit:
            self._head = self._back(1)
            self._newest -= self._block.gap[self._head]
            self.count -= 1

    def keep(self, newest: int) -> None:
        """Drop all but the newest attempts."""
        while self.count > newest:
            self._drop_oldest()

    def close(self) -> None:
        """The room goes back; the ring is not used again."""
        self._columns.give_back(self._block, self._end - self.size, self.size)
        self.count = 0
        self._packets = None

    def span(self, now: Seconds) -> Seconds:
        """The age of the oldest attempt, to a tick; 0 while there is none."""
        return max(0.0, now - self._oldest * self.age / _TICKS) if self.count else 0.0

    def rtts(self) -> array[float]:
        """Oldest first."""
        start, column = self._back(self.count), self._block.rtt
        if start < self._head or not self.count:
            return column[start : self._head]
        return column[start : self._end] + column[self._end - self.size : self._head]

    def codes(self) -> bytearray:
        """Oldest first."""
        return self._part(self._block.code, self._end)

    def sent_lost(self) -> tuple[int, int]:
        """Packets of all attempts."""
        if self._packets is None:
            return self.count, 0
        packets = self._part(self._packets, self.size)
        sent = lost = 0
        for value in set(packets):
            n = packets.count(value)
            sent += n * (value & _NIBBLE)
            lost += n * (value >> 4)
        return sent, lost

    def lost_unseen(self) -> int:
        """Packets lost by attempts that were answered all the same."""
        if self._packets is None:
            return 0
        pairs = zip(self._part(self._packets, self.size), self.rtts(), strict=True)
        return sum(packets >> 4 for packets, rtt in pairs if rtt != math.inf)

    def _part(self, column: bytearray, end: int) -> bytearray:
        """Oldest first, of a column in which our slots end at `end`."""
        head = self._head - self._end + end
        start = self._back(self.count) - self._end + end
        if start < head or not self.count:
            return column[start:head]
        return column[start:end] + column[end - self.size : head]

    def _back(self, attempts: int) -> int:
        """The slot so many attempts before the next one's."""
        slot = self._head - attempts
        return slot if slot >= self._end - self.size else slot + self.size

    def _drop_before(self, limit: int) -> None:
        while self.count and self._oldest < limit:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.count -= 1
        if self.count:
            self._oldest += self._block.gap[self._back(self.count)]
