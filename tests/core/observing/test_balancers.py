"""Who gets a connection: strictly as Xray, leak and all, and by default, where nobody is ever chosen whom nobody named."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.observing import (
    AllUnhealthy,
    BalancerRules,
    Chosen,
    Cost,
    LeastLoad,
    Ping,
    Status,
    Strategy,
    Why,
    balancers,
)
from reachline.core.observing.chosen import Balancer
from reachline.core.observing.values import MS

_TAGS: Final = ("direct", "a1", "a2", "b1", "b2", "null")
_RULES: Final = BalancerRules("x", ("a", "b"))


class _Seen:
    """What is observed, set by hand."""

    def __init__(self, *statuses: Status) -> None:
        self._statuses = statuses
        self._edition = 0
        self.asked = 0

    def put(self, *statuses: Status) -> None:
        self._statuses = statuses
        self._edition += 1

    def statuses(self, now: int) -> tuple[Status, ...]:  # noqa: ARG002
        self.asked += 1
        return self._statuses

    def edition(self, now: int) -> int:  # noqa: ARG002
        return self._edition


def _up(tag: str, ms: int = 50, *, fail: int = 0, number: int = 10, deviation: int = 5) -> Status:
    return Status(tag, alive=True, delay=ms, ping=Ping(number, fail, deviation * MS, ms * MS, ms * MS, ms * MS))


def _down(tag: str) -> Status:
    return Status(tag, alive=False, delay=99_999_999, ping=Ping(10, 10))


def _made(seen: _Seen | None, *rules: BalancerRules) -> Balancer:
    made = balancers(rules, seen)
    for each in made.values():
        each.outbounds(_TAGS, ("null",))
    return made[rules[0].tag]


def _picked(balancer: Balancer, number: int = 200) -> Counter[str | None]:
    rng = Random(1)
    return Counter(balancer.pick(0, rng).tag for _ in range(number))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_choice_is_worked_out_when_something_changes_not_at_a_pick(strategy: Strategy, strict: bool) -> None:
    seen = _Seen(_up("a1"), _up("a2"))
    balancer = _made(seen, _RULES._replace(strategy=strategy, strict=strict))
    rng = Random(1)

    for _ in range(50):
        balancer.pick(0, rng)
        balancer.targets(0)
    once = seen.asked
    seen.put(_up("a1"), _down("a2"))
    balancer.pick(0, rng)

    assert (once, seen.asked) == (1, 2)


# -- strictly ------------------------------------------------------------------------------------------------------------------

_STRICT: Final = _RULES._replace(strict=True)


@pytest.mark.parametrize("strategy", [Strategy.RANDOM, Strategy.ROUND_ROBIN])
def test_strictly_only_a_fallback_tag_filters_the_dead_and_the_unobserved_pass_for_alive(strategy: Strategy) -> None:
    seen = _Seen(_down("a1"), _up("b1"))
    rules = _STRICT._replace(strategy=strategy)

    assert set(_picked(_made(seen, rules))) == {"a1", "a2", "b1", "b2"}
    assert set(_picked(_made(seen, rules._replace(fallback="direct")))) == {"a2", "b1", "b2"}
    assert _made(seen, rules._replace(fallback="direct")).targets(0) == ("a1", "a2", "b1", "b2")


def test_strictly_round_robin_goes_on_from_its_turn_when_the_number_changes() -> None:
    seen = _Seen()
    balancer = _made(seen, _STRICT._replace(strategy=Strategy.ROUND_ROBIN, fallback="direct"))
    rng = Random(1)

    before = [balancer.pick(0, rng).tag for _ in range(3)]
    seen.put(_down("a1"), _down("b2"))
    after = [balancer.pick(0, rng).tag for _ in range(3)]

    assert before == ["a1", "a2", "b1"]
    assert after == ["b1", "a2", "b1"]


@pytest.mark.parametrize("strategy", [Strategy.LEAST_PING, Strategy.LEAST_LOAD])
@pytest.mark.parametrize("statuses", [(), (_down("a1"), _down("b1"))])
def test_strictly_no_data_and_all_dead_leak_to_the_first_outbound(
    strategy: Strategy, statuses: tuple[Status, ...]
) -> None:
    balancer = _made(_Seen(*statuses), _STRICT._replace(strategy=strategy))

    assert balancer.pick(0, Random(1)) == Chosen("direct", Why.DEFAULT)
    assert balancer.targets(0) == ()


def test_strictly_a_fallback_and_an_override_are_taken_unchecked() -> None:
    balancer = _made(_Seen(), _STRICT._replace(strategy=Strategy.LEAST_PING, fallback="nowhere"))

    assert balancer.pick(0, Random(1)) == Chosen("nowhere", Why.FALLBACK)
    assert balancer.override("elsewhere")
    assert balancer.pick(0, Random(1)) == Chosen("elsewhere", Why.OVERRIDE)
    assert balancer.override("")
    assert balancer.pick(0, Random(1)) == Chosen("nowhere", Why.FALLBACK)


def test_strictly_least_ping_takes_the_first_of_equals_and_ignores_failures() -> None:
    balancer = _made(_Seen(_up("b1", 40, fail=9), _up("a1", 40)), _STRICT._replace(strategy=Strategy.LEAST_PING))

    assert balancer.pick(0, Random(1)).tag == "b1"


# -- by default ----------------------------------------------------------------------------------------------------------------


def _names(*statuses: Status, rules: BalancerRules = _RULES) -> tuple[str, ...]:
    return _made(_Seen(*statuses), rules).targets(0)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_dead_are_never_chosen_while_somebody_is_alive(strategy: Strategy) -> None:
    balancer = _made(_Seen(_down("a1"), _down("a2"), _up("b1")), _RULES._replace(strategy=strategy))

    assert set(_picked(balancer)) == {"b1"}


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("policy", list(AllUnhealthy))
@pytest.mark.parametrize("statuses", [(), (_down("a1"),), tuple(map(_down, ("a1", "a2", "b1", "b2")))])
@pytest.mark.parametrize("seen_before", [False, True])
def test_no_data_and_all_dead_never_leak_to_an_outbound_that_nobody_named(
    strategy: Strategy, policy: AllUnhealthy, statuses: tuple[Status, ...], seen_before: bool
) -> None:
    seen = _Seen(*([_up("a1"), _up("b1")] if seen_before else []))
    balancer = _made(seen, _RULES._replace(strategy=strategy, all_unhealthy=policy))
    balancer.pick(0, Random(1))

    seen.put(*statuses)

    assert not set(_picked(balancer)) & {"direct", "null"}


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        (AllUnhealthy.BLOCK, Chosen(None, Why.BLOCKED)),
        (AllUnhealthy.ORDERED, Chosen("a1", Why.ORDERED)),
        (AllUnhealthy.LAST_GOOD, Chosen("b1", Why.LAST_GOOD)),
    ],
)
def test_what_happens_with_all_dead_is_what_the_document_says(policy: AllUnhealthy, chosen: Chosen) -> None:
    seen = _Seen(_up("a1", 90), _up("b1", 50))
    balancer = _made(seen, _RULES._replace(strategy=Strategy.LEAST_PING, all_unhealthy=policy))
    balancer.pick(0, Random(1))

    seen.put(*map(_down, ("a1", "a2", "b1", "b2")))

    assert balancer.pick(0, Random(1)) == chosen


def test_spread_gives_all_of_them_their_share() -> None:
    rules = _RULES._replace(all_unhealthy=AllUnhealthy.SPREAD)

    assert set(_picked(_made(_Seen(*map(_down, ("a1", "a2", "b1", "b2"))), rules))) == {"a1", "a2", "b1", "b2"}


def test_last_good_without_any_is_blocked() -> None:
    assert _made(_Seen(*map(_down, ("a1", "a2", "b1", "b2"))), _RULES).pick(0, Random(1)) == Chosen(None, Why.BLOCKED)


def test_before_any_data_the_candidates_of_the_best_group_share() -> None:
    balancer = _made(_Seen(), _RULES._replace(strategy=Strategy.LEAST_LOAD, groups=(("b",), ("a",)), fallback="direct"))

    assert balancer.pick(0, Random(1)).why is Why.UNOBSERVED
    assert set(_picked(balancer)) == {"b1", "b2"}


def test_a_lower_group_gets_all_once_the_higher_ones_have_nobody_alive() -> None:
    rules = _RULES._replace(groups=(("b",), ("a1",)))
    seen = _Seen(_up("a1"), _up("a2"), _up("b1"), _down("b2"))
    balancer = _made(seen, rules)

    first = balancer.pick(0, Random(1))
    seen.put(_up("a1"), _up("a2"), _down("b1"), _down("b2"))
    second = balancer.pick(0, Random(1))
    seen.put(_down("a1"), _up("a2"), _down("b1"), _down("b2"))
    third = balancer.pick(0, Random(1))

    assert (first, second, third) == (Chosen("b1", Why.CHOSEN), Chosen("a1", Why.LOWER), Chosen("a2", Why.LOWER))


def test_a_balancer_falls_back_to_another_and_that_one_to_an_outbound() -> None:
    rules = (
        BalancerRules("x", ("a",), fallback="y"),
        BalancerRules("y", ("b",), fallback="direct"),
    )
    seen = _Seen(*map(_down, ("a1", "a2")), _up("b1"), _down("b2"))
    balancer = _made(seen, *rules)

    first = balancer.pick(0, Random(1))
    seen.put(*map(_down, ("a1", "a2", "b1", "b2")))
    second = balancer.pick(0, Random(1))

    assert (first, second) == (Chosen("b1", Why.FALLBACK), Chosen("direct", Why.FALLBACK))


def test_a_fallback_that_has_nobody_either_leaves_it_to_the_own_policy() -> None:
    rules = (BalancerRules("x", ("a",), fallback="y", all_unhealthy=AllUnhealthy.ORDERED), BalancerRules("y", ("b",)))

    found = _made(_Seen(*map(_down, ("a1", "a2", "b1", "b2"))), *rules).pick(0, Random(1))

    assert found == Chosen("a1", Why.ORDERED)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_whoever_fails_much_more_often_than_the_best_does_not_compete_however_fast(strategy: Strategy) -> None:
    assert _names(_up("a1", 10, fail=2), _up("a2", 80), rules=_RULES._replace(strategy=strategy)) == ("a2",)
    both = _names(_up("a1", 10, fail=1), _up("a2", 80), rules=_RULES._replace(strategy=strategy))
    assert both in {("a1",), ("a1", "a2")}


@pytest.mark.parametrize(
    ("challenger", "chosen"),
    [(100, "a1"), (91, "a1"), (90, "a1"), (89, "a2"), (20, "a2")],
)
def test_another_takes_over_only_by_the_advantage(challenger: int, chosen: str) -> None:
    seen = _Seen(_up("a1", 100), _up("a2", 200))
    balancer = _made(seen, _RULES._replace(strategy=Strategy.LEAST_PING, least_advantage=5 * MS))
    assert balancer.pick(0, Random(1)).tag == "a1"

    seen.put(_up("a1", 100), _up("a2", challenger))

    assert balancer.pick(0, Random(1)).tag == chosen


def test_near_the_ground_the_advantage_is_a_time() -> None:
    seen = _Seen(_up("a1", 12), _up("a2", 20))
    balancer = _made(seen, _RULES._replace(strategy=Strategy.LEAST_PING))
    balancer.pick(0, Random(1))

    seen.put(_up("a1", 12), _up("a2", 3))

    assert balancer.pick(0, Random(1)).tag == "a1"


def test_least_load_goes_by_latency_times_weight_not_by_jitter() -> None:
    load = LeastLoad(expected=1)
    steady, fast = _up("a1", 300, deviation=1), _up("a2", 50, deviation=20)
    rules = _RULES._replace(strategy=Strategy.LEAST_LOAD, load=load)

    assert _names(steady, fast, rules=rules) == ("a2",)
    assert _names(steady, fast, rules=rules._replace(load=load._replace(costs=(Cost("a2", 49.0),)))) == ("a1",)
    assert _names(steady, fast, rules=rules._replace(load=load._replace(baselines=(100 * MS,)))) == ("a1", "a2")


def test_least_load_holds_its_limits_and_its_number() -> None:
    load = LeastLoad(expected=2, max_rtt=200 * MS, tolerance=0.25)
    statuses = (_up("a1", 250), _up("a2", 100, fail=3), _up("b1", 100), _up("b2", 120))

    assert _names(*statuses, rules=_RULES._replace(strategy=Strategy.LEAST_LOAD, load=load)) == ("b1", "b2")


def test_where_all_that_are_alive_are_beyond_the_limits_the_fallback_is_taken() -> None:
    rules = _RULES._replace(strategy=Strategy.LEAST_LOAD, load=LeastLoad(max_rtt=10 * MS), fallback="direct")
    statuses = (_up("a1"), _up("a2"), _up("b1"), _up("b2"))

    assert _made(_Seen(*statuses), rules).pick(0, Random(1)) == Chosen("direct", Why.FALLBACK)


def test_an_outbound_that_carries_nothing_is_no_candidate_and_may_be_the_fallback() -> None:
    rules = BalancerRules("x", ("",), fallback="null")
    seen = _Seen(*map(_down, ("direct", "a1", "a2", "b1", "b2")))

    assert _made(seen, rules).pick(0, Random(1)) == Chosen("null", Why.FALLBACK)
    assert "null" not in _picked(_made(_Seen(), rules))


@pytest.mark.parametrize("strategy", list(Strategy))
def test_instead_of_those_that_were_tried_it_chooses_as_if_they_were_dead(strategy: Strategy) -> None:
    seen = _Seen(_up("a1", 20), _up("a2", 40), _up("b1", 300), _down("b2"))
    groups = (("a",), ("b",))
    balancer = _made(seen, _RULES._replace(strategy=strategy, groups=groups, fallback="direct"))

    before = balancer.targets(0)

    assert balancer.instead(frozenset(("a1",)), 0) == ("a2",)
    assert balancer.instead(frozenset(("a1", "a2")), 0) == ("b1",)
    assert balancer.instead(frozenset(("a1", "a2", "b1")), 0) == ("direct",)
    assert balancer.instead(frozenset(("a1", "a2", "b1", "direct")), 0) == ()
    assert balancer.targets(0) == before


def test_instead_holds_until_something_changes_and_leaves_the_choice_alone() -> None:
    seen = _Seen(_up("a1", 50), _up("a2", 51))
    balancer = _made(seen, _RULES._replace(strategy=Strategy.LEAST_PING))
    chosen = balancer.targets(0)
    tried = frozenset(chosen)
    asked = [(balancer.instead(tried, 0), seen.asked) for _ in range(3)]
    seen.put(_up("a1", 51), _up("a2", 50))

    assert len(set(asked)) == 1
    assert balancer.targets(0) == chosen, "its advantage was not lost to the one that stood in"
    assert balancer.instead(tried, 0) != chosen


def test_instead_asks_the_balancer_that_it_falls_back_to_and_keeps_an_override() -> None:
    seen = _Seen(_down("a1"), _down("a2"), _up("b1", 20), _up("b2", 40))
    other = BalancerRules("y", ("b",), strategy=Strategy.LEAST_PING)
    balancer = _made(seen, BalancerRules("x", ("a",), strategy=Strategy.LEAST_PING, fallback="y"), other)

    assert balancer.instead(frozenset(("b1",)), 0) == ("b2",)
    balancer.override("a1")
    assert balancer.instead(frozenset(("a1",)), 0) == ()


@pytest.mark.parametrize(
    ("policy", "others"),
    [
        (AllUnhealthy.ORDERED, ("a2",)),
        (AllUnhealthy.SPREAD, ("a2", "b1", "b2")),
        (AllUnhealthy.BLOCK, ()),
        (AllUnhealthy.LAST_GOOD, ()),
    ],
)
def test_instead_with_all_dead_goes_by_the_documents_policy(policy: AllUnhealthy, others: tuple[str, ...]) -> None:
    seen = _Seen(*map(_down, ("a1", "a2", "b1", "b2")))
    balancer = _made(seen, _RULES._replace(all_unhealthy=policy))

    assert balancer.instead(frozenset(("a1",)), 0) == others


def test_an_override_must_exist_and_goes_with_its_outbound() -> None:
    balancer = _made(_Seen(_up("a1")), _RULES)

    assert not balancer.override("nowhere")
    assert balancer.override("direct")
    assert balancer.pick(0, Random(1)) == Chosen("direct", Why.OVERRIDE)
    assert balancer.overridden() == "direct"
    balancer.outbounds(("a1",))
    assert (balancer.overridden(), balancer.pick(0, Random(1)).tag) == ("", "a1")


@given(
    st.lists(
        st.tuples(st.sampled_from(["a1", "a2", "b1", "b2"]), st.booleans(), st.integers(0, 10), st.integers(1, 500)),
        max_size=8,
    ),
    st.sampled_from(list(Strategy)),
    st.sampled_from(list(AllUnhealthy)),
    st.sampled_from(["", "direct", "y"]),
    st.sampled_from([(), (("b",),), (("a1",), ("b",))]),
)
def test_whoever_is_chosen_was_a_candidate_or_the_fallback(
    drawn: list[tuple[str, bool, int, int]],
    strategy: Strategy,
    policy: AllUnhealthy,
    fallback: str,
    groups: tuple[tuple[str, ...], ...],
) -> None:
    statuses = {tag: _up(tag, ms, fail=fail) if alive else _down(tag) for tag, alive, fail, ms in drawn}
    rules = _RULES._replace(strategy=strategy, all_unhealthy=policy, fallback=fallback, groups=groups)
    balancer = _made(_Seen(*statuses.values()), rules, BalancerRules("y", ("b",)))

    found = balancer.pick(0, Random(1))

    allowed = {"a1", "a2", "b1", "b2", None} | ({fallback} if fallback == "direct" else set())
    assert found.tag in allowed
    alive = {tag for tag, status in statuses.items() if status.alive}
    if alive:
        assert found.tag in alive
