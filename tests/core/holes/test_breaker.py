"""Holes in how a line is taken out, tried and brought back."""

from __future__ import annotations

from tests.core.holes.world import World, line_id

from reachline.core.local import UNTRIED, LocalBreaker, claim, failed, is_often, is_ready, may_trip, succeeded
from reachline.core.rules import LocalRules
from reachline.model import Gate, LineId

EXACT = "circuit_breaker: {cooldown_jitter: 0}\nenforce: {business: false}"
"""Waits as they are written; failed calls end trials and are held against no line otherwise."""
GOOD = {"a": (200, 0)}


def climbing(world: World) -> list[int]:
    """The weights on the way from the trial to closed, with traffic enough."""
    seen = [world.weight()]
    for _ in range(60):
        world.tick(calls=GOOD)
        if world.weight() != seen[-1]:
            seen.append(world.weight())
        if world.gate() is Gate.CLOSED:
            return seen
    return seen


def test_the_ramp_is_that_of_the_configuration() -> None:
    assert climbing(World(EXACT).tried()) == [5, 10, 20, 40, 60, 100]


def test_five_percent_are_of_the_lines_weight_or_where_asked_for_of_all_traffic() -> None:
    world = World(EXACT).tried()
    assert [world.weight(name) for name in "abc"] == [5, 100, 100]

    world = World(EXACT.replace("jitter: 0", "jitter: 0, ratio_mode: share")).tried()
    shares = [world.standing(name).raw_milli for name in "abc"]
    assert 1_000 * shares[0] // sum(shares) in (49, 50)


def test_a_trial_that_starves_leans_on_probes_after_five_minutes() -> None:
    world = World(EXACT).tried()
    began = world.now_ms

    while world.row().breaker.step == 0 and world.gate() is Gate.HALF_OPEN and world.now_ms < began + 900_000:
        world.tick(calls={"a": (2, 0)})

    assert (world.gate(), world.standing().reason) == (Gate.RAMP, "breaker.window_starved")
    assert 300_000 <= world.now_ms - began <= 330_000


def test_three_failures_among_many_calls_are_no_reason_to_go_back() -> None:
    world = World(EXACT, mode="fast").tried()
    world.tick(calls={"a": (997, 3)})
    assert world.gate() is Gate.HALF_OPEN

    world = World(EXACT, mode="fast").tried()
    world.tick(calls={"a": (47, 3)})
    assert world.gate() is Gate.OPEN


def test_every_step_of_the_ramp_asks_again_and_the_probes_must_agree() -> None:
    def ramping() -> World:
        world = World(EXACT, mode="fast").tried()
        for _ in range(60):
            if world.gate() is Gate.RAMP:
                break
            world.tick(calls=GOOD)
        return world

    world = ramping()
    world.tick(calls={"a": (190, 10)})
    assert world.gate() is Gate.OPEN

    world = ramping()
    step = world.row().breaker.step
    world.tick("DHH", calls=GOOD, times=30)
    assert (world.gate(), world.row().breaker.step) == (Gate.RAMP, step)


def test_counting_stops_where_evidence_is_enough() -> None:
    world = World(EXACT).tried()

    world.tick(calls={"a": (1_000, 0)})
    world.tick(calls={"a": (0, 5)})
    world.tick(times=2)

    assert world.gate() is Gate.RAMP


def test_waits_double_up_to_a_cap_move_by_chance_and_are_forgiven_by_traffic() -> None:
    def waits(world: World, count: int) -> list[int]:
        found = []
        for turn in range(count):
            if turn:
                world.tried().tick(calls={"a": (0, 3)})
            breaker = world.opened().row().breaker
            found.append(breaker.until_ms - breaker.since_ms)
        return found

    world = World(EXACT)
    assert waits(world, 6) == [60_000, 120_000, 240_000, 480_000, 960_000, 960_000]
    (moved,) = waits(World("enforce: {business: false}"), 1)
    assert moved != 60_000
    assert abs(moved - 60_000) <= 6_000

    world.tried()
    climbing(world)
    assert world.row().breaker.reopens == 5
    world.tick(times=61)
    assert world.row().breaker.reopens == 5
    world.tick(calls={"a": (1, 0)})
    assert world.row().breaker.reopens == 0


def test_a_failure_during_the_ramp_is_one_of_the_trial() -> None:
    world = World(EXACT).tried()
    while world.row().breaker.step < 2:
        world.tick(calls=GOOD)

    world.tick(calls={"a": (150, 3)})

    breaker = world.row().breaker
    assert (breaker.gate, breaker.reopens, breaker.until_ms - breaker.since_ms) == (Gate.OPEN, 1, 120_000)


def test_successes_of_all_clients_count_for_the_window_they_were_made_in() -> None:
    world = World(EXACT).tried()
    window = world.row().breaker.window
    world.tick(calls={"a": (100, 0)}, clients=("one", "two"), times=3)
    assert (world.gate(), world.row().breaker.window) == (Gate.RAMP, window + 1)

    world.now_ms += 5_000
    for client in ("one", "two"):
        world.call(client, {"a": (500, 9)}, window=window)
    world.tick()

    assert (world.row().breaker.ok, world.row().breaker.failed, world.gate()) == (0, 0, Gate.RAMP)


def test_the_clients_own_breaker_opens_shortly_doubles_tries_once_and_spares_half_of_the_lines() -> None:
    rules = World().rules.local
    weights = dict.fromkeys(map(line_id, "abcd"), 100)

    row, waits = UNTRIED, []
    for now_ms in (0, 10_000, 30_000, 60_000, 120_000, 240_000):
        if row.gate is Gate.OPEN:
            assert is_ready(row, now_ms)
            row = claim(row, now_ms, rules)
            assert not is_ready(row, now_ms)  # one trial in flight
        row = _failing(row, now_ms, rules)
        waits.append(row.until_ms - now_ms)
    assert waits == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]
    assert succeeded(claim(row, 300_000, rules), 300_000, rules).gate is Gate.CLOSED

    out: dict[LineId, LocalBreaker] = {line_id("a"): row}
    assert may_trip(line_id("b"), weights, out, rules)
    assert not may_trip(line_id("c"), weights, out | {line_id("b"): row}, rules)
    assert not may_trip(line_id("b"), {line_id("b"): 100}, {}, rules)

    busy = World(mode="fast").rules.local
    assert not is_often(2, 20, busy)  # chance, of a line that is called a thousand times a second
    assert is_often(4, 20, busy)
    assert is_often(2, 2, busy)
    assert is_often(2, 20, rules)  # the document's plain rule


def _failing(row: LocalBreaker, now_ms: int, rules: LocalRules) -> LocalBreaker:
    """After one failure of a trial, or two in a row of a line that is in."""
    first = failed(row, now_ms, rules, may_trip=True)
    if row.gate is not Gate.CLOSED:
        return first
    assert first.gate is Gate.CLOSED
    return failed(first, now_ms, rules, may_trip=True)
