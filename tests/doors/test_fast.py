"""What `mode: fast`, the classes and `enforce` make of a document: rules, plans, provenance, warnings."""

from __future__ import annotations

import pytest

from reachline.core.cusum import QUESTIONS
from reachline.core.rules import (
    SHADOWS,
    BaselineRules,
    BusinessRules,
    GuardRules,
    Patience,
    Rules,
    decode,
    encode,
)
from reachline.doors import reach
from reachline.doors.effective import effective
from reachline.doors.settings import Document, Enforce
from reachline.errors import ConfigError
from reachline.model import Kind, Zone
from reachline.wire.frame import Plan


def document(top: str = "", cluster: str = "") -> Document:
    text = f"{top}\nclusters:\n  c:\n    lines: [http://h/]\n"
    return reach.read(text + "".join(f"    {line}\n" for line in cluster.splitlines()), name="f.yaml")


def rules(top: str = "", cluster: str = "") -> Rules:
    return reach.rules(document(top, cluster), "c")


def plan(top: str = "", cluster: str = "") -> Plan:
    found = document(top, cluster)
    return reach.plan(found, agent="a", locality=reach.locality_of(found, "a"), number=1)


def slow(top: str) -> set[tuple[int, int]]:
    return {(probe.slow_us, probe.crawl_us) for probe in plan(top).lines[0].probes}


def dwell(found: Rules) -> dict[Zone, set[int]]:
    return {zone: {one.dwell for one in found.questions if one.zone is zone} for zone in (Zone.D, Zone.F)}


def test_literal_is_the_default_and_asks_nothing() -> None:
    found = rules()

    assert (found.mode, found.questions, found.tick_ms) == ("literal", (), 10_000)
    assert slow("") == {(0, 0)}


def test_fast_asks_every_question_each_tick_of_two_seconds_and_believes_its_dwell() -> None:
    found = rules("mode: fast")

    assert (found.mode, found.questions, found.tick_ms) == ("fast", QUESTIONS, 2_000)
    assert found.patience == Patience(degraded=1, failed=1, recover=3, lone_failed=1)
    assert found.quorum.fresh_ms == 5_000


def test_agents_report_each_tick_and_know_what_is_slow() -> None:
    assert plan("mode: fast").heartbeat_ms == 2_000
    assert slow("mode: fast") == {(200_000, 500_000)}
    assert slow("mode: fast\nclass: rpc") == {(100_000, 300_000)}


def test_a_dead_connect_is_known_as_such_after_a_little_more_than_a_second() -> None:
    [probe] = [probe for probe in plan("mode: fast").lines[0].probes if probe.kind is Kind.TCP]

    assert (probe.timeout_ms, probe.patience_ms) == (1_000, 100)


@pytest.mark.parametrize(
    ("said", "ticks"), [("", (2, 3)), ("preset: quick_recovery", (2, 2)), ("preset: high_stability", (3, 5))]
)
def test_patience_is_how_long_a_question_must_dwell(said: str, ticks: tuple[int, int]) -> None:
    assert dwell(rules(f"mode: fast\n{said}")) == {Zone.D: {ticks[0]}, Zone.F: {ticks[1]}}


@pytest.mark.parametrize(("lone", "further"), [(4, 1), (6, 1), (8, 3)])
def test_a_lone_vantage_waits_for_what_is_left_of_its_patience_after_twice_the_dwell(lone: int, further: int) -> None:
    assert rules(f"mode: fast\npatience: {{lone_failed: {lone}}}").patience.lone_failed == further


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("class: bulk", {"failed"}),
        ("limits: {p95: {failed: never}}", {"failed", "slow"}),
        ("limits: {p95: ignore}", {"failed"}),
    ],
)
def test_what_is_never_slow_is_not_asked_about(said: str, asked: set[str]) -> None:
    assert {one.what for one in rules(f"mode: fast\n{said}").questions} - {"errors"} == asked


@pytest.mark.parametrize(
    ("top", "cluster", "mode", "tick", "source"),
    [
        ("mode: fast", "", "fast", 2_000, "mode fast"),
        ("mode: fast", "mode: literal", "literal", 10_000, "default"),
        ("", "mode: fast", "fast", 2_000, "mode fast"),
        ("mode: fast\npreset: quick_recovery", "", "fast", 2_000, "preset quick_recovery"),
        ("mode: fast\njudge: {tick: 4s}", "", "fast", 4_000, "f.yaml:2:15"),
        ("mode: fast\njudge: {tick: 4s}", "judge: {tick: 5s}", "fast", 5_000, "f.yaml:6:19"),
    ],
)
def test_a_mode_is_beneath_presets_and_keys_and_config_show_tells_who_said_a_number(
    top: str, cluster: str, mode: str, tick: int, source: str
) -> None:
    found = rules(top, cluster)

    assert (found.mode, found.tick_ms) == (mode, tick)
    assert effective(document(top, cluster), "c").sources.get(("judge", "tick"), "default") == source


def test_one_cluster_may_be_fast_beside_a_literal_one() -> None:
    text = "clusters:\n  a: {lines: [tcp://h:1], mode: fast}\n  b: {lines: [tcp://h:2]}\n"
    found = reach.read(text, name="f.yaml")
    given = reach.plan(found, agent="x", locality=reach.locality_of(found, "x"), number=1)

    assert [reach.rules(found, name).mode for name in "ab"] == ["fast", "literal"]
    assert given.heartbeat_ms == 2_000
    assert [line.probes[0].slow_us for line in given.lines] == [200_000, 0]


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("limits: {loss: {degraded: 2%}}", "limits.loss: is not read in mode fast"),
        ("limits: {jitter: ignore}", "limits.jitter: is not read in mode fast"),
        ("judge: {vote_share: 60%}", "judge.vote_share: is not read in mode fast"),
        ("patience: {lone_failed: 4}", "patience.lone_failed: counts as 6 in mode fast"),
    ],
)
def test_what_fast_does_not_read_is_told_and_literal_says_nothing_of_it(said: str, rule: str) -> None:
    assert [rule in str(warning) for warning in document(f"mode: fast\n{said}").warnings] == [True]
    assert document(said).warnings == ()


def test_a_long_haul_is_measured_by_its_own_usual_round_trip() -> None:
    assert rules("class: long_haul").baseline == BaselineRules(degraded_milli=2_500, failed_milli=5_000)
    assert rules("class: long_haul", "class: rpc").baseline == BaselineRules()


def test_every_rule_acts_unless_the_document_says_otherwise() -> None:
    found = rules()

    assert (found.enforce, found.shadowed) == (True, ())
    assert all(map(found.acts, SHADOWS))
    assert tuple(Enforce.model_fields) == SHADOWS


@pytest.mark.parametrize("said", ["enforce: false", f"enforce: {{{', '.join(f'{name}: false' for name in SHADOWS)}}}"])
def test_a_document_that_enforces_nothing_acts_by_no_rule_and_no_client_does_either(said: str) -> None:
    found = rules(said)

    assert not found.enforce
    assert not any(map(found.acts, SHADOWS))
    assert found.local.max_open_milli == 0


@pytest.mark.parametrize(
    ("top", "cluster", "shadowed"),
    [
        ("enforce: {breaker: false}", "", ("breaker",)),
        ("enforce: {breaker: false}", "enforce: {faults: false}", ("breaker", "faults")),
        ("enforce: false", "enforce: {breaker: true}", tuple(name for name in SHADOWS if name != "breaker")),
        ("enforce: {breaker: false}", "enforce: true", ()),
    ],
)
def test_a_cluster_may_say_of_each_rule_whether_it_acts(top: str, cluster: str, shadowed: tuple[str, ...]) -> None:
    found = rules(top, cluster)

    assert (found.enforce, found.shadowed) == (True, shadowed)
    assert [found.acts(name) for name in SHADOWS] == [name not in shadowed for name in SHADOWS]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "enforce: no",
            "f.yaml:1:10: enforce: must be true, false or a block of rules; write false: in YAML 1.2 no is",
        ),
        ("enforce: {braker: false}", "f.yaml:1:11: enforce.braker: unknown key; did you mean 'breaker'?"),
        ("enforce: {breaker: off}", "f.yaml:1:20: enforce.breaker: must be true or false"),
        ("mode: quick", "f.yaml:1:7: mode: must be literal or fast"),
    ],
)
def test_a_wrong_mode_or_enforcement_is_told_with_its_place(said: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        document(said)

    assert str(caught.value.problems[0]).startswith(message)


def test_a_trial_fails_by_its_rate_in_fast_mode_and_by_three_failures_in_literal() -> None:
    assert [rules(said).breaker.fail_milli for said in ("mode: fast", "mode: literal")] == [10, 0]
    assert rules("mode: fast\ncircuit_breaker: {half_open: {fail_rate: never}}").breaker.fail_milli == 0
    assert rules("circuit_breaker: {half_open: {fail_rate: 2%}}").breaker.fail_milli == 20


def test_the_breaker_may_try_early_and_take_its_steps_for_shares() -> None:
    breaker = rules("circuit_breaker: {early_trial: true, ratio_mode: share}").breaker

    assert (breaker.early_ms, breaker.share_steps) == (20_000, True)


def test_how_far_automation_may_go_and_what_calls_say_are_the_documents_to_decide() -> None:
    said = "guard: {max_open: 30%, panic: 40%, alive: 20s, group: 10s, fill: 90%}\n"
    found = rules(said + "business: {span: 20s, calls: 10, clients: 1, conflict_ticks: 4, hold: 30s}")

    assert found.guard == GuardRules(300, 400, 20_000, 10_000, 900)
    assert found.business == BusinessRules(20_000, 10, 1, 4, 30_000)
    assert (rules().guard, rules().business) == (GuardRules(), BusinessRules())


def test_rules_of_every_kind_stand_in_the_journal_as_they_are() -> None:
    found = rules("mode: fast\nclass: long_haul\nenforce: {breaker: false, local: false}")

    assert decode(encode(found)) == found
