"""Strictly as Xray: at every second of an hour of outages, and in stories drawn by chance, the machines equal the slow restatement."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.observing import restated
from tests.core.observing.world import EPOCH, Driver, Phase, World

from reachline.core.observing import (
    Balancer,
    BalancerRules,
    Cost,
    LeastLoad,
    ObserverRules,
    Result,
    Status,
    Strategy,
    balancers,
    observer,
)
from reachline.core.observing.burst import Burst
from reachline.core.observing.values import MS, SECOND

_HOUR: Final = 3_600
_URL: Final = "http://probe.example/generate_204"
STORY: Final = World(
    {
        "s1": (
            Phase(0, rtt=40), Phase(600, rtt=40, failing=50), Phase(1_200, is_silent=True), Phase(1_900, rtt=45),
            Phase(3_000, is_silent=True), Phase(3_300, rtt=40),
        ),
        "s2": (Phase(0, rtt=60), Phase(2_100, rtt=900), Phase(3_000, failing=100), Phase(3_300, rtt=60)),
        "s3": (Phase(0, rtt=90, failing=10), Phase(3_000, is_silent=True), Phase(3_300, rtt=90)),
        "s4": (Phase(0, rtt=30), Phase(2_650, rtt=30, failing=80)),
    },
    outages=((1_800, 1_860),),
)  # fmt: skip
"""Three socks outbounds: one fails half its requests, then is silent, then returns; our own network is down for a minute; one turns
slow, is removed and comes back while a fourth one comes and goes; in the end all are dead for five minutes.
"""
CHANGES: Final[Mapping[int, Iterable[str]]] = {
    0: ("direct", "s3", "s1", "s2"),
    2_400: ("direct", "s3", "s1", "s4"),
    2_700: ("direct", "s3", "s1", "s2"),
}

_SINGLE: Final = ObserverRules(is_burst=False, selectors=("s",), target=_URL, interval=10 * SECOND)
_BURST: Final = ObserverRules(
    is_burst=True, selectors=("s",), target=_URL, interval=10 * SECOND, sampling=6, method="HEAD"
)
OBSERVERS: Final = {
    "one after the other": _SINGLE,
    "all at once": _SINGLE._replace(concurrent=True, interval=30 * SECOND),
    "burst": _BURST,
    "burst with a connectivity check": _BURST._replace(connectivity="http://up.example/"),
    "burst whose timeout is a good part of its window": _BURST._replace(sampling=2, timeout=8 * SECOND),
}
_LOADS: Final = (
    LeastLoad(),
    LeastLoad(expected=2, tolerance=0.2, max_rtt=SECOND),
    LeastLoad(expected=1, baselines=(5 * MS, 50 * MS), costs=(Cost("s1", 9.0), Cost(r"s\d", is_pattern=True))),
    LeastLoad(baselines=(10 * MS,)),
)
BALANCERS: Final = tuple(
    BalancerRules(tag=f"{strategy.value} {number} {fallback}", selectors=("s",), strategy=strategy, load=load, fallback=fallback, strict=True)
    for fallback in ("", "direct")
    for strategy in Strategy
    for number, load in enumerate(_LOADS if strategy is Strategy.LEAST_LOAD and not fallback else _LOADS[3:])
)  # fmt: skip


class _Picks:
    """What the balancers pick each second beside what the restatement says they must."""

    def __init__(self, made: Mapping[str, Balancer]) -> None:
        self._made = made
        self._ours, self._theirs = Random(4), Random(4)
        self._turns = dict.fromkeys(made, 0)
        self._known: dict[str, tuple[object, list[str]]] = {}

    def compare(self, rules: BalancerRules, statuses: list[Status], outbounds: list[str], now: int) -> None:
        known, tags = self._known.get(rules.tag, (None, []))
        if known != (statuses, outbounds):
            tags = restated.choice(rules, statuses, outbounds)
            self._known[rules.tag] = (statuses, outbounds), tags
        n = len(tags)
        if not n:
            wanted = rules.fallback or outbounds[0]
        elif rules.strategy is Strategy.ROUND_ROBIN:
            turn = self._turns[rules.tag]
            wanted, self._turns[rules.tag] = tags[turn % n], (turn + 1) % n
        else:
            wanted = tags[int(self._theirs.random() * n)] if n > 1 else tags[0]
        assert self._made[rules.tag].pick(now, self._ours).tag == wanted
        shown = (
            restated.matching(outbounds, rules.selectors)
            if rules.strategy in (Strategy.RANDOM, Strategy.ROUND_ROBIN)
            else tags
        )
        assert list(self._made[rules.tag].targets(now)) == shown


def _play(rules: ObserverRules, world: World, changes: Mapping[int, Iterable[str]], seconds: int, seed: int) -> None:
    machine = observer(rules, Random(seed))
    driver = Driver(machine, world)
    end = EPOCH + seconds * SECOND
    if rules.is_burst:
        history = restated.burst_history(rules, world, changes, end, seed)
    else:
        history = restated.standard_history(rules, world, changes, end)
    made = balancers(BALANCERS, machine)
    picks = _Picks(made)
    moments = [each.at for each in history]
    rings: dict[int, dict[str, list[restated.Stored]]] = {}

    def look(second: int) -> None:
        now = driver.now
        outbounds = restated.present(changes, now)
        if second in changes:
            for balancer in made.values():
                balancer.outbounds(outbounds)
        if rules.is_burst:
            number = bisect_right(moments, now)
            if number not in rings:
                rings[number] = restated.rings(history[:number])
            wanted = restated.burst_statuses(rings[number], rules, now)
            assert isinstance(machine, Burst)
            for tag, stored in rings[number].items():
                assert machine.slots(tag) == tuple(restated.slots_in_order(stored, rules.sampling, stored))
        else:
            wanted = restated.standard_statuses(history, rules, now)
        assert list(machine.statuses(now)) == wanted
        for each in BALANCERS:
            picks.compare(each, wanted, outbounds, now)

    driver.each_second(seconds, look, changes)


@pytest.mark.parametrize("name", OBSERVERS)
def test_an_hour_of_outages_is_told_as_xray_tells_it_at_every_second(name: str) -> None:
    _play(OBSERVERS[name], STORY, CHANGES, _HOUR, seed=7)


def test_a_check_of_a_burst_is_stored_and_cancelled_by_no_round() -> None:
    driver = Driver(observer(_BURST, Random(1)), World({"s1": (Phase(0, rtt=5_000),)}))
    driver.outbounds(["s1"])
    driver.until(EPOCH + 59 * SECOND)

    driver.machine.check(driver.now)
    driver.until(EPOCH + 65 * SECOND)

    assert EPOCH + 64 * SECOND in [at for at, _ in driver.told]


def test_a_round_trip_of_no_time_is_not_stored_as_in_xray() -> None:
    machine = observer(_BURST, Random(1))
    machine.outbounds(["s1"], EPOCH)

    for ask in machine.due(EPOCH):
        machine.ended(ask.serial, Result(ok=True, rtt=0), EPOCH)

    assert machine.statuses(EPOCH) == ()


_PHASES = st.builds(
    Phase,
    since=st.integers(1, 90),
    rtt=st.integers(1, 3_000),
    failing=st.sampled_from([0, 0, 30, 100]),
    is_silent=st.booleans(),
)


@st.composite
def _worlds(draw: st.DrawFn) -> World:
    tags = ("s1", "s10", "s2", "t")
    phases = {
        tag: (Phase(0, rtt=draw(st.integers(1, 500))), *sorted(draw(st.lists(_PHASES, max_size=3)))) for tag in tags
    }
    begin = draw(st.integers(0, 100))
    return World(phases, ((begin, begin + draw(st.integers(0, 20))),))


@st.composite
def _changes(draw: st.DrawFn) -> dict[int, tuple[str, ...]]:
    tags = st.lists(st.sampled_from(["direct", "s1", "s10", "s2", "t"]), min_size=1, max_size=5, unique=True).map(tuple)
    return {0: draw(tags), **draw(st.dictionaries(st.integers(1, 100), tags, max_size=3))}


@given(
    world=_worlds(),
    changes=_changes(),
    is_burst=st.booleans(),
    concurrent=st.booleans(),
    sampling=st.integers(1, 4),
    interval=st.integers(1, 12),
    connectivity=st.sampled_from(["", "http://up.example/"]),
    seed=st.integers(0, 9),
)
@settings(max_examples=25, deadline=None)
def test_any_story_is_told_as_xray_tells_it(
    world: World,
    changes: dict[int, tuple[str, ...]],
    is_burst: bool,
    concurrent: bool,
    sampling: int,
    interval: int,
    connectivity: str,
    seed: int,
) -> None:
    rules = ObserverRules(
        is_burst=is_burst,
        selectors=("s", "t"),
        target=_URL,
        interval=interval * SECOND,
        concurrent=concurrent,
        sampling=sampling,
        timeout=2 * SECOND,
        connectivity=connectivity,
    )

    _play(rules, world, changes, 100, seed)
