"""Holes in what is promised and kept: presets, speed, restarts, clients without a center, clocks, pace, other people's tools."""

from __future__ import annotations

from random import Random

from tests.core.holes.world import World, line_id
from tests.core.outliers import World as Calls
from tests.simulate.short import LINES, scenario

from reachline.agent.pace import Limits, Pace
from reachline.center.hold import HOLD_MS, Hold
from reachline.center.roster import Arrival, Roster
from reachline.core import tempo
from reachline.core.ledger import Ledger
from reachline.core.outlier_rules import ENVOY, Return
from reachline.core.regroup import Term, Terms, admissions
from reachline.core.tiers import Share
from reachline.doors import reach
from reachline.model import Gate, Health, Kind, Locality, Version
from reachline.simulate.contender import Event, Run, RunLine, What
from reachline.simulate.counts import COUNTS
from reachline.simulate.fleet import Sums
from reachline.simulate.observe import Observer
from reachline.simulate.ran import Ran
from reachline.simulate.timeline import Timeline
from reachline.upstream.cluster import Cluster
from reachline.upstream.listing import LineList, Listed, target
from reachline.wire.frame import Heartbeat, Hello

EXACT = "circuit_breaker: {cooldown_jitter: 0}\nenforce: {business: false}"


def test_a_preset_says_how_soon_a_line_is_back() -> None:
    def restored(preset: str) -> int:
        world = World(EXACT, cluster=f"preset: {preset}").opened()
        began = world.now_ms
        for _ in range(200):
            world.tick(calls={"a": (1_000, 0)})
            if world.gate() is Gate.CLOSED:
                break
        return (world.now_ms - began) // 1_000

    assert [restored(preset) for preset in ("quick_recovery", "default", "high_stability")] == [
        78,  # 30 s and three steps of 15, each to the end of its tick of two
        210,
        480,
    ]


def test_a_dead_line_is_out_within_eight_seconds_and_a_slow_one_loses_weight_within_twelve() -> None:
    dead = World(mode="fast", vantages=5)
    dead.tick(times=5)
    began = dead.now_ms
    while dead.gate() is Gate.CLOSED:
        dead.tick("FHH")
    slow = World(mode="fast", vantages=5)
    slow.tick(times=5)
    while slow.weight() == 100:
        slow.tick("DHH")

    assert dead.now_ms - began <= 8_000
    assert slow.now_ms - began <= 12_000


def test_a_restart_forgets_nothing_and_cuts_nobody_on_old_votes() -> None:
    world = World(EXACT).opened()
    world.tick("HDH")
    known = world.ledger.rows

    world.ledger = Ledger.thaw(world.ledger.freeze())
    assert world.ledger.rows == known
    world.tick("HDH")
    assert (world.gate(), world.health("b")) == (Gate.OPEN, Health.DEGRADED)

    hold, members = Hold(since_ms=0), frozenset(world.vantages)
    for vantage in world.vantages[:2]:
        hold.heard(vantage)
    assert not hold.is_over(1_000, members)
    hold.heard(world.vantages[0])
    hold.heard(world.vantages[1])
    assert hold.is_over(1_000, members)
    assert not Hold(since_ms=0).is_over(HOLD_MS - 1, members)
    assert Hold(since_ms=0).is_over(HOLD_MS, members)


def test_without_a_center_a_client_keeps_its_list_takes_no_older_one_and_tries_what_is_out_itself() -> None:
    cluster = Cluster("payments", clock=lambda: 0.0, rng=Random(1))
    listed = tuple(
        Listed(line=line_id(name), target=target(f"tcp://{name}.test:443"), weight=weight, base=100)
        for name, weight in (("a", 100), ("b", 20))
    )
    newer = LineList(cluster="payments", lines=listed, version=Version(2, 0))
    older = LineList(cluster="payments", lines=listed[:1], version=Version(1, 99))
    assert cluster.replace(newer, source="center")
    assert not cluster.replace(older, source="center")
    assert cluster.version == Version(2, 0)

    well = Share(100, frozenset(), Health.HEALTHY, Gate.CLOSED, 0, 1_000)
    out = well._replace(health=Health.UNHEALTHY, gate=Gate.OPEN, step_milli=0)
    terms = Terms(
        lines=(Term(line_id("a"), 0, out, 60_000), Term(line_id("b"), 100, well, 60_000)),
        policy=("weighted",),
        faults=World().rules.faults,
        is_grouped=False,
    )
    shares = [[one.weight for one in admissions(terms, {}, 0, silent_ms=silent_ms)] for silent_ms in (599_000, 600_000)]
    assert shares == [[0, 100_000], [5_000, 100_000]]


def test_messages_are_placed_by_their_sequence_and_the_centers_clock() -> None:
    roster = Roster({})
    agent = roster.attach(Hello(release="1", agent="v1", boot="b"), 1, 0)
    said = [
        roster.heard(agent, 1, Heartbeat(agent="v1", boot="b", sequence=number), now_ms)
        for now_ms, number in enumerate((1, 2, 2, 1, 3))
    ]

    assert said == [Arrival.NEW, Arrival.NEW, Arrival.DUPLICATE, Arrival.DUPLICATE, Arrival.NEW]
    assert agent.last_ms == 4


def test_a_line_in_doubt_is_asked_sooner_a_dead_one_seldom_and_all_alike_beyond_the_rate() -> None:
    document = World(lines="a").document
    (line,) = reach.plan(document, agent="v1", locality=Locality(), number=1).lines
    (probe,) = (each for each in line.probes if each.kind is Kind.TCP)
    usual, suspect = probe.interval_ms / 1_000, probe.suspect_interval_ms / 1_000
    assert (usual, suspect, probe.burst) == (5, 2, 5)

    assert tempo.interval(usual, suspect, failing=False) == 5
    assert tempo.interval(usual, suspect, failing=True) == 2
    assert tempo.interval(usual, suspect, failing=False, doubted=True) == 2
    assert tempo.interval(usual, suspect, failing=False, dead=True) == 10
    pace = Pace(Limits(rate=100))
    pace.tally(400_000)
    assert pace.factor == 4


def test_false_trips_are_counted_by_hours_of_lines() -> None:
    told = scenario(duration_s=600)
    seen = Observer(told, Timeline(told))
    seen.step(60_000, [Event(60_000, line, What.OPEN) for line in ("L1", "L2")], [])
    seen.end_ms = 600_000
    run = Run(
        lines=tuple(RunLine(name) for name in LINES),
        clients=("c0",),
        vantages=("a1",),
        policy="weighted",
        timeout_ms=1_000,
        seed=1,
        rng=Random(1),
    )

    assert COUNTS["false_trips_per_h"](Ran(run, seen, Sums())) == 4.0  # two in three lines' ten minutes


def test_an_ejection_as_envoys_grows_by_its_base_up_to_the_ceiling() -> None:
    rules = ENVOY._replace(max_ejection_percent=100, consecutive_gateway_failure=0, returns=Return.EXACT)
    calls, waits = Calls(2, rules), []
    for _ in range(12):
        calls.call(0, 500, times=5)
        began = calls.now_ms
        while calls.out:
            calls.at(calls.outliers.deadline() / 1_000)
        waits.append((calls.now_ms - began) // 1_000)

    assert waits == [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300]
