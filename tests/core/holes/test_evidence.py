"""Holes in what is measured and when it is bad: limits, denominators, windows, kinds of probe, and the agent's own opinion."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

from tests.core.holes.world import DEAD, SLOW, WELL, World, attempts

from reachline.core import histogram
from reachline.core.direction import INTERVALS, Finding, Interval, Way, find
from reachline.core.window import Columns, Window, max_age
from reachline.doors import heartbeat
from reachline.model import CENSORED_US, Counts, Failure, Health, Kind, Reading, Zone
from reachline.net.kernel import INFO, handshake
from reachline.wire.mesh import Reply, identity
from reachline.wire.mesh_sides import Answering, Asking

HTTP_SLOW = SLOW._replace(kind=Kind.HTTP)
LOST_PINGS = DEAD._replace(kind=Kind.ICMP)


def window(every: float = 5.0) -> Window:
    """One vantage's window on a line that is asked so often, as an agent makes it."""
    return Window(Columns(), Kind.TCP, age=max_age(every))


def test_limits_call_the_documents_numbers_what_its_text_calls_them() -> None:
    told = {
        "healthy": attempts(1_000, lost=4, p95_ms=110),
        "the sample heartbeat": attempts(48, late=2, p95_ms=270),
        "still degraded": attempts(1_000, lost=41, p95_ms=350),
        "down": attempts(940, late=60, p95_ms=110),
    }

    assert {name: World().see(reading) for name, reading in told.items()} == {
        "healthy": Zone.H,
        "the sample heartbeat": Zone.D,
        "still degraded": Zone.D,
        "down": Zone.F,
    }


def test_a_zone_is_left_at_its_exit_limit_only() -> None:
    world = World()

    assert [world.see(attempts(200, p95_ms=ms)) for ms in (190, 210, 190, 170, 150)] == [
        Zone.H,
        Zone.D,
        Zone.D,
        Zone.D,
        Zone.H,
    ]


def test_no_attempt_older_than_two_minutes_speaks_of_now() -> None:
    seen, world = window(), World()
    for second in range(0, 1_000, 5):
        seen.record(second, None if second < 800 else Failure.TIMEOUT, 60_000 if second < 800 else None)
    assert world.see(seen.reading(1_000)) is Zone.F

    for second in range(1_000, 1_125, 5):
        seen.record(second, None, 60_000)

    assert seen.reading(1_125).counts == Counts(ok=24)
    assert world.see(seen.reading(1_125)) is Zone.H


def test_a_tick_judges_what_it_brought_not_what_earlier_ones_have_judged() -> None:
    world = World(mode="fast")
    world.tick("HHH", times=3)
    bad = attempts(190, late=10)
    world.see(bad._replace(fresh_ok=2, fresh_failed=3))

    world.see(bad._replace(fresh_ok=5), times=20)

    assert world.health() is Health.HEALTHY


def test_loss_is_of_the_packets_sent_not_of_the_connects() -> None:
    burst = WELL._replace(counts=Counts(ok=50), sent=250, lost=12, answered=50)
    world = World()

    assert world.see(burst) is Zone.D
    (vote, *_) = world.ledger.view(next(iter(world.ledger.lines)), world.now_ms).ballots
    assert vote[1].vote is not None
    assert (vote[1].vote.metric, vote[1].vote.numerator, vote[1].vote.denominator) == ("tcp.loss", 12, 250)
    assert World().see(burst._replace(lost=3)) is Zone.H


def test_all_vantages_together_see_a_loss_that_none_of_them_can() -> None:
    world = World(mode="fast", vantages=5)
    world.tick("HHH", times=3)

    for tick in range(20):
        world.now_ms += world.rules.tick_ms
        for place, vantage in enumerate(world.vantages):
            failed = place == tick % 5
            world.hear({vantage: [attempts(200)._replace(fresh_ok=5 - failed, fresh_failed=int(failed))]})
        world.ledger.close(world.now_ms)

    assert world.health() is Health.DEGRADED


def test_a_connect_that_took_a_second_lost_its_first_packet() -> None:
    def connected(rtt_us: int, again: int) -> tuple[int, int] | None:
        return handshake(lambda *_: INFO.pack(1, rtt_us, again))

    found, seen = [connected(60_000, 0), connected(60_000, 1), connected(1_060_000, 0)], window()
    for second, one in enumerate(found * 20):
        assert one is not None
        rtt, again = one
        seen.record(second, None, None if again else rtt, sent=1 + again, lost=again)

    assert found == [(60_000, 0), (60_000, 1), (1_060_000, 1)]
    reading = seen.reading(60)
    assert (reading.sent, reading.lost, reading.counts) == (100, 40, Counts(ok=60))
    assert World().see(reading) is Zone.F


def test_an_attempt_ends_in_one_way_and_what_is_late_is_no_loss() -> None:
    seen = window()
    for second in range(100):
        seen.record(second, None, 60_000, sent=1)
    for second in range(4):
        seen.record(100, Failure.REFUSED if second else None, 60_000, late=True, sent=1)

    reading, world = seen.reading(100), World()
    assert (reading.counts, reading.lost) == (Counts(ok=100, late=4), 0)
    assert world.see(reading) is Zone.D
    held = {name for name, _ in world.ledger.poll.ballots_of(next(iter(world.ledger.lines)))[0][1].held}
    assert held == {"tcp.timeout"}


def test_what_was_never_answered_is_slower_than_anything_waited_for() -> None:
    seen = window()
    for second in range(100):
        failed = second % 10 == 0
        seen.record(second, Failure.TIMEOUT if failed else None, None if failed else 60_000)

    reading, figures = seen.summary(100)
    assert (reading.p95_us, figures.p95_us) == (CENSORED_US, 60_000)
    world = World()
    world.ledger.rules = replace(world.rules, limits=tuple(one for one in world.rules.limits if one.metric == "p95"))
    assert world.see(reading) is Zone.F


def test_percentiles_of_vantages_are_merged_by_their_histograms() -> None:
    near, far = [10_000.0 + k for k in range(90)], [900_000.0 + k for k in range(10)]
    vantages = [histogram.of(near), histogram.of(far)]

    found = histogram.merged(*vantages).quantile(0.5)

    assert found is not None
    assert found < 11_000
    own = [one.quantile(0.5) or 0.0 for one in vantages]
    assert sum(own) / 2 > 400_000  # what a mean of percentiles would say


def test_jitter_alone_degrades_and_fails_a_line() -> None:
    restless = WELL._replace(p50_us=20_000, p95_us=190_000, jitter_us=170_000, ewma_us=60_000)

    assert World().see(restless) is Zone.D
    assert World().see(restless._replace(p95_us=490_000, jitter_us=470_000)) is Zone.F


def way(*, loss: float = 0.0, rise_us: int = 0) -> tuple[Way, Way]:
    """In which direction of a path loss and delay are found where both are of the way there, and the other clock is wrong."""
    second, rng, asking, answering = 1_000_000, Random(1), Asking(identity("a"), 1), Answering()
    intervals: list[Interval] = []
    found = Finding()
    for now in range(0, 200 * second, 200_000):
        probe, fault = asking.probe(now), now >= 80 * second
        if not (fault and rng.random() < loss):
            there = now + 20_000 + rng.randrange(2_000) + rise_us * fault
            other = there + 120 * second
            reply = answering.answer(probe, other, other)
            assert isinstance(reply, Reply)
            asking.heard(reply._replace(replied_us=other + 50), there + 30_000 + rng.randrange(2_000))
        if now % (5 * second) == 0 and now:
            intervals = [*intervals, asking.close(now // 1_000)][-INTERVALS:]
            found = find(intervals, now // 1_000, held=found.loss)
    return found.loss, found.delay


def test_each_way_of_a_path_is_judged_by_itself_without_common_clocks() -> None:
    assert way(loss=0.1) == (Way.FORWARD, Way.NEITHER)
    assert way(rise_us=90_000) == (Way.NEITHER, Way.FORWARD)


def test_the_worst_metric_of_the_worst_kind_is_the_lines() -> None:
    assert World().see(WELL._replace(ewma_us=160_000)) is Zone.D
    assert World().see(WELL, attempts(200)._replace(kind=Kind.HTTP, counts=Counts(ok=170, errors=30))) is Zone.F


def test_few_samples_say_nothing_and_a_rate_must_be_sure() -> None:
    few = Reading(Kind.TCP, Counts(ok=10), sent=10, lost=1)

    assert World().see(few) is Zone.H
    assert World().see(attempts(25, lost=2)) is Zone.D  # 8 %, but no surer than 2.7 %
    assert World().see(attempts(250, lost=15)) is Zone.F


def test_what_is_slow_depends_on_the_class_and_on_the_lines_own_usual() -> None:
    slow = attempts(200, p95_ms=150)
    assert World().see(slow) is Zone.H
    assert World(cluster="class: rpc").see(slow) is Zone.D
    assert World(cluster="class: bulk").see(attempts(200, p95_ms=450)) is Zone.H

    far = attempts(200, p95_ms=330)._replace(p50_us=300_000, ewma_us=300_000, jitter_us=30_000)
    world = World("judge: {tick: 60s, heartbeat: 60s, blind: 300s}", cluster="class: long_haul")
    first = world.see(far)
    world.see(far, times=200)

    assert (first, world.row().zone) == (Zone.D, Zone.H)


def test_names_and_handshakes_are_advice_about_a_line_that_others_watch() -> None:
    unresolved = DEAD._replace(kind=Kind.DNS)
    assert World().see(WELL, unresolved) is Zone.H
    assert World().see(WELL, DEAD._replace(kind=Kind.TLS)) is Zone.H

    world = World()
    world.see(DEAD._replace(counts=Counts(unresolved=200)), times=3)
    assert world.standing().reason == "vote.resolve.failed"


def test_lost_pings_raise_the_zone_only_where_tcp_and_the_service_are_bad() -> None:
    assert World().see(LOST_PINGS, WELL, WELL._replace(kind=Kind.HTTP)) is Zone.H
    assert World().see(LOST_PINGS, SLOW) is Zone.D
    assert World().see(LOST_PINGS, SLOW, HTTP_SLOW) is Zone.F


HEARTBEAT = {
    "agent_id": "v1",
    "ts": 1_700_000_000,
    "target_zone": "az2",
    "target_ip": "10.0.0.1",
    "probe_type": "tcp",
    "sample_count": 100,
    "avg_rtt_ms": 60,
    "p95_rtt_ms": 110,
    "loss_rate": 0.0,
    "timeout_rate": 0.0,
}


def test_what_an_agent_thinks_of_a_line_is_not_what_the_center_finds() -> None:
    def found(status: str, timeouts: float) -> Zone:
        told = HEARTBEAT | {"status": status, "timeout_rate": timeouts}
        return World().see(heartbeat.reading(heartbeat.read(json.dumps(told).encode())))

    assert [found("down", 0.0), found("healthy", 0.3)] == [Zone.H, Zone.F]


def test_a_line_is_not_well_because_some_sample_got_through() -> None:
    seen = window()
    for number in range(30):
        for attempt in range(10):
            failed = attempt > 0
            seen.record(
                5.0 * number, Failure.TIMEOUT if failed else None, None if failed else 60_000, number=number, burst=10
            )

    reading = seen.reading(150.0)
    assert (reading.rounds, reading.rounds_ok) == (3, 3)  # "alive"
    assert World().see(reading) is Zone.F
