"""Inputs out of inputs: bytes flipped, cut, repeated and spliced, by a seeded generator, so that every run is the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

__all__ = ["Mutator"]

_MOST: Final = 4 << 10
"""Bytes an input grows to by mutation; longer ones stand in the corpus, or are made by whoever tests for length."""
_EDGES: Final = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\x00\x00", b"\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff")
"""Numbers at the ends of their ranges."""
_DIGITS: Final = (b"0", b"-1", b"9" * 20, b"1e999", b"0x10", b"4294967296", b"18446744073709551616")


class Mutator:
    """One generator of inputs. `learn` makes an input a parent of those to come."""

    def __init__(self, seeds: Sequence[bytes], tokens: Sequence[bytes], rng: Random) -> None:
        self._parents = list(seeds)
        self._tokens = (*tokens, *_EDGES, *_DIGITS)
        self._rng = rng
        self._ways: tuple[Callable[[bytearray], None], ...] = (
            self._flip, self._set, self._insert, self._cut, self._repeat, self._splice, self._swap, self._end,
        )  # fmt: skip

    def learn(self, data: bytes) -> None:
        """It led somewhere new."""
        self._parents.append(data)

    def next(self) -> bytes:
        """One more input: a parent changed in one to six places."""
        rng = self._rng
        data = bytearray(rng.choice(self._parents))
        for _ in range(rng.randint(1, 6)):
            rng.choice(self._ways)(data)
        return bytes(data[:_MOST])

    def _at(self, data: bytearray) -> int:
        return int(self._rng.random() * len(data))

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] ^= 1 << self._rng.randrange(8)

    def _set(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] = self._rng.randrange(256)

    def _insert(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = self._rng.choice(self._tokens)

    def _cut(self, data: bytearray) -> None:
        at = self._at(data)
        del data[at : at + self._rng.randint(1, 1 + len(data) // 4)]

    def _repeat(self, data: bytearray) -> None:
        at = self._at(data)
        piece = data[at : at + self._rng.randint(1, 32)]
        data[at:at] = piece * self._rng.choice((1, 1, 2, 8, 40))

    def _splice(self, data: bytearray) -> None:
        other = self._rng.choice(self._parents)
        begin, at = int(self._rng.random() * len(other)), self._at(data)
        data[at : at + self._rng.randrange(16)] = other[begin : begin + self._rng.randint(1, 64)]

    def _swap(self, data: bytearray) -> None:
        """A piece in the place of another of the same length: sizes stay, meanings move."""
        if len(data) > 8:
            size = self._rng.randint(1, 4)
            here, there = self._at(data), self._at(data)
            data[here : here + size], data[there : there + size] = data[there : there + size], data[here : here + size]

    def _end(self, data: bytearray) -> None:
        del data[self._at(data) :]
