"""Observers on the real engine by way of real proxies: what they say of proxies that answer, refuse, are silent and return."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final

import pytest

from reachline.core.observing import Ask, Care, Observer, ObserverRules, Status, Told, observer
from reachline.core.observing.values import DEAD_MS, MS, SECOND
from reachline.doors.outbounds import hops
from reachline.net.observing import Observing, Outlet
from reachline.testing import proxies
from reachline.testing.parts import Running, free_port
from reachline.testing.serving import serving
from reachline.testing.wait import until

_QUICK: Final = Care(spacing=100 * MS, patience=SECOND, retry=200 * MS, expect=((204, 204),), budget=6_000, reserve=100)


@contextlib.asynccontextmanager
async def _web(answer: bytes = b"HTTP/1.1 204 No Content\r\n\r\n") -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives every request the same answer, its URL and the requests it got; an empty answer is none at all."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if not answer:
            await reader.read()
        writer.write(answer)
        await writer.drain()

    async with serving(serve) as service:
        yield f"http://127.0.0.1:{service.port}/generate_204?x=1", asked


@contextlib.asynccontextmanager
async def _observing(
    rules: ObserverRules, outlets: Mapping[str, Outlet | None], told: Callable[[Told], None] | None = None
) -> AsyncIterator[Observing]:
    async with asyncio.TaskGroup() as tasks:
        observing = Observing(observer(rules, Random(1)), outlets, told=told)
        running = tasks.create_task(observing.run())
        yield observing
        running.cancel()


def _rules(url: str, **changes: object) -> ObserverRules:
    rules = ObserverRules(
        is_burst=True, selectors=("s",), target=url, interval=SECOND, timeout=2 * SECOND, method="HEAD", care=_QUICK
    )
    return rules._replace(**changes)  # type: ignore[arg-type]  # fields by name


def _outlet(via: str) -> Outlet:
    return Outlet(hops(via))


def _known(observing: Observing) -> dict[str, Status]:
    return {each.tag: each for each in observing.statuses()}


@pytest.fixture(scope="module")
def socks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Running]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(proxies.microsocks(tmp_path_factory.mktemp("socks"))) for _ in range(2)]


@pytest.mark.real
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("is_burst", [False, True])
def test_every_way_out_is_observed_by_every_observer(
    socks: list[Running], tmp_path: Path, strict: bool, is_burst: bool
) -> None:
    async def main() -> None:
        with proxies.tinyproxy(tmp_path) as tiny:
            outlets = {
                "s-socks": _outlet(f"socks5h://127.0.0.1:{socks[0].port}"),
                "s-http": _outlet(f"http://127.0.0.1:{tiny.port}"),
                "s-chain": _outlet(f"socks5h://127.0.0.1:{socks[0].port},socks5h://127.0.0.1:{socks[1].port}"),
                "s-direct": Outlet(source="127.0.0.9"),
                "s-refused": _outlet(f"socks5h://127.0.0.1:{free_port()}"),
            }
            async with _web() as (url, asked):
                rules = _rules(url, is_burst=is_burst, concurrent=True, care=None if strict else _QUICK)
                async with _observing(rules, outlets) as observing:
                    await until(lambda: len(observing.statuses()) == len(outlets))
                    found = _known(observing)
            assert {tag: each.alive for tag, each in found.items()} == {tag: tag != "s-refused" for tag in outlets}
            assert asked[0].startswith(b"HEAD /generate_204?x=1 HTTP/1.1\r\n")
            assert strict or "refused" in found["s-refused"].reason

    asyncio.run(main())


@pytest.mark.real
def test_a_proxy_that_ends_is_dead_and_one_that_returns_is_alive(tmp_path: Path, socks: list[Running]) -> None:
    async def main() -> None:
        with contextlib.ExitStack() as stack:
            mortal = stack.enter_context(proxies.microsocks(tmp_path))
            via = f"socks5h://127.0.0.1:{mortal.port}"
            outlets = {"s1": _outlet(via), "s2": _outlet(f"socks5h://127.0.0.1:{socks[0].port}")}
            turns: list[Told] = []
            async with _web() as (url, _), _observing(_rules(url), outlets, turns.append) as observing:
                await until(
                    lambda: {tag: each.alive for tag, each in _known(observing).items()} == {"s1": True, "s2": True}
                )
                mortal.process.terminate()
                mortal.process.wait()
                observing.called("s1", passed=False)
                await until(lambda: not _known(observing)["s1"].alive)
                dead = _known(observing)["s1"]
                observing.outbounds({"s2": outlets["s2"], "s1": outlets["s2"]})
                await until(lambda: _known(observing)["s1"].alive)
                back = _known(observing)["s1"]
        assert (dead.delay, bool(dead.reason)) == (DEAD_MS, True)
        assert back.seen >= dead.seen > 0
        assert [each.alive for each in turns if each.tag == "s1" and each.changed] == [True, False, True]
        assert not [each for each in turns if each.tag == "s2" and not each.alive]

    asyncio.run(main())


@pytest.mark.real
@pytest.mark.parametrize("concurrent", [False, True])
def test_strictly_three_real_proxies_are_told_as_the_restatement_would_within_one_request(
    tmp_path: Path, socks: list[Running], concurrent: bool
) -> None:
    """One ends and returns: what was begun before may still pass, whatever was begun after tells what is."""

    async def main() -> list[tuple[str, bool]]:
        told: list[tuple[str, bool]] = []

        def ended(number: int) -> bool:
            return sum(tag == "s1" for tag, _ in told) >= number

        with contextlib.ExitStack() as stack:
            first = stack.enter_context(proxies.microsocks(tmp_path))
            outlets = {
                f"s{number}": _outlet(f"socks5h://127.0.0.1:{each.port}")
                for number, each in enumerate([first, *socks], 1)
            }
            async with _web() as (url, _):
                rules = ObserverRules(
                    is_burst=False, selectors=("s",), target=url, interval=20 * MS, concurrent=concurrent
                )
                async with _observing(rules, outlets, lambda each: told.append((each.tag, each.alive))):
                    await until(lambda: ended(3))
                    first.process.terminate()
                    first.process.wait()
                    told.append(("ended", False))
                    await until(lambda: ended(9))
        return told

    told = asyncio.run(main())

    before, after = told[: told.index(("ended", False))], told[told.index(("ended", False)) + 1 :]
    assert {alive for _, alive in before} == {True}
    assert [alive for tag, alive in after if tag == "s1"][1:] == [False] * (sum(tag == "s1" for tag, _ in after) - 1)
    assert {alive for tag, alive in after if tag != "s1"} == {True}
    # Sorted, one after the other, each once a cycle; all at once they end in any order, but each once a round.
    order = [tag for tag, _ in told if tag != "ended"]
    cycles = [order[at : at + 3] for at in range(0, len(order) - 2, 3)]
    assert all((sorted(each) if concurrent else each) == ["s1", "s2", "s3"] for each in cycles)


def test_silence_ends_at_the_timeout_and_is_a_failure() -> None:
    async def main() -> Status:
        async with _web(answer=b"") as (url, _):
            rules = _rules(url, timeout=200 * MS, care=_QUICK._replace(patience=200 * MS))
            async with _observing(rules, {"s1": Outlet()}) as observing:
                await until(observing.statuses)
                return observing.statuses()[0]

    found = asyncio.run(main())

    assert (found.alive, found.ping is not None and found.ping.fail >= 2) == (False, True)


@pytest.mark.parametrize(("status", "alive"), [(204, True), (403, False)])
def test_a_status_passes_if_the_rules_say_so(status: int, alive: bool) -> None:
    async def main() -> Status:
        answer = f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode()
        async with _web(answer) as (url, _), _observing(_rules(url), {"s1": Outlet()}) as observing:
            await until(observing.statuses)
            return observing.statuses()[0]

    assert asyncio.run(main()).alive is alive


def test_a_check_asks_now() -> None:
    async def main() -> None:
        outlets = {"s1": Outlet()}
        async with _web() as (url, asked), _observing(_rules(url, interval=3_600 * SECOND), outlets) as observing:
            await until(observing.statuses)
            before = len(asked)
            observing.check()
            await until(lambda: len(asked) > before)

    asyncio.run(main())


def test_an_address_that_is_not_ours_is_no_evidence_against_the_outbound() -> None:
    async def main() -> None:
        async with _web() as (url, _):
            outlets = {"s1": Outlet(source="192.0.2.1"), "s2": Outlet()}
            async with _observing(_rules(url), outlets) as observing:
                await until(lambda: "s2" in _known(observing))
                assert list(_known(observing)) == ["s2"]

    asyncio.run(main())


def test_an_outbound_without_a_way_fails_strictly_like_a_connection_that_broke() -> None:
    async def main() -> Status:
        async with _web() as (url, _):
            rules = _rules(url, is_burst=False, care=None)
            async with _observing(rules, {"s1": None}) as observing:
                await until(observing.statuses)
                return observing.statuses()[0]

    found = asyncio.run(main())

    assert not found.alive
    assert "read/write on closed pipe" in found.reason


def test_an_outbound_that_leaves_by_another_interface_does_so_from_its_next_request_on() -> None:
    async def main() -> list[str]:
        told: list[str] = []
        rules = _rules("", is_burst=False, concurrent=True, care=None, interval=10 * MS, timeout=300 * MS)
        async with _web(b"") as (url, asked):
            rules = rules._replace(target=url)
            async with _observing(rules, {"s": Outlet()}, lambda each: told.append(each.reason)) as observing:
                await until(lambda: asked)
                observing.outbounds({"s": Outlet(interface="nosuch0")})  # while a request is in flight
                await until(lambda: len(told) > 1)
            assert len(asked) == 1
        return told

    first, second, *_ = asyncio.run(main())

    assert "no answer within the time" in first
    assert "no such interface" in second


def test_an_outbound_that_leaves_another_way_begins_unknown() -> None:
    """What was known of the tag was known of somebody else."""

    async def main() -> None:
        rules = _rules("", interval=3_600 * SECOND, timeout=3_600 * SECOND)
        async with _web() as (url, _), _web(b"") as (silent, _):
            port = int(silent.split(":")[2].partition("/")[0])
            outlets = {"s1": Outlet(), "s2": Outlet()}
            async with _observing(rules._replace(target=url), outlets) as observing:
                await until(lambda: len(observing.statuses()) == 2)
                kept = _known(observing)["s2"]
                observing.outbounds({"s1": _outlet(f"socks5h://127.0.0.1:{port}"), "s2": Outlet()})
                assert _known(observing) == {"s2": kept}
                observing.outbounds({"s1": Outlet(), "s2": Outlet()})
                await until(lambda: _known(observing).keys() == {"s1", "s2"})

    asyncio.run(main())


def test_requests_of_one_grain_begin_together() -> None:
    """Forty a second by chance are four batches a second, not forty."""
    batches: list[int] = []

    class Seen:
        """The machine, and how many requests it asked for at once."""

        def __init__(self, machine: Observer) -> None:
            self.of = machine

        def __getattr__(self, name: str) -> object:
            return getattr(self.of, name)

        def due(self, now: int) -> tuple[Ask, ...]:
            asks = self.of.due(now)
            batches.extend([len(asks)] if asks else [])
            return asks

    async def main() -> None:
        outlets = {f"s{number}": Outlet() for number in range(40)}
        async with _web() as (url, _), asyncio.TaskGroup() as tasks:
            machine = Seen(observer(_rules(url), Random(1)))
            observing = Observing(machine, outlets, grain=250 * MS)  # type: ignore[arg-type]  # the machine itself answers
            running = tasks.create_task(observing.run())
            await until(lambda: sum(batches) >= 120)
            running.cancel()

    asyncio.run(main())

    assert batches[0] == 40
    assert len(batches) < sum(batches) / 4


def test_a_clock_that_is_set_dates_what_is_known_anew() -> None:
    async def main() -> tuple[Status, Status]:
        ahead = [0]
        async with _web() as (url, _), asyncio.TaskGroup() as tasks:
            rules = _rules(url, interval=3_600 * SECOND)
            observing = Observing(observer(rules, Random(1)), {"s": Outlet()}, wall=lambda: 10**18 + ahead[0])
            running = tasks.create_task(observing.run())
            await until(observing.statuses)
            before = observing.statuses()[0]
            ahead[0] = 86_400 * SECOND
            after = observing.statuses()[0]
            running.cancel()
        return before, after

    before, after = asyncio.run(main())

    assert abs(before.tried - 10**9) < 3_600
    assert abs(after.tried - before.tried - 86_400) < 3_600  # this wall does not run on, the machine's own clock does


@pytest.mark.parametrize("strict", [False, True])
def test_what_this_process_was_busy_with_meanwhile_is_not_the_outbounds_delay(strict: bool) -> None:
    """A second passes between a proxy's yes, which is there, and the request that follows it."""

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        time.sleep(1)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def main() -> Status:
        rules = _rules("http://127.0.0.1:9/", is_burst=False, timeout=60 * SECOND, care=None if strict else _QUICK)
        async with serving(proxy) as service:
            outlets = {"s": _outlet(f"http://127.0.0.1:{service.port}")}
            async with _observing(rules, outlets) as observing:
                await until(observing.statuses)
                return observing.statuses()[0]

    found = asyncio.run(main())

    assert found.alive
    assert found.delay < 1_000
