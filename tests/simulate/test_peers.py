"""Each contender against what its own system publishes, and all of them in one small world with a dead line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from random import Random

import pytest

from reachline.model import Failure, Kind
from reachline.simulate.contender import STEP_MS, Called, Contender, Event, Probed, Run, RunLine, Seen, What, Wish
from reachline.simulate.peers import TABLE
from reachline.simulate.peers.envoy import EnvoyLike, EnvoyRules, Host, Outliers, priority_loads, threshold
from reachline.simulate.peers.leastload import Node, Ring, XrayLeastLoad, select
from reachline.simulate.peers.leastping import XrayLeastPing
from reachline.simulate.peers.linkerd import Accrual, Gate, LinkerdLike, PeakEwma, shares
from reachline.simulate.peers.mwan3 import Mwan3Like, Score
from reachline.simulate.peers.polaris import Instance, PolarisLike, State

THREE = ("L1", "L2", "L3")


def run(*, lines: Iterable[str] = THREE, clients: int = 1, policy: str = "weighted", seed: int = 1) -> Run:
    return Run(
        lines=tuple(RunLine(name, role="reserve" if name.startswith("B") else "") for name in lines),
        clients=tuple(f"c{number}" for number in range(clients)),
        vantages=("a1",),
        policy=policy,
        timeout_ms=1_000,
        seed=seed,
        rng=Random(seed),
    )


def bad(calls: int, *, line: str = "L1") -> Called:
    return Called("c0", line, errors=calls, order=(Failure.STATUS,) * calls)


def good(calls: int, *, line: str = "L1") -> Called:
    return Called("c0", line, ok=calls, mean_us=60_000)


def probed(line: str, *, rtt_us: int | None = 60_000, failure: Failure | None = None, at_ms: int = 0) -> Probed:
    return Probed(at_ms, Wish("c0", line, Kind.HTTP, 1_000, 1_000), failure, rtt_us)


# -- Envoy --------------------------------------------------------------------------------------------------------


def envoy(lines: int, **settings: int | bool) -> tuple[Outliers, tuple[Host, ...]]:
    hosts = tuple(Host(RunLine(f"L{number}")) for number in range(lines))
    return Outliers(hosts, EnvoyRules(**settings)), hosts  # type: ignore[arg-type]


def test_envoy_ejections_last_base_times_their_number_and_fade_with_clean_sweeps() -> None:
    """Envoy's unit test of the ejection multiplier: out until 10, 30, 60; two clean sweeps; the next lasts 20 s."""
    outliers, (host, *_) = envoy(1, base_ejection_ms=10_000, interval_ms=10_000)
    back = []

    for second in range(0, 620, 10):
        was = host.ejected
        outliers.sweep(second * 1_000)
        if was and not host.ejected:
            back.append(second)
        if second in (0, 10, 30, 80, 600):
            outliers.called(host, bad(5), second * 1_000)

    assert back == [10, 30, 60, 100, 610]


def test_envoy_success_rate_threshold_is_mean_less_a_multiple_of_the_deviation() -> None:
    """Envoy's unit test: {100, 100, 100, 100, 50} has mean 90, deviation 20, threshold 52."""
    assert threshold([100, 100, 100, 100, 50], 1_900) == pytest.approx(52)


def test_envoy_success_rate_ejects_the_one_that_stands_out_of_five() -> None:
    outliers, hosts = envoy(5)

    for number, host in enumerate(hosts):
        outliers.called(host, Called("c0", host.line.name, ok=100, errors=0 if number else 40, order=()), 1_000)
    outliers.sweep(10_000)

    assert [host.ejected for host in hosts] == [True, False, False, False, False]


def test_envoy_by_its_defaults_ejects_nobody_of_three() -> None:
    """The 1.40 binary: 3 hosts, 10 %: detected, overflowed, none ejected."""
    outliers, (host, *_) = envoy(3, always_eject_one_host=False)

    for step in range(6):
        outliers.called(host, bad(5), step * 100)

    assert (outliers.detected, outliers.overflow, host.ejected) == (6, 6, False)


def test_envoy_fails_a_bad_answer_at_once_and_silence_by_threshold() -> None:
    """The 1.40 binary: 503 fails after 1 probe whatever the threshold, a hang after as many as it says."""
    answers, hangs = Host(RunLine("L1")), Host(RunLine("L2"))
    for host in (answers, hangs):
        host.checked(None, EnvoyRules())

    answers.checked(Failure.STATUS, EnvoyRules())
    found = []
    for _ in range(3):
        hangs.checked(Failure.TIMEOUT, EnvoyRules())
        found.append(hangs.failed_active)

    assert answers.failed_active
    assert found == [False, False, True]


def test_envoy_a_passing_check_brings_an_ejected_host_back() -> None:
    contender = EnvoyLike(run())
    contender.step(Seen(100, [probed(line) for line in THREE]))
    contender.step(Seen(200, calls=[bad(5)]))
    assert "L1" not in contender.choice("c0").weights

    contender.step(Seen(900, [probed("L1")]))

    assert "L1" in contender.choice("c0").weights


@pytest.mark.parametrize(
    ("healthy", "loads"),
    [
        ([(1, 2), (1, 1)], (70, 30)),
        ([(1, 4), (4, 4)], (35, 65)),
        ([(1, 4), (1, 4)], (50, 50)),
        ([(72, 100), (1, 1)], (100, 0)),
    ],
)
def test_envoy_priorities_spill_by_140_percent(healthy: list[tuple[int, int]], loads: tuple[int, ...]) -> None:
    """The tables of Envoy's "Priority levels"."""
    assert priority_loads(healthy) == loads


def test_envoy_panics_where_fewer_than_half_are_healthy() -> None:
    contender = EnvoyLike(run())
    contender.step(Seen(100, [probed(line) for line in THREE]))

    contender.step(Seen(200, [probed(line, failure=Failure.STATUS) for line in ("L1", "L2")]))

    assert set(contender.choice("c0").weights) == set(THREE)


# -- linkerd ------------------------------------------------------------------------------------------------------


def test_linkerd_shuts_after_seven_in_a_row_and_doubles_the_wait_to_a_minute() -> None:
    """linkerd's reference and the unit test of its breaker: shut, one request after the wait, its failure doubles it."""
    accrual, now, waits = Accrual(None), 0, []
    accrual.called([True] * 6 + [False] + [True] * 6, 0)
    gates = [accrual.gate]

    accrual.called([True], 0)
    for _ in range(8):
        waits.append(accrual.until_ms - now)
        now = accrual.until_ms
        accrual.tick(now - 1)
        gates.append(accrual.gate)
        accrual.tick(now)
        accrual.called([True], now)

    assert gates == [Gate.OPEN] + [Gate.SHUT] * 8
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_linkerd_ignores_answers_while_shut_and_opens_on_one_success() -> None:
    accrual = Accrual(None)
    accrual.called([True] * 7, 0)

    accrual.called([False] * 20, 500)
    gates = [accrual.gate]
    accrual.tick(1_000)
    accrual.called([False], 1_100)

    assert [*gates, accrual.gate] == [Gate.SHUT, Gate.OPEN]


def test_linkerd_latency_rises_at_once_and_falls_slowly() -> None:
    """Peak EWMA, decay 10 s."""
    latency = PeakEwma()
    latency.put(500_000, 0)

    latency.put(50_000, 1_000)

    assert latency.value == pytest.approx(50_000 + 450_000 * 0.9048, rel=1e-3)


def test_linkerd_two_choices_spare_the_slow_one() -> None:
    even = shares({"a": (60_000, 1.0), "b": (60_000, 1.0), "c": (60_000, 1.0)})
    skewed = shares({"a": (60_000, 0.2), "b": (60_000, 0.2), "c": (900_000, 0.2)})

    assert all(part == pytest.approx(1 / 3) for part in even.values())
    assert skewed["c"] < 0.02
    assert sum(skewed.values()) == pytest.approx(1)


# -- Polaris ------------------------------------------------------------------------------------------------------


def test_polaris_opens_at_the_tenth_failure_in_a_row_and_sleeps_30_s() -> None:
    instance = Instance(1_000)
    instance.called(bad(9), 0)
    instance.called(good(1), 100)
    instance.called(bad(9), 200)
    states = [instance.state]

    instance.called(bad(1), 300)
    for at in (30_299, 30_300):
        instance.tick(at)
        states.append(instance.state)

    assert states == [State.CLOSED, State.OPEN, State.HALF_OPEN]


@pytest.mark.parametrize(("ok", "errors", "state"), [(5, 5, State.OPEN), (6, 5, State.CLOSED), (4, 5, State.CLOSED)])
def test_polaris_opens_at_half_of_ten_calls_at_the_next_check(ok: int, errors: int, state: State) -> None:
    instance = Instance(1_000)
    instance.called(bad(errors), 0)
    instance.called(good(ok), 100)
    assert instance.state is State.CLOSED

    instance.check(30_000)

    assert instance.state is state


def test_polaris_half_open_wants_ten_successes_and_no_failure() -> None:
    fails, passes = Instance(1_000), Instance(1_000)
    for instance in (fails, passes):
        instance.called(bad(10), 0)
        instance.tick(30_000)
        instance.called(good(9), 30_100)

    fails.called(bad(1), 30_200)
    passes.called(good(1), 30_200)

    assert (fails.state, passes.state) == (State.OPEN, State.CLOSED)


# -- mwan3 --------------------------------------------------------------------------------------------------------


def rounds(text: str, score: Score) -> list[bool]:
    found = []
    for letter in text:
        score = score.after(answered=letter == "+")
        found.append(score.online)
    return found


def test_mwan3_goes_down_after_down_rounds_in_a_row_and_one_answer_fills_the_score() -> None:
    """The tracker's score: down + up when well; each lost round takes one, any answer above `up` restores all."""
    assert rounds("--+---", Score.full(3, 8)) == [True, True, True, True, True, False]


def test_mwan3_comes_back_after_up_rounds_and_a_lost_one_begins_anew() -> None:
    offline = Score(0, 3, 8, online=False)

    assert rounds("+" * 7 + "-" + "+" * 8, offline) == [False] * 15 + [True]


def test_mwan3_needs_one_of_two_addresses() -> None:
    contender = Mwan3Like(run())
    wish = next(each for each in contender.wishes() if each.line == "L1")
    lost, heard = Probed(0, wish, Failure.TIMEOUT, None), Probed(0, wish, None, 60_000)

    for at in range(3):
        contender.step(Seen(at, [lost, heard]))
    assert "L1" in contender.choice("c0").weights
    for at in range(3, 6):
        contender.step(Seen(at, [lost, lost]))

    assert "L1" not in contender.choice("c0").weights


# -- Xray ---------------------------------------------------------------------------------------------------------


def test_leastping_sleeps_after_each_outbound_and_takes_any_status_for_alive() -> None:
    """Xray: the sequential cycle is N × interval; a 403 is alive."""
    contender = XrayLeastPing(run())
    wishes = sorted(contender.wishes(), key=lambda wish: wish.phase_ms)

    contender.step(Seen(100, [probed("L2", failure=Failure.STATUS, rtt_us=20_000), probed("L3", rtt_us=90_000)]))

    assert {wish.every_ms for wish in wishes} == {30_000}
    assert [later.phase_ms - wish.phase_ms for wish, later in pairwise(wishes)] == [10_000] * 2
    assert contender.choice("c0").weights == {"L2": 1}


def test_leastping_leaves_at_one_failure_and_never_takes_the_unobserved() -> None:
    contender = XrayLeastPing(run())
    assert contender.choice("c0").weights == {"L1": 1}  # the first outbound, before anything is known
    contender.step(Seen(100, [probed("L2", rtt_us=20_000), probed("L3", rtt_us=90_000)]))

    contender.step(Seen(200, [probed("L2", failure=Failure.TIMEOUT, rtt_us=None)]))

    assert contender.choice("c0").weights == {"L3": 1}


def test_leastload_ranks_by_deviation_before_latency() -> None:
    """The worked example: 60/140 ms alternating beats 40/160 ms, whose average is the same."""
    calm, restless = Ring(), Ring()
    for at in range(10):
        calm.put(at, 60_000 if at % 2 else 140_000)
        restless.put(at, 40_000 if at % 2 else 160_000)
    nodes = [ring.node(tag, 10) for tag, ring in (("b", restless), ("a", calm))]

    assert [(node.tag, node.cost, node.average) for node in sorted(filter(None, nodes))] == [
        ("a", 40_000, 100_000),
        ("b", 60_000, 100_000),
    ]


@pytest.mark.parametrize(
    ("costs", "expected", "baselines", "count"),
    [
        ((100, 200, 250, 300, 310), 3, (200, 300, 400), 3),
        ((10, 20, 30, 90), 1, (50, 100), 3),
        ((100, 200, 300), 0, (200, 400, 600), 1),
        ((800, 1_000), 0, (500, 700), 0),
        ((800, 1_000, 1_200), 3, (500, 900), 3),
        ((5, 6, 7), 0, (), 1),
    ],
)
def test_leastload_selects_by_baselines(
    costs: tuple[int, ...], expected: int, baselines: tuple[int, ...], count: int
) -> None:
    """The cases of Xray's balancer tests and documents."""
    nodes = [Node(cost, 0, 0, 0, f"t{number}") for number, cost in enumerate(costs)]

    found = select(nodes, expected=expected, baselines=baselines)

    assert found == tuple(f"t{number}" for number in range(count))


def test_leastload_is_alive_while_one_of_its_ten_passed() -> None:
    ring = Ring()
    ring.put(0, 50_000)
    for at in range(1, 10):
        ring.put(at, None)

    assert ring.node("a", 10) == Node(25_000, 50_000, 9, -10, "a")
    ring.put(10, None)
    assert ring.node("a", 10) is None


# -- all of them --------------------------------------------------------------------------------------------------

Dead = Callable[[int], frozenset[str]]


def drive(contender: Contender, who: Run, *, seconds: int, dead: Dead, per_step: int = 6) -> list[Event]:
    """A world of certainties: dead lines never answer, others do in 60 ms; calls are split by weight."""
    wishes, events = contender.wishes(), []
    late: dict[int, list[Called]] = {}
    tried: dict[tuple[str, str], int] = {}
    for now in range(STEP_MS, seconds * 1_000 + 1, STEP_MS):
        gone = dead(now)
        probes = [each for wish in wishes if is_due(wish, now) for each in answers(wish, gone, now)]
        calls, trials = late.pop(now, []), []
        for client in who.clients:
            choice = contender.choice(client)
            counts = split(choice.weights, per_step)
            for line in choice.trials:
                counts[line] = int(tried.get((client, line)) != choice.number)
                if counts[line]:
                    tried[client, line] = choice.number
                    trials.append((client, line))
            for line, count in counts.items():
                if line in gone and count:
                    lost_calls = Called(client, line, late=count, order=(Failure.TIMEOUT,) * count)
                    late.setdefault(now + who.timeout_ms, []).append(lost_calls)
                elif count:
                    calls.append(Called(client, line, ok=count, mean_us=60_000))
        events += contender.step(Seen(now, probes, calls, trials))
    return events


def is_due(wish: Wish, now: int) -> bool:
    return now > wish.phase_ms and (now - 1 - wish.phase_ms) % wish.every_ms < STEP_MS


def answers(wish: Wish, gone: frozenset[str], now: int) -> list[Probed]:
    if wish.line in gone:
        return [Probed(now, wish, Failure.TIMEOUT, None)] * wish.burst
    return [Probed(now, wish, None, 60_000 + 100 * len(wish.line))] * wish.burst


def split(weights: Mapping[str, float], calls: int) -> dict[str, int]:
    total = sum(weights.values())
    return {line: max(1, int(calls * weight / total)) for line, weight in weights.items() if weight}


SEES_IN = {"envoy-like": 3, "linkerd-like": 3, "polaris-like": 4, "mwan3-like": 17, "xray-leastping": 31}


@pytest.mark.parametrize("name", SEES_IN)
def test_every_contender_leaves_a_dead_line_and_comes_back(name: str) -> None:
    who = run(clients=2)
    contender = TABLE[name](who)

    events = drive(contender, who, seconds=280, dead=lambda now: frozenset({"L1"} if 100_000 < now <= 160_000 else ()))

    opened = [event for event in events if event.what is What.OPEN and event.line == "L1"]
    assert {event.client for event in opened} == set(who.clients)
    assert 100 < opened[0].at_ms / 1_000 <= 100 + SEES_IN[name]
    assert not [event for event in events if event.what is What.OPEN and event.line != "L1"]
    if name != "xray-leastping":  # which has one line only, and need not come back to this one
        assert "L1" in contender.choice("c0").weights


def test_leastload_takes_more_than_a_window_to_leave_a_line_that_died() -> None:
    """Documents and complaints: dead after one to two windows of ten minutes."""
    who = run(lines=("L1", "L2"))
    contender = XrayLeastLoad(who)

    events = drive(contender, who, seconds=2_400, dead=lambda now: frozenset({"L1"} if now > 700_000 else ()))

    opened = [event.at_ms / 1_000 for event in events if event.what is What.OPEN and event.line == "L1"]
    assert len(opened) == 1
    assert 1_100 < opened[0] <= 700 + 1_200


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_contender_keeps_the_reserve_for_when_traffic_lines_fail(name: str) -> None:
    who = run(lines=("A1", "A2", "B1"), policy="ab_groups")
    contender = TABLE[name](who)
    long = name == "xray-leastload"

    drive(contender, who, seconds=60, dead=lambda _: frozenset())
    before = dict(contender.choice("c0").weights)
    drive(contender, who, seconds=1_300 if long else 60, dead=lambda _: frozenset({"A1", "A2"}), per_step=9)

    assert "B1" not in before
    after = contender.choice("c0").weights
    assert after.get("B1", 0) >= 0.9 * sum(after.values())


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_contender_gives_its_choice_another_number_with_other_weights(name: str) -> None:
    who = run()
    contender = TABLE[name](who)
    seen: dict[int, dict[str, float]] = {}

    for second in range(40):
        dead = frozenset({"L1"} if second > 10 else ())
        drive(contender, who, seconds=1, dead=lambda _, dead=dead: dead)  # type: ignore[misc]
        choice = contender.choice("c0")
        assert seen.setdefault(choice.number, dict(choice.weights)) == dict(choice.weights)


@pytest.mark.parametrize("made", [LinkerdLike, PolarisLike])
def test_those_without_checks_ask_for_no_probe(made: Callable[[Run], Contender]) -> None:
    assert not made(run()).wishes()
