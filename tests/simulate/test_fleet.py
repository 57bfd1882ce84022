"""Calls drawn as counts come to the same as calls drawn one by one, and each is told once."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from reachline.model import Failure
from reachline.simulate import fleet
from reachline.simulate.contender import STEP_MS, Called, Choice
from reachline.simulate.fleet import Fleet
from reachline.simulate.paths import Odds
from reachline.simulate.scenarios import Retry, Traffic

ODDS = Odds(0.9, unreachable=0.02, reset=0.01, late=0.04, errors=0.03, mean_ms=64.0, spread_ms=25.0, overs=(0.1, 0.02))
WEIGHTS = {"L1": 1.0, "L2": 3.0}
SPREAD = Choice(1, WEIGHTS)
CLIENTS = ("c0", "c1")


def told(rps: float, steps: int, *, choice: Choice = SPREAD, retry: int = 0) -> tuple[Fleet, list[Called]]:
    traffic = Traffic(rps=rps, retry=Retry(max=retry, budget=0.2))
    found = Fleet(CLIENTS, ("L1", "L2"), {"main": 1.0}, traffic, rng=Random(7))
    found.load(rps, 0)
    found.apply(lambda _: ODDS, 0)
    for client in range(len(CLIENTS)):
        found.choose(client, choice, 0, cold=0)
    calls: list[Called] = []
    for step in range(1, steps + 1):
        calls += found.step(step * STEP_MS)[0]
        if step % 10 == 0:
            calls += [each for client in range(len(CLIENTS)) for each in found.flush(client, step * STEP_MS)]
    return found, calls


def summed(calls: list[Called]) -> Counter[tuple[str, str]]:
    sums: Counter[tuple[str, str]] = Counter()
    for each in calls:
        for name in ("ok", "failed", "late", "errors"):
            sums[each.line, name] += getattr(each, name)
        for place, name in enumerate(("slow", "crawl")[: len(each.over)]):
            sums[each.line, name] += each.over[place]
    return sums


def test_counted_calls_come_to_the_same_as_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = summed(told(200.0, 3_000)[1])
    monkeypatch.setattr(fleet, "PER_CALL_RPS", 1_000.0)
    single = summed(told(200.0, 3_000)[1])

    expected = {"ok": 0.9, "failed": 0.03, "late": 0.04, "errors": 0.03, "slow": 0.09, "crawl": 0.018}
    for line, share in (("L1", 0.25), ("L2", 0.75)):
        for name, part in expected.items():
            mean = 200 * 300 * share * part
            for found in (counted, single):
                assert abs(found[line, name] - mean) < 4.5 * mean**0.5 + 15, (line, name)


def test_the_order_told_holds_every_call_that_did_not_end_well() -> None:
    _, calls = told(200.0, 500)

    for each in calls:
        assert each.order.count(Failure.TIMEOUT) == each.late
        assert each.order.count(Failure.STATUS) == each.errors
        assert len([one for one in each.order if one is not None]) == each.failed + each.late + each.errors
        assert each.order.count(None) <= each.ok


def test_a_late_call_is_told_when_its_caller_gives_up() -> None:
    only_late = Odds(0.0, late=1.0)
    found = Fleet(("c0",), ("L1",), {"main": 1.0}, Traffic(rps=20, retry=Retry(max=0)), rng=Random(7))
    found.load(20, 0)
    found.apply(lambda _: only_late, 0)
    found.choose(0, Choice(1, {"L1": 1}), 0, cold=0)

    early = [called for step in range(1, 11) for called in found.step(step * STEP_MS)[0]]
    later = [called for step in range(11, 31) for called in found.step(step * STEP_MS)[0]]

    assert early == []
    assert sum(each.late for each in later) > 20


def test_callers_try_again_elsewhere_and_stay_within_their_budget() -> None:
    without, _ = told(200.0, 2_000)
    once, calls = told(200.0, 2_000, retry=1)

    assert without.sums.retries == 0
    failed_first = 200 * 200 * (0.02 + 0.01 + 0.04)
    assert once.sums.retries == pytest.approx(failed_first, rel=0.1)
    assert sum(each.ok + each.failed + each.late + each.errors for each in calls) == pytest.approx(
        200 * 200 + once.sums.retries, rel=0.02
    )


def test_a_line_on_trial_gets_one_call_until_the_next_choice() -> None:
    choice = Choice(1, {"L1": 1.0, "L2": 1.0}, trials=frozenset({"L1"}))
    _, calls = told(200.0, 300, choice=choice)

    assert {each.client: each.ok + each.failed + each.late + each.errors for each in calls if each.line == "L1"} == {
        "c0": 1,
        "c1": 1,
    }
