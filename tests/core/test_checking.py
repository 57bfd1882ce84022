from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.checking import (
    NEW,
    After,
    Check,
    CheckEvent,
    Fault,
    Happened,
    Turn,
    Verdict,
    as_envoy,
    failed_by_call,
    heard,
)
from reachline.core.checking_rules import CheckRules, checked, first_wait_ms, wait_ms
from reachline.errors import ConfigError
from reachline.model import Health

RULES = CheckRules(timeout_ms=500, interval_ms=1_000, unhealthy_threshold=3, healthy_threshold=3)
PASS, BAD = Verdict(), Verdict(Fault.ACTIVE, status=503)
RETRIABLE = Verdict(Fault.ACTIVE, retriable=True, status=503)
CLOSED, SILENT = Verdict(Fault.NETWORK), Verdict(Fault.NETWORK_TIMEOUT)
WELL = NEW._replace(failed=False, first=False)
DOWN = NEW._replace(first=False)


def told(
    check: Check, verdicts: Sequence[Verdict], rules: CheckRules = RULES, *, has_traffic: bool = True
) -> list[After]:
    """What became of a line after each of some verdicts."""
    found = []
    for verdict in verdicts:
        after = heard(check, verdict, rules, line="c/l", has_traffic=has_traffic)
        check = after.check
        found.append(after)
    return found


def healths(check: Check, *verdicts: Verdict, rules: CheckRules = RULES) -> str:
    """One letter each: h healthy, d degraded, u unhealthy, t timeout."""
    return "".join(each.check.health.name[0].lower() for each in told(check, verdicts, rules))


def test_a_new_line_has_failed_until_its_first_pass_which_is_enough() -> None:
    assert NEW.failed
    assert NEW.health is Health.UNKNOWN
    assert healths(NEW, PASS) == "h"


def test_after_a_first_failure_it_takes_the_whole_threshold_of_passes() -> None:
    assert healths(NEW, BAD, PASS, PASS, PASS) == "uuuh"


def test_passes_must_be_in_a_row() -> None:
    assert healths(DOWN, PASS, PASS, SILENT, PASS, PASS, PASS) == "uuttth"


@pytest.mark.parametrize("verdict", [BAD, Verdict(Fault.ACTIVE, status=404), Verdict(Fault.PASSIVE)])
def test_a_wrong_answer_fails_at_once_whatever_the_threshold(verdict: Verdict) -> None:
    assert healths(WELL, verdict) == "u"


@pytest.mark.parametrize("verdict", [CLOSED, RETRIABLE])
def test_network_failures_and_retriable_statuses_fail_at_the_threshold(verdict: Verdict) -> None:
    assert healths(WELL, verdict, verdict, verdict) == "hhu"
    assert healths(WELL, verdict, verdict, PASS, verdict, verdict, verdict) == "hhhhhu"


def test_all_kinds_that_count_share_one_counter() -> None:
    assert healths(WELL, SILENT, RETRIABLE, CLOSED) == "hhu"


def test_silence_is_told_apart_while_it_lasts() -> None:
    assert healths(WELL, SILENT, SILENT, SILENT, CLOSED, SILENT, PASS) == "hhtutt"
    assert healths(WELL, CLOSED, CLOSED, SILENT) == "hht"


def test_count_all_makes_every_failure_wait_for_the_threshold_but_that_of_a_call() -> None:
    rules = RULES._replace(count_all=True)

    assert healths(WELL, BAD, SILENT, BAD, rules=rules) == "hhu"
    assert failed_by_call(WELL, rules).check.failed


def test_a_degraded_pass_is_healthy_with_a_flag_and_a_change() -> None:
    degraded = Verdict(degraded=True)

    first, second, third = told(WELL, (degraded, degraded, PASS))

    assert (first.check.health, first.turn) == (Health.DEGRADED, Turn.CHANGED)
    assert (second.check.health, second.turn) == (Health.DEGRADED, Turn.UNCHANGED)
    assert (third.check.health, third.turn) == (Health.HEALTHY, Turn.CHANGED)


def test_an_immediate_failure_on_a_failing_check_excludes_until_it_is_healthy_again() -> None:
    excluding = Verdict(Fault.ACTIVE, excluded=True)

    found = told(WELL, (excluding, BAD, PASS, PASS, PASS))

    assert [each.check.excluded for each in found] == [True, True, True, True, False]


def test_an_immediate_failure_on_a_call_fails_and_excludes_at_once_and_moves_no_check() -> None:
    after = failed_by_call(WELL, RULES)

    assert (after.check.failed, after.check.excluded, after.turn, after.wait_ms) == (True, True, Turn.CHANGED, None)
    assert after.check.number == WELL.number
    assert failed_by_call(after.check, RULES).turn is Turn.UNCHANGED


def test_the_first_result_ends_being_pending_and_that_is_a_change_whatever_it_is() -> None:
    for verdict in (PASS, BAD, SILENT):
        after = heard(NEW._replace(pending=True), verdict, RULES, line="c/l")

        assert (after.turn, after.check.pending) == (Turn.CHANGED, False)


# Waits.

EVERY = CheckRules(
    timeout_ms=500, interval_ms=1_000, unhealthy_threshold=3, healthy_threshold=3, unhealthy_interval_ms=400,
    unhealthy_edge_interval_ms=200, healthy_edge_interval_ms=600, no_traffic_interval_ms=9_000,
    no_traffic_healthy_interval_ms=7_000,
)  # fmt: skip


def waits(*verdicts: Verdict, check: Check = WELL, rules: CheckRules = EVERY, has_traffic: bool = True) -> list[int]:
    return [each.wait_ms or 0 for each in told(check, verdicts, rules, has_traffic=has_traffic)]


def test_edge_intervals_are_used_while_a_change_is_pending_as_the_binary_does() -> None:
    """Failing gaps 0.2 0.2 0.4 0.4, recovering gaps 0.6 0.6 1.0 1.0."""
    assert waits(SILENT, SILENT, SILENT, SILENT) == [200, 200, 400, 400]
    assert waits(PASS, PASS, PASS, PASS, check=DOWN) == [600, 600, 1_000, 1_000]


def test_intervals_that_are_not_given_are_those_they_refine() -> None:
    bare = RULES._replace(unhealthy_interval_ms=400)

    assert waits(SILENT, SILENT, SILENT, rules=bare) == [400, 400, 400]
    assert waits(SILENT, SILENT, SILENT, rules=RULES) == [1_000, 1_000, 1_000]
    assert waits(PASS, PASS, PASS, check=DOWN, rules=bare) == [1_000, 1_000, 1_000]


def test_without_traffic_checks_are_rare_and_only_what_is_healthy_for_sure_has_its_own_interval() -> None:
    assert waits(PASS, PASS, PASS, check=DOWN, has_traffic=False) == [9_000, 9_000, 7_000]
    assert waits(SILENT, BAD, has_traffic=False) == [9_000, 9_000]
    assert waits(PASS, rules=RULES, has_traffic=False) == [60_000]
    assert waits(PASS, rules=EVERY._replace(no_traffic_healthy_interval_ms=None), has_traffic=False) == [9_000]


def spans(rules: CheckRules) -> tuple[int, int]:
    found = [
        wait_ms(rules, True, False, True, f"c/l{number % 7}", number, seed=1) - rules.interval_ms
        for number in range(400)
    ]
    return min(found), max(found)


def test_both_jitters_add_up_to_what_they_say_and_never_shorten() -> None:
    assert spans(RULES._replace(interval_jitter_ms=100)) == (0, 99)
    low, high = spans(RULES._replace(interval_jitter_percent=20))
    assert low < 10
    assert 190 < high < 200
    low, high = spans(RULES._replace(interval_jitter_ms=100, interval_jitter_percent=20))
    assert 250 < high < 299


def test_chance_is_of_the_line_the_check_and_the_seed_alone() -> None:
    rules = RULES._replace(interval_jitter_ms=10_000)

    def wait(line: str, number: int, seed: int) -> int:
        return wait_ms(rules, True, False, True, line, number, seed=seed)

    assert wait("a", 1, 1) == wait("a", 1, 1)
    assert len({wait("a", 1, 1), wait("b", 1, 1), wait("a", 2, 1), wait("a", 1, 2)}) == 4


def test_the_first_check_is_at_once_or_within_the_initial_jitter() -> None:
    assert first_wait_ms(RULES, line="c/l", seed=1) == 0
    found = {first_wait_ms(RULES._replace(initial_jitter_ms=50), line=f"c/{n}", seed=1) for n in range(300)}
    assert (min(found), max(found)) == (1, 49)


def test_waits_are_clamped_and_never_nothing() -> None:
    assert waits(PASS, rules=RULES._replace(min_wait_ms=1_500)) == [1_500]
    assert waits(PASS, rules=RULES._replace(max_wait_ms=300)) == [300]
    assert waits(PASS, rules=RULES._replace(max_wait_ms=0)) == [1]


@pytest.mark.parametrize("name", ["timeout_ms", "interval_ms", "unhealthy_threshold", "healthy_threshold"])
def test_what_envoy_requires_must_be_there(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: must be a whole number from 1"):
        checked(CheckRules(**{**RULES._asdict(), name: 0}))


# Events.

LOUD = RULES._replace(
    healthy_threshold=2,
    unhealthy_threshold=2,
    always_log_health_check_failures=True,
    always_log_health_check_success=True,
)


def events(check: Check, verdicts: Sequence[Verdict], rules: CheckRules) -> list[list[str]]:
    return [[each.what.name.lower() for each in after.events] for after in told(check, verdicts, rules)]


def test_events_are_those_of_the_binary_in_its_order() -> None:
    bad, degraded = Verdict(Fault.ACTIVE, status=503), Verdict(degraded=True)

    assert events(NEW, (PASS, PASS, bad, bad, degraded, degraded, PASS, SILENT), LOUD) == [
        ["add_healthy"],
        ["success"],
        ["eject_unhealthy", "failure"],
        ["failure"],
        ["success", "degraded"],
        ["add_healthy"],
        ["success", "no_longer_degraded"],
        ["failure"],
    ]


def test_quietly_only_changes_and_a_failing_first_check_are_events() -> None:
    assert events(NEW, (BAD, BAD, PASS, PASS, PASS, PASS, SILENT), RULES) == [
        ["failure"],
        [],
        [],
        [],
        ["add_healthy"],
        [],
        [],
    ]


HOST = (
    '"host":{"socket_address":{"protocol":"TCP","address":"127.0.0.1","port_value":36469,"resolver_name":"",'
    '"ipv4_compat":false,"network_namespace_filepath":""}},"cluster_name":"hch"'
)
END = '"timestamp":"2026-11-30T18:08:21.862Z","locality":{"region":"","zone":"","sub_zone":""}'


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (CheckEvent(Happened.ADD_HEALTHY, first=True), '"add_healthy_event":{"first_check":true}'),
        (
            CheckEvent(Happened.EJECT_UNHEALTHY, Fault.ACTIVE, status=503),
            '"eject_unhealthy_event":{"failure_type":"ACTIVE","http_status_code":503}',
        ),
        (
            CheckEvent(Happened.FAILURE, Fault.NETWORK),
            '"health_check_failure_event":{"failure_type":"NETWORK","first_check":false,"http_status_code":0}',
        ),
        (CheckEvent(Happened.SUCCESS), '"successful_health_check_event":{}'),
        (CheckEvent(Happened.DEGRADED), '"degraded_healthy_host":{}'),
        (CheckEvent(Happened.NO_LONGER_DEGRADED), '"no_longer_degraded_host":{}'),
    ],
)
def test_an_event_as_the_binary_wrote_it(event: CheckEvent, said: str) -> None:
    told_of = as_envoy(
        event, checker="HTTP", host="127.0.0.1", port=36469, cluster="hch", timestamp="2026-11-30T18:08:21.862Z"
    )

    assert told_of == json.loads(f'{{"health_checker_type":"HTTP",{HOST},{said},{END}}}')


def test_the_log_of_a_grpc_check_has_no_status_of_http() -> None:
    event = CheckEvent(Happened.FAILURE, Fault.ACTIVE, status=200)

    told_of = as_envoy(event, checker="GRPC", host="127.0.0.1", port=1, cluster="c", timestamp="")

    assert told_of["health_check_failure_event"] == {
        "failure_type": "ACTIVE", "first_check": False, "http_status_code": 0,
    }  # fmt: skip


verdicts = st.sampled_from(
    (PASS, Verdict(degraded=True), BAD, RETRIABLE, CLOSED, SILENT, Verdict(Fault.ACTIVE, excluded=True))
)


@given(st.lists(verdicts, max_size=30), st.integers(1, 4), st.integers(1, 4), st.booleans(), st.booleans())
def test_whatever_happens_flags_agree_and_enough_of_one_kind_always_decides(
    run: list[Verdict], unhealthy: int, healthy: int, count_all: bool, pending: bool
) -> None:
    rules = RULES._replace(unhealthy_threshold=unhealthy, healthy_threshold=healthy, count_all=count_all)
    check = NEW._replace(pending=pending)
    for verdict in run:
        before, after = check, heard(check, verdict, rules, line="c/l")
        check = after.check
        assert after.wait_ms == rules.interval_ms
        assert not check.first
        assert not check.pending
        assert check.passes < healthy
        assert check.failures < unhealthy or check.failed
        assert not check.timed_out or check.failed
        if check.failed is not before.failed:
            assert after.turn is Turn.CHANGED

    assert not told(check, [PASS] * healthy, rules)[-1].check.failed
    assert told(check, [CLOSED] * unhealthy, rules)[-1].check.failed
