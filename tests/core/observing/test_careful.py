"""The default observer: what it asks when, what a failure leads to, and how soon it knows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.observing.world import EPOCH, Driver, Phase, World

from reachline.core.observing import (
    DEAD_MS,
    BalancerRules,
    Care,
    Group,
    ObserverRules,
    Purpose,
    Result,
    Status,
    Strategy,
    balancers,
    observer,
)
from reachline.core.observing.values import MS, SECOND

_RULES: Final = ObserverRules(
    is_burst=True, selectors=("s",), target="http://probe.example/", interval=60 * SECOND, method="HEAD", care=Care(expect=((204, 204),))
)  # fmt: skip
_CARE: Final = _RULES.care or Care()


def _driver(world: World, rules: ObserverRules = _RULES, seed: int = 1) -> Driver:
    driver = Driver(observer(rules, Random(seed)), world)
    driver.outbounds(world.phases)
    return driver


def _at(second: float) -> int:
    return EPOCH + int(second * SECOND)


def _status(driver: Driver, tag: str) -> Status | None:
    return next((each for each in driver.machine.statuses(driver.now) if each.tag == tag), None)


def _alive(driver: Driver) -> dict[str, bool]:
    return {each.tag: each.alive for each in driver.machine.statuses(driver.now)}


@pytest.mark.parametrize("number", [1, 40])
@pytest.mark.parametrize("is_burst", [False, True])
def test_each_outbound_is_asked_at_the_start_and_then_once_an_interval_however_many_there_are(
    number: int, is_burst: bool
) -> None:
    world = World({f"s{each}": (Phase(0),) for each in range(number)})
    driver = _driver(world, _RULES._replace(is_burst=is_burst))

    driver.until(_at(1_200))

    moments: dict[str, list[int]] = {}
    for at, ask in driver.asked:
        moments.setdefault(ask.tag, []).append(at)
    assert len(moments) == number
    for each in moments.values():
        assert each[0] == EPOCH
        assert each[1] - each[0] <= 60 * SECOND + 1
        assert all(54 * SECOND <= later - before <= 66 * SECOND for before, later in pairwise(each[1:]))


def test_requests_of_many_outbounds_spread_over_the_interval() -> None:
    driver = _driver(World({f"s{each}": (Phase(0),) for each in range(600)}))

    driver.until(_at(61))

    later = Counter((at - EPOCH) // SECOND for at, _ in driver.asked if at > _at(1))
    assert sum(later.values()) >= 590
    assert max(later.values()) <= 30


def test_requests_in_flight_are_bounded_and_nobody_is_left_out() -> None:
    rules = _RULES._replace(care=_CARE._replace(concurrency=8))
    driver = _driver(World({f"s{each}": (Phase(0, rtt=900),) for each in range(100)}), rules)

    driver.until(_at(20))

    begun = [at for at, _ in driver.asked]
    assert max(sum(1 for other in begun if at - 900 * MS < other <= at) for at in begun) <= 8
    assert {ask.tag for _, ask in driver.asked} == {f"s{each}" for each in range(100)}


def test_nothing_selected_is_nothing_to_do() -> None:
    driver = _driver(World({"t": (Phase(0),)}))

    assert driver.machine.deadline() is None
    assert driver.machine.due(_at(100)) == ()


def test_a_single_failure_is_looked_into_and_changes_nothing() -> None:
    world = World({"s1": (Phase(0), Phase(30, failing=100), Phase(31))})
    driver = _driver(world)
    driver.until(_at(30.2))

    driver.call("s1", passed=False)
    driver.until(_at(40))

    rechecks = driver.probes(Purpose.RECHECK)
    assert 3 <= len(rechecks) <= 5
    assert rechecks[0][0] == _at(30.2)
    assert all(later - before >= SECOND for (before, _), (later, _) in pairwise(rechecks))
    assert _alive(driver) == {"s1": True}
    assert not any(told.changed and not told.alive for _, told in driver.told)


@pytest.mark.parametrize("phase", [Phase(30, failing=100), Phase(30, is_silent=True)])
def test_death_is_known_within_five_seconds_of_the_first_failed_call(phase: Phase) -> None:
    driver = _driver(World({"s1": (Phase(0), phase)}))
    driver.until(_at(31))

    driver.call("s1", passed=False)
    driver.until(_at(36))

    found = _status(driver, "s1")
    assert found is not None
    assert (found.alive, found.delay) == (False, DEAD_MS)
    assert len(driver.probes(Purpose.RECHECK)) <= 5


def test_a_failed_request_of_the_schedule_leads_to_the_same() -> None:
    driver = _driver(World({"s1": (Phase(0), Phase(30, failing=100))}))
    driver.until(_at(200))
    died = next(at for at, told in driver.told if told.changed and not told.alive)
    failed = next(at for at, told in driver.told if told.reason)

    assert died - failed <= 5 * SECOND


def test_a_return_is_known_within_ten_seconds() -> None:
    driver = _driver(World({"s1": (Phase(0, failing=100), Phase(300))}))
    driver.until(_at(299))
    assert _alive(driver) == {"s1": False}

    driver.until(_at(310))

    assert _alive(driver) == {"s1": True}


def test_one_pass_of_ten_does_not_keep_alive() -> None:
    driver = _driver(World({"s1": (Phase(0, failing=90),)}))

    driver.until(_at(900))

    alive = [told.alive for _, told in driver.told]
    assert alive.count(True) < len(alive) // 10


def test_requests_beside_the_schedule_stay_within_their_budget() -> None:
    driver = _driver(World({f"s{each}": (Phase(0, failing=100),) for each in range(200)}))

    driver.until(_at(600))

    moments = [at for at, _ in driver.probes(Purpose.RECHECK)]
    most = max(sum(1 for other in moments if at <= other < at + 60 * SECOND) for at in moments)
    assert most <= _CARE.budget + _CARE.reserve
    assert len(moments) >= 9 * _CARE.budget
    asked = Counter(ask.tag for _, ask in driver.probes(Purpose.RECHECK))
    assert min(asked.values()) >= 1


def test_a_new_doubt_goes_before_the_return_of_the_dead() -> None:
    world = World(
        {f"s{each}": (Phase(0, failing=100),) for each in range(200)} | {"s_new": (Phase(0), Phase(300, failing=100))}
    )
    driver = _driver(world)
    driver.until(_at(301))

    driver.call("s_new", passed=False)
    driver.until(_at(308))

    assert _alive(driver)["s_new"] is False


def test_while_our_own_network_is_down_nothing_counts() -> None:
    rules = _RULES._replace(connectivity="http://up.example/", interval=10 * SECOND)
    world = World({f"s{each}": (Phase(0),) for each in range(3)}, outages=((100, 200),))
    driver = _driver(world, rules)
    driver.until(_at(99))

    driver.until(_at(199))
    driver.call("s1", passed=False)
    driver.until(_at(199.5))

    assert _alive(driver) == dict.fromkeys(("s0", "s1", "s2"), True)
    assert driver.probes(Purpose.RECHECK) == []
    checks = driver.probes(Purpose.CONNECTIVITY)
    assert checks
    assert all(ask.tag == "" for _, ask in checks)


def test_one_connectivity_check_stands_for_all_that_failed_meanwhile() -> None:
    rules = _RULES._replace(connectivity="http://up.example/")
    driver = _driver(World({f"s{each}": (Phase(0, failing=100),) for each in range(50)}), rules)

    driver.until(_at(0.02))

    assert len(driver.probes(Purpose.CONNECTIVITY)) <= 5


def test_a_status_that_is_not_expected_is_a_failure_with_its_reason() -> None:
    driver = _driver(World({"s1": (Phase(0, status=403),)}))

    driver.until(_at(20))

    found = _status(driver, "s1")
    assert found is not None
    assert (found.alive, found.reason) == (False, "answers status 403, not 204")


def test_re_checks_do_not_push_out_what_a_lucky_run_would_hide() -> None:
    driver = _driver(World({"s1": (Phase(0, failing=50),)}), _RULES._replace(interval=10 * SECOND))

    driver.until(_at(190))

    found = _status(driver, "s1")
    assert found is not None
    assert found.ping is not None
    assert found.ping.all == 4 * _RULES.sampling


def test_a_check_asks_every_outbound_at_once_beside_the_schedule() -> None:
    driver = _driver(World({f"s{each}": (Phase(0),) for each in range(9)}))
    driver.until(_at(100))
    scheduled = len(driver.probes(Purpose.PROBE))

    driver.machine.check(driver.now)
    driver.until(_at(100.5))

    assert sorted(ask.tag for _, ask in driver.probes(Purpose.RECHECK)) == [f"s{each}" for each in range(9)]
    assert {at for at, _ in driver.probes(Purpose.RECHECK)} == {_at(100)}
    assert len(driver.probes(Purpose.PROBE)) - scheduled <= 3
    driver.until(_at(130))
    assert len(driver.probes(Purpose.RECHECK)) == 9


def test_our_own_fault_is_no_evidence() -> None:
    machine = observer(_RULES, Random(1))
    machine.outbounds(["s1"], EPOCH)

    told = [machine.ended(ask.serial, Result(ok=False, ours=True), EPOCH + 1) for ask in machine.due(EPOCH)]

    assert told == [()]
    assert machine.statuses(EPOCH + 1) == ()
    assert machine.deadline() is not None


def test_every_field_is_told() -> None:
    driver = _driver(World({"s1": (Phase(0, rtt=50), Phase(100, failing=100))}))

    driver.until(_at(100))
    before = _status(driver, "s1")
    driver.until(_at(250))
    after = _status(driver, "s1")

    assert before is not None
    assert after is not None
    assert before.alive
    assert 50 <= before.delay <= 70
    assert before.reason == ""
    assert EPOCH // SECOND <= before.seen == before.tried
    assert (after.alive, after.delay, after.reason) == (False, DEAD_MS, "connection refused")
    assert after.seen < after.tried <= driver.now // SECOND
    assert after.ping is not None
    assert after.ping.fail > 0


def test_nothing_is_told_of_an_outbound_until_something_is_settled() -> None:
    driver = _driver(World({"s1": (Phase(0, failing=100),)}))

    driver.until(_at(0.01))

    assert driver.machine.statuses(driver.now) == ()


def test_a_removed_outbound_is_forgotten_at_once_and_a_new_one_is_asked_at_once() -> None:
    driver = _driver(World({"s1": (Phase(0),), "s2": (Phase(0),)}))
    driver.until(_at(10))

    driver.outbounds(["s2"])
    assert list(_alive(driver)) == ["s2"]
    driver.until(_at(400))
    driver.outbounds(["s1", "s2"])
    driver.until(_at(401))

    assert not [at for at, ask in driver.asked if ask.tag == "s1" and _at(10) < at < _at(400)]
    assert _alive(driver) == {"s1": True, "s2": True}


def test_an_old_result_says_nothing_of_an_outbound_that_came_back_under_its_tag() -> None:
    machine = observer(_RULES, Random(1))
    machine.outbounds(("s1",), _at(0))
    (old,) = machine.due(_at(0))
    machine.outbounds((), _at(1))
    machine.outbounds(("s1",), _at(1))
    (new,) = machine.due(_at(1))

    late = machine.ended(old.serial, Result(ok=True, rtt=MS, status=204), _at(2))

    assert late == ()
    assert machine.statuses(_at(2)) == ()
    machine.ended(new.serial, Result(ok=True, rtt=MS, status=204), _at(2))
    assert [each.tag for each in machine.statuses(_at(2))] == ["s1"]


def test_a_group_is_asked_for_its_own_targets_and_passes_by_its_quorum() -> None:
    urls = ("http://a.example/", "http://b.example/", "http://c.example/")
    groups = (Group(("s1",), urls, quorum=2), Group(("s",), urls[:1]))
    driver = _driver(
        World({"s1": (Phase(0),), "s2": (Phase(0),), "t": (Phase(0),)}),
        _RULES._replace(care=_CARE._replace(groups=groups)),
    )

    driver.until(_at(1))

    assert sorted((ask.tag, ask.url) for _, ask in driver.asked) == [("s1", url) for url in urls] + [("s2", urls[0])]
    assert _alive(driver) == {"s1": True, "s2": True}


@pytest.mark.parametrize(
    ("failing", "quorum", "alive"), [(1, 2, True), (2, 2, False), (1, 3, False), (2, 1, True), (3, 1, False)]
)
def test_a_quorum_is_so_many_targets_that_answer(failing: int, quorum: int, alive: bool) -> None:
    urls = tuple(f"http://{each}.example/" for each in range(3))
    rules = _RULES._replace(care=_CARE._replace(groups=(Group(("s",), urls, quorum),), fall=1, rise=1, rechecks=0))
    machine = observer(rules, Random(1))
    machine.outbounds(["s1"], EPOCH)
    world = World({"s1": (Phase(0),)})

    for number, ask in enumerate(machine.due(EPOCH)):
        result = world.answer(ask.tag, ask.url, EPOCH, ask.timeout).result
        machine.ended(
            ask.serial, result if number >= failing else result._replace(ok=False, reason="no"), EPOCH + SECOND
        )

    assert [each.alive for each in machine.statuses(EPOCH + SECOND)] == [alive]


@pytest.mark.parametrize("seed", range(4))
def test_one_of_three_fails_half_then_dies_then_returns_and_is_left_and_found_within_ten_seconds(seed: int) -> None:
    """Calls are made by a balancer, two a second, and each tells how it ended; one that hangs is given up after four seconds."""
    world = World(
        {
            "s1": (Phase(0, rtt=20), Phase(120, rtt=20, failing=50), Phase(240, is_silent=True), Phase(360, rtt=20)),
            "s2": (Phase(0, rtt=60),),
            "s3": (Phase(0, rtt=80),),
        }
    )
    driver = _driver(world, seed=seed)
    made = balancers((BalancerRules("b", ("s",), Strategy.LEAST_PING, least_advantage=5 * MS),), driver.machine)
    made["b"].outbounds(world.phases)
    picked: list[tuple[float, str | None]] = []
    ending: list[tuple[int, str, bool]] = []
    rng = Random(3)
    for half in range(2 * 900):
        driver.until(EPOCH + half * SECOND // 2)
        for _, tag, passed in [each for each in ending if each[0] <= driver.now]:
            driver.call(tag, passed)
        ending = [each for each in ending if each[0] > driver.now]
        chosen_now = made["b"].pick(driver.now, rng).tag
        picked.append((half / 2, chosen_now))
        if chosen_now:
            took, result = world.answer(chosen_now, "http://call.example/", driver.now, 4 * SECOND)
            ending.append((driver.now + took, chosen_now, result.ok))

    def chosen(since: float, until: float) -> set[str | None]:
        return {tag for second, tag in picked if since <= second < until}

    assert chosen(2, 120) == {"s1"}
    assert "s1" not in chosen(121, 130)
    # A lucky run of requests may bring it back: the next call that fails ends that.
    assert sum(tag == "s1" for second, tag in picked if 130 <= second < 360) <= 10
    turns = [(at, told.alive) for at, told in driver.told if told.tag == "s1" and told.changed]
    assert [alive for at, alive in turns if at <= _at(250)][-1] is False
    assert next(at for at, alive in turns if alive and at >= _at(250)) <= _at(370)
    assert None not in chosen(0, 900)
    assert chosen(800, 900) == {"s1"}


_PHASES: Final = st.builds(
    Phase,
    since=st.integers(1, 200),
    rtt=st.integers(1, 4_000),
    failing=st.sampled_from([0, 0, 30, 100]),
    is_silent=st.booleans(),
)


@given(
    phases=st.dictionaries(st.sampled_from(["s1", "s2", "s3"]), st.lists(_PHASES, max_size=4), min_size=1),
    calls=st.lists(st.tuples(st.integers(0, 240), st.sampled_from(["s1", "s2", "s3"]), st.booleans()), max_size=20),
    outage=st.tuples(st.integers(0, 200), st.integers(0, 30)),
    connectivity=st.sampled_from(["", "http://up.example/"]),
    interval=st.integers(1, 30),
    seed=st.integers(0, 5),
)
@settings(max_examples=40, deadline=None)
def test_in_any_story_nobody_dies_or_returns_for_less_than_the_rules_ask(
    phases: dict[str, list[Phase]],
    calls: list[tuple[int, str, bool]],
    outage: tuple[int, int],
    connectivity: str,
    interval: int,
    seed: int,
) -> None:
    world = World({tag: (Phase(0), *sorted(each)) for tag, each in phases.items()}, ((outage[0], sum(outage)),))
    rules = _RULES._replace(interval=interval * SECOND, connectivity=connectivity, timeout=3 * SECOND)
    driver = _driver(world, rules, seed)
    for second, tag, passed in sorted(calls):
        driver.until(_at(second))
        driver.call(tag, passed)
    driver.until(_at(240))

    runs: dict[str, list[bool]] = {}
    for _, told in driver.told:
        run = runs.setdefault(told.tag, [])
        run.append(not told.reason)
        if told.changed and not told.alive:
            assert run.count(False) >= _CARE.fall - 1
            run.clear()
        elif told.changed and told.alive and told.tag in runs:
            assert run[-1]
            run.clear()
    assert len(driver.probes(Purpose.RECHECK)) <= 4 * _CARE.budget + _CARE.reserve
    for tag in phases:
        scheduled = [at for at, ask in driver.probes(Purpose.PROBE) if ask.tag == tag]
        assert all(later - before >= interval * SECOND * 9 // 10 for before, later in pairwise(scheduled[1:]))
        assert len(scheduled) >= 240 // interval * 9 // 11


@pytest.mark.parametrize("care", [None, Care()])
def test_what_no_longer_counts_is_not_kept_where_only_statuses_are_asked_for(care: Care | None) -> None:
    rules = _RULES._replace(care=care, interval=10 * SECOND, sampling=2)
    driver = _driver(World({"s1": (Phase(0),)}), rules)

    driver.until(EPOCH + 3_600 * SECOND)

    # Two windows of two requests each, the one at the start, and what chance puts beside them.
    assert len(driver.machine._puts) <= 8  # type: ignore[attr-defined]  # what the machine remembers is no word of its own
