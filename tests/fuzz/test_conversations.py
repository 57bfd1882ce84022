"""Ten thousand answers of a peer gone mad for every conversation, and one that never ends."""

from __future__ import annotations

import tracemalloc

import pytest
from tests.fuzz.probe import peak
from tests.fuzz.targets import TARGETS, conversations
from tests.fuzz.test_parsers import hold

from reachline.abc import Talk

ENDLESS = 4 << 20
"""Bytes of the same piece."""


@pytest.mark.parametrize("name", sorted(conversations()))
def test_a_conversation_ends_in_a_verdict_in_bounded_time_and_keeps_nothing(name: str) -> None:
    hold(TARGETS[name])


@pytest.mark.parametrize("name", sorted(conversations()))
def test_a_peer_that_never_ends_fills_no_memory(name: str) -> None:
    """Whatever it repeats: the talk ends, or holds no more than at first."""
    begin, answers, _ = conversations()[name]
    for answer in (*answers, *(each[: 1 + len(each) // 2] for each in answers), b"\x00", b"a"):
        piece = answer * (1 + 4096 // len(answer))
        peak(TARGETS[name], b"\x00\x00" + piece)
        talk = begin.talk()
        talk.begin()
        first = growth_of(talk, piece, times=16)

        assert growth_of(talk, piece, times=ENDLESS // len(piece)) <= max(ENDLESS // 4, 2 * first)


def growth_of(talk: Talk, piece: bytes, *, times: int) -> int:
    """Bytes that the talk holds more after hearing `piece` so many times; it may end it."""
    tracemalloc.start()
    try:
        for _ in range(times):
            if talk.received(piece) is None:
                break
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
