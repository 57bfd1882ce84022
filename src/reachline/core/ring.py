"""Where attempts are kept: 7 bytes each in arrays that all windows of a process share, newest over oldest, aged by ticks.

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
_NIBBLE: Final = 15
"""Packets of an attempt at most: the kernel gives a connect up after 6 retransmissions."""


class _Block:
    """The columns of some rings of one size; written by them."""

    __slots__ = ("code", "gap", "packets", "rtt")

    def __init__(self, attempts: int) -> None:
        self.rtt = array("f", bytes(4 * attempts))
        """Microseconds (exact up to 16 s); inf: never answered; BLURRED: answered, not measured."""
        self.code = bytearray(attempts)
        """Column of `model.Counts` and, above it, the class of the status code."""
        self.packets = bytearray(attempts)
        """Sent, and above it lost."""
        self.gap = bytearray(attempts)
        """Ticks since the attempt before."""


class Columns:
    """Storage that all rings of a process share: no object for any attempt. Written by its rings' owner."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: dict[int, list[tuple[_Block, int]]] = {}

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

    __slots__ = ("_at", "_block", "_columns", "_head", "_newest", "_oldest", "age", "count", "size")

    def __init__(self, columns: Columns, *, size: int, age: Seconds) -> None:
        self._columns, self.size, self.age = columns, size, age
        self._block, self._at = columns.take(size)
        self._head = self._newest = self._oldest = 0
        self.count = 0

    def append(self, now: Seconds, rtt: float, code: int, sent: int, lost: int) -> None:
        """One attempt that ended at `now`, with its packets; the oldest makes room for it."""
        tick, count, size, head = round(now * _TICKS / self.age), self.count, self.size, self._head
        # A result that is handed over a little late never moves the clock back.
        gap = tick - self._newest if tick > self._newest else 0
        if count and self._oldest < tick - _TICKS:
            self._drop_before(tick - _TICKS)
            count = self.count
        if not count or gap > _LONGEST:
            count = gap = 0
            self._oldest = self._newest = tick
        block, slot = self._block, self._at + head
        if count == size:
            self._oldest += block.gap[slot + 1 if head + 1 < size else self._at] if size > 1 else gap
        else:
            count += 1
        block.rtt[slot], block.code[slot], block.gap[slot] = rtt, code, gap
        block.packets[slot] = 1 if sent == 1 and not lost else min(sent, _NIBBLE) | min(lost, _NIBBLE) << 4
        self._newest += gap
        self._head = head + 1 if head + 1 < size else 0
        self.count = count

    def age_out(self, now: Seconds) -> None:
        """Drop what is older than `age` at `now`."""
        self._drop_before(self._tick(now) - _TICKS)

    def drop_since(self, since: Seconds) -> None:
        """Take back the attempts that ended after `since`."""
        limit = self._tick(since)
        while self.count and self._newest > limit:
            self._head = (self._head - 1) % self.size
            self._newest -= self._block.gap[self._at + self._head]
            self.count -= 1

    def keep(self, newest: int) -> None:
        """Drop all but the newest attempts."""
        while self.count > newest:
            self._drop_oldest()

    def close(self) -> None:
        """The room goes back; the ring is not used again."""
        self._columns.give_back(self._block, self._at, self.size)
        self.count = 0

    def span(self, now: Seconds) -> Seconds:
        """The age of the oldest attempt, to a tick; 0 while there is none."""
        return max(0.0, now - self._oldest * self.age / _TICKS) if self.count else 0.0

    def rtts(self) -> array[float]:
        """Oldest first."""
        start, column = self._head - self.count, self._block.rtt
        if start >= 0:
            return column[self._at + start : self._at + self._head]
        return column[self._at + self.size + start : self._at + self.size] + column[self._at : self._at + self._head]

    def codes(self) -> bytearray:
        """Oldest first."""
        return self._part(self._block.code)

    def sent_lost(self) -> tuple[int, int]:
        """Packets of all attempts."""
        packets = self._part(self._block.packets)
        sent = lost = 0
        for value in set(packets):
            n = packets.count(value)
            sent += n * (value & _NIBBLE)
            lost += n * (value >> 4)
        return sent, lost

    def lost_unseen(self) -> int:
        """Packets lost by attempts that were answered all the same."""
        pairs = zip(self._part(self._block.packets), self.rtts(), strict=True)
        return sum(packets >> 4 for packets, rtt in pairs if rtt != math.inf)

    def _part(self, column: bytearray) -> bytearray:
        start = self._head - self.count
        if start >= 0:
            return column[self._at + start : self._at + self._head]
        return column[self._at + self.size + start : self._at + self.size] + column[self._at : self._at + self._head]

    def _tick(self, now: Seconds) -> int:
        return round(now * _TICKS / self.age)

    def _drop_before(self, limit: int) -> None:
        while self.count and self._oldest < limit:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.count -= 1
        if self.count:
            self._oldest += self._block.gap[self._at + (self._head - self.count) % self.size]
