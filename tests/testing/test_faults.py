"""The fault proxy does exactly what its knobs say: as pure decisions, and on real sockets."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from reachline.testing.faults import CALM, FaultProxy, Knobs, Verdict, fate
from reachline.testing.serving import serving

DEADLINE = 10.0


@pytest.mark.parametrize("verdict", [Verdict.VANISH, Verdict.RESET])
def test_a_share_of_requests_meets_the_fate_that_was_asked_for(verdict: Verdict) -> None:
    rng = Random(7)
    knobs = Knobs(unanswered=0.3) if verdict is Verdict.VANISH else Knobs(reset=0.3)

    met = sum(fate(knobs, rng).verdict is verdict for _ in range(10_000))

    assert 2_860 <= met <= 3_140  # 3 000 ± 3 sigma (46)


def test_jitter_is_spread_evenly_above_the_delay() -> None:
    rng = Random(7)

    held = [fate(Knobs(delay=0.1, jitter=0.2), rng).held for _ in range(2_000)]

    assert 0.1 <= min(held) < 0.101
    assert 0.299 < max(held) <= 0.3
    assert statistics.fmean(held) == pytest.approx(0.2, abs=0.005)


def test_a_knob_turned_does_not_shift_the_luck_of_later_requests() -> None:
    one, other = Random(3), Random(3)

    fate(CALM, one)
    fate(Knobs(jitter=1.0, unanswered=1.0), other)

    assert one.random() == other.random()


@pytest.mark.parametrize("knobs", [{"delay": -1.0}, {"jitter": 61.0}, {"unanswered": 1.1}, {"reset": -0.1}])
def test_a_knob_out_of_range_is_refused_by_name(knobs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(knobs))):
        Knobs(**knobs)


def test_a_calm_proxy_carries_bytes_both_ways() -> None:
    async def story(proxy: FaultProxy) -> None:
        assert await ask(proxy, b"hello") == b"HELLO"

    play(story)


def test_delay_holds_a_request_for_at_least_that_long() -> None:
    async def story(proxy: FaultProxy) -> None:
        await proxy.turn(Knobs(delay=0.15))
        clock = asyncio.get_running_loop().time
        start = clock()

        await ask(proxy, b"x")

        assert clock() - start >= 0.15

    play(story)


def test_an_unanswered_request_leaves_its_connection_open_and_silent() -> None:
    async def story(proxy: FaultProxy) -> None:
        await proxy.turn(Knobs(unanswered=1.0))
        reader, writer = await asyncio.open_connection(*proxy.address)
        writer.write(b"anyone?")

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(100), 0.2)
        assert not reader.at_eof()

        await proxy.turn(CALM)
        writer.write(b"and now?")
        assert await reader.read(100) == b"AND NOW?"
        await gone(writer)

    play(story)


def test_a_reset_is_a_real_reset() -> None:
    async def story(proxy: FaultProxy) -> None:
        await proxy.turn(Knobs(reset=1.0))

        with pytest.raises(ConnectionResetError):
            await ask(proxy, b"x")

    play(story)


def test_refusing_resets_old_connections_refuses_new_ones_and_heals_on_the_same_port() -> None:
    async def story(proxy: FaultProxy) -> None:
        old, writer = await asyncio.open_connection(*proxy.address)
        writer.write(b"a")
        assert await old.read(1) == b"A"

        await proxy.turn(Knobs(refuse=True))
        with pytest.raises(ConnectionResetError):
            await old.read(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*proxy.address)

        await proxy.turn(CALM)
        assert await ask(proxy, b"back") == b"BACK"
        await gone(writer)

    play(story)


def test_a_service_that_is_gone_resets_the_client_and_leaves_the_proxy_alive() -> None:
    async def story(proxy: FaultProxy) -> None:
        for _ in range(2):
            with pytest.raises(ConnectionResetError):
                await ask(proxy, b"x")

    play(story, service=False)


def play(story: Callable[[FaultProxy], Awaitable[None]], *, service: bool = True) -> None:
    """Run a story against a proxy in front of a service that shouts back."""

    async def stage() -> None:
        async with asyncio.timeout(DEADLINE), shouting() as target:
            # Port 1 on loopback: nothing listens there.
            proxy = FaultProxy(target if service else ("127.0.0.1", 1), rng=Random(1))
            await proxy.start()
            try:
                await story(proxy)
            finally:
                await proxy.stop()

    asyncio.run(stage())


@asynccontextmanager
async def shouting() -> AsyncIterator[tuple[str, int]]:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1_000):
            writer.write(chunk.upper())

    async with serving(shout) as service:
        yield service.address


async def ask(proxy: FaultProxy, question: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*proxy.address)
    try:
        writer.write(question)
        return await reader.read(1_000)
    finally:
        await gone(writer)


async def gone(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
