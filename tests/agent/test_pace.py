"""`--rate` holds whatever the lines are like: what counts is the interval that applies now, and rounds wait their turn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from random import Random

import pytest
from tests.agent.peer import line, probe, target

from reachline.agent.leaving import network_of
from reachline.agent.pace import Limits, Pace
from reachline.agent.probed import Probed
from reachline.agent.prober import Attempt, Prober
from reachline.core.bucket import Claim
from reachline.testing.wait import until
from reachline.wire.frame import LinePlan

USUAL, SUSPECT = 10.0, 20.0
"""Attempts a second of one line of `probe()`: every 100 ms, and every 50 ms while suspect."""


def names(lines: Sequence[LinePlan]) -> tuple[str, ...]:
    return tuple(each.line for each in lines)


def test_intervals_stretch_by_what_each_line_asks_for_now() -> None:
    async def work() -> None:
        async with target() as good, Prober(rng=Random(1), limits=Limits(rate=100.0)) as prober:
            lines = [line(f"l{number}", good) for number in range(10)]

            prober.adopt(lines)
            assert prober.factor == pytest.approx(10 * SUSPECT / 100), "nobody is known to be well yet"
            await until(lambda: all(each.window.rounds.last_ok for (each,) in prober.lines.values()))
            assert prober.factor == pytest.approx(10 * USUAL / 100)
            prober.suspect(names(lines[:5]))
            assert prober.factor == pytest.approx((5 * SUSPECT + 5 * USUAL) / 100)
            prober.suspect(names(lines))
            assert prober.factor == pytest.approx(10 * SUSPECT / 100)
            prober.adopt(lines[:3])
            assert prober.factor == 1.0

    asyncio.run(work())


def test_no_more_attempts_start_than_the_rate_allows_also_while_every_line_fails() -> None:
    async def work() -> None:
        rate, wanted, began, ended = 200.0, 300, 0.0, [0.0]

        def over(_: Probed, attempt: Attempt) -> None:
            ended.append(asyncio.get_running_loop().time())

        async with Prober(rng=Random(1), ended=over, limits=Limits(rate=rate)) as prober:
            began = asyncio.get_running_loop().time()
            prober.adopt(
                [line(f"l{number}", "tcp://127.0.0.1:1", probe(burst=5)) for number in range(40)], at_once=True
            )
            await until(lambda: len(ended) > wanted)

        # 40 lines with 5 attempts each 50 ms ask for twenty times the rate; a tenth of a second and one round come at once.
        least = (wanted - 5) / rate - 0.1
        assert ended[wanted] - began >= least

    asyncio.run(work())


def test_without_a_rate_nothing_is_stretched() -> None:
    async def work() -> None:
        async with target() as good, Prober(rng=Random(1)) as prober:
            prober.adopt([line(f"l{number}", good, probe(burst=5)) for number in range(100)])

            assert prober.factor == 1.0

    asyncio.run(work())


def test_rounds_beyond_a_networks_rate_wait_and_those_that_would_wait_too_long_are_skipped_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pace = Pace(Limits(network=10.0))
    claims = [Claim("network 10.0.0.0/24", 10.0, 5)]

    starts = [pace.admit(claims, 100.0, 101.0, 5) for _ in range(5)]
    said = pace.said()

    # One round is saved up for, the next ones each take half a second.
    assert starts == [pytest.approx(100.0), pytest.approx(100.4), pytest.approx(100.9), None, None]
    assert said.skipped == {"network": 2}
    assert said.limit == "network 10.0.0.0/24"
    (event,) = [record for record in caplog.records if record.message == "rounds_skipped"]
    assert (event.limit, event.rounds) == ("network 10.0.0.0/24", 2)  # type: ignore[attr-defined]
    assert pace.said().limit == "", "named once"
    assert pace.said().skipped == {"network": 2}, "counted since the start"


def test_another_network_is_not_held_back() -> None:
    pace = Pace(Limits(network=10.0))
    for _ in range(9):
        pace.admit([Claim("network 10.0.0.0/24", 10.0, 5)], 100.0, 101.0, 5)

    assert pace.admit([Claim("network 10.0.1.0/24", 10.0, 5)], 100.0, 101.0, 5) == 100.0


def test_what_a_bucket_puts_off_holds_nobody_else_back() -> None:
    pace = Pace(Limits(rate=100.0, network=10.0))
    slow = [Claim("network 10.0.0.0/24", 10.0, 1)]

    put_off = [pace.admit(slow, 100.0, 110.0, 1) for _ in range(30)]

    assert put_off == [pytest.approx(100.0 + max(0, number - 1) / 10, abs=1e-6) for number in range(30)]
    assert pace.admit([Claim("network 10.0.1.0/24", 10.0, 1)], 100.0, 110.0, 1) == 100.0
    assert pace.free <= 100.0, "nobody waits for the rate"


def test_what_a_bucket_puts_off_counts_once_it_leaves() -> None:
    rate, slow = 20.0, [Claim("network 10.0.0.0/24", 10.0, 1)]
    pace = Pace(Limits(rate=rate, network=10.0))

    starts = [pace.admit(slow, 100.0, 110.0, 1) for _ in range(30)]
    for now in (100.0 + number / 100 for number in range(300)):
        # Somebody asks again and again, as soon as the rate allows.
        starts += [pace.admit((), now, 110.0, 1)] if pace.free <= now else []

    for begin in range(10, 300, 10):
        ended = sum(1 for at in starts if at is not None and at < 100.0 + begin / 100)
        # A tenth of a second is saved up, and one may leave just before what was put off does.
        assert rate * (begin / 100 - 0.2) <= ended <= rate * (begin / 100 + 0.1) + 1


def test_a_try_beside_all_rounds_pays_for_what_was_put_off_too() -> None:
    pace = Pace(Limits(rate=10.0, network=10.0))
    slow = [Claim("network 10.0.0.0/24", 10.0, 5)]
    assert [pace.admit(slow, 100.0, 110.0, 5) for _ in range(2)] == [pytest.approx(100.0), pytest.approx(100.4)]

    # Five began at 100.0, of which one was saved up for, and five more at 100.4: ten attempts are a second's worth.
    assert not pace.has_room((), 100.85)
    assert pace.has_room((), 100.95)


def test_a_try_beside_all_rounds_goes_at_once_or_not_at_all_and_is_no_skipped_round() -> None:
    pace = Pace(Limits(rate=10.0, network=5.0))
    claims = [Claim("network 10.0.0.0/24", 5.0, 5)]

    gone = [pace.has_room(claims, 100.0) for _ in range(3)]

    assert gone == [True, False, False]
    assert pace.has_room(claims, 100.2)
    assert not pace.said().skipped


def test_the_real_agent_keeps_a_networks_rate_and_says_so() -> None:
    async def work() -> None:
        async with Prober(rng=Random(1), limits=Limits(network=50.0)) as prober:
            # By loopback nothing gets there (RFC 5737) and nothing leaves: only starts count. They ask for 2000 attempts a second.
            nowhere = "tcp://198.51.100.1:9"
            lines = [line(f"l{number}", nowhere, probe(burst=5), interface="lo") for number in range(20)]
            prober.adopt(lines, at_once=True)
            await until(lambda: prober.pace.skipped["network"] > 20)
            skipped = sum(each.skipped for (each,) in prober.lines.values())

            said = prober.pace.said()
            assert said.limit == "network 198.51.100.0/24"
            assert skipped >= said.skipped["network"] > 20

    asyncio.run(work())


def test_a_name_takes_from_the_bucket_of_the_network_it_turned_out_to_mean() -> None:
    name = socket.gethostname().lower()
    try:
        address = str(socket.getaddrinfo(name, 1, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        pytest.skip("this machine cannot resolve its own name")
    network = network_of(address)

    async def work() -> None:
        async with Prober(rng=Random(1), limits=Limits(network=1_000.0)) as prober:
            prober.adopt([line("own", f"tcp://{name}:1"), line("none", "tcp://nowhere.invalid:1")])
            (own,), (unknown,) = prober.lines["c/own"], prober.lines["c/none"]

            def keys() -> list[str]:
                return [claim.key for claim in own.claims]

            assert keys() == [f"network {name}"]
            await until(lambda: keys() == ([f"network {network}"] if network else []))
            await until(lambda: unknown.number > 1)
            assert [claim.key for claim in unknown.claims] == ["network nowhere.invalid"]

    asyncio.run(work())


def test_a_long_plan_is_taken_up_slice_by_slice_and_the_newest_one_wins() -> None:
    async def work() -> None:
        async with target() as good, Prober(rng=Random(1)) as prober:
            lines = [line(f"l{number}", good, probe(every=3_600_000)) for number in range(300)]

            prober.adopt(lines)
            assert prober.is_adopting
            assert 0 < len(prober.lines) < 60, "the loop is not held for all of it"
            await until(lambda: not prober.is_adopting)
            assert list(prober.lines) == [each.line for each in lines]
            kept = prober.lines["c/l5"]
            prober.adopt(lines[:200])
            prober.adopt([*lines[:100], line("new", good)])
            await until(lambda: not prober.is_adopting)
            assert list(prober.lines) == [*(each.line for each in lines[:100]), "c/new"]
            assert prober.lines["c/l5"] is not kept
            assert prober.lines["c/l5"][0] is kept[0]
            assert all(each.due is not None for (each,) in prober.lines.values()), "every one has its appointment"

    asyncio.run(work())


def test_the_interval_that_applies_is_told_as_stretched() -> None:
    async def work() -> None:
        async with target() as good, Prober(rng=Random(1), limits=Limits(rate=10.0)) as prober:
            prober.adopt([line(f"l{number}", good) for number in range(2)])
            await until(lambda: all(each.window.rounds.last_ok for (each,) in prober.lines.values()))
            (one,) = prober.lines["c/l0"]

            assert prober.pace.said().rate == pytest.approx(10.0)
            assert prober.every(one) == pytest.approx(0.1 * 2 * USUAL / 10.0)

    asyncio.run(work())
