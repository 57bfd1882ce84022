"""What a cluster obeys: the tables of presets and classes, precedence, provenance, and what follows from what."""

from __future__ import annotations

import pytest

from reachline.core.rules import FAULT, ONE, BreakerRules, Limit, Patience, QuorumRules, Rules, power
from reachline.doors import reach
from reachline.doors.effective import effective, steps
from reachline.doors.settings import Document


def document(top: str = "", cluster: str = "") -> Document:
    text = f"{top}\nclusters:\n  c:\n    lines: [tcp://h:1]\n"
    indented = "".join(f"    {line}\n" for line in cluster.splitlines())
    return reach.read(text + indented, name="e.yaml")


def rules(top: str = "", cluster: str = "") -> Rules:
    return reach.rules(document(top, cluster), "c")


def limits(top: str = "", cluster: str = "") -> dict[str, Limit]:
    return {limit.metric: limit for limit in rules(top, cluster).limits}


TABLE = (
    Limit("loss", 10, 5, 50, 30, 25),
    Limit("timeout", 20, 10, 50, 30, 25),
    Limit("errors", 20, 10, 100, 50, 5),
    Limit("p95", 200_000, 160_000, 500_000, 400_000, 20),
    Limit("ewma", 150_000, 120_000, 400_000, 320_000, 5),
    Limit("jitter", 150_000, 120_000, 400_000, 320_000, 20),
    Limit("connect", None, None, 0, 3, 3),
)


def test_the_limits_of_the_table_are_the_default() -> None:
    assert rules().limits == TABLE


def test_the_default_is_what_the_core_calls_default() -> None:
    found = rules()

    assert found.patience == Patience()
    assert found.quorum == QuorumRules()
    assert found.breaker == BreakerRules()
    assert found.local == Rules().local
    assert (found.tick_ms, found.mode, found.policy, found.enforce) == (10_000, "literal", ("weighted",), True)


@pytest.mark.parametrize(
    ("preset", "tick", "probe", "suspect", "alpha", "patience", "share", "fresh"),
    [
        ("quick_recovery", 2_000, 2_000, 1_000, 500, (2, 2, 2), 500, 5_000),
        ("default", 10_000, 5_000, 2_000, 300, (2, 3, 3), 500, 25_000),
        ("high_stability", 10_000, 5_000, 2_000, 200, (3, 5, 6), 667, 25_000),
    ],
)
def test_presets_watch_and_judge_as_their_table_says(
    preset: str, tick: int, probe: int, suspect: int, alpha: int, patience: tuple[int, int, int], share: int, fresh: int
) -> None:
    found = document(f"preset: {preset}")
    [line] = reach.plan(found, agent="a", locality=reach.locality_of(found, "a"), number=1).lines
    judged = reach.rules(found, "c")

    assert judged.tick_ms == tick
    assert (line.probes[0].interval_ms, line.probes[0].suspect_interval_ms, line.alpha_milli) == (probe, suspect, alpha)
    assert judged.patience[:3] == patience
    assert (judged.quorum.share_milli, judged.quorum.fresh_ms) == (share, fresh)


@pytest.mark.parametrize(
    ("preset", "breaker"),
    [
        ("quick_recovery", (30_000, 480_000, (100, 250, 500, 1_000), 15_000, 15_000, 100)),
        ("default", (60_000, 960_000, (50, 100, 200, 400, 600, 1_000), 30_000, 30_000, 200)),
        ("high_stability", (120_000, 1_920_000, (20, 50, 100, 200, 400, 700, 1_000), 60_000, 60_000, 500)),
    ],
)
def test_presets_wait_and_return_as_their_table_says(preset: str, breaker: tuple[object, ...]) -> None:
    found = rules(f"preset: {preset}").breaker

    assert (
        found.cooldown_ms,
        found.cooldown_cap_ms,
        found.steps_milli,
        found.trial_ms,
        found.step_ms,
        found.min_ok,
    ) == breaker


@pytest.mark.parametrize(("preset", "seconds"), [("quick_recovery", 75), ("default", 210), ("high_stability", 480)])
def test_full_weight_returns_as_long_after_the_trip_as_the_table_says(preset: str, seconds: int) -> None:
    found = rules(f"preset: {preset}").breaker

    assert found.cooldown_ms + found.step_ms * (len(found.steps_milli) - 1) == seconds * 1_000


def test_five_percent_of_high_stability_would_not_fit_its_480_seconds() -> None:
    found = rules("preset: high_stability\ncircuit_breaker: {half_open: {traffic_ratio: 0.05}}").breaker

    assert found.steps_milli == (50, 100, 200, 400, 700, 1_000)
    assert found.cooldown_ms + found.step_ms * (len(found.steps_milli) - 1) == 420_000


@pytest.mark.parametrize(
    ("preset", "age"), [("quick_recovery", 30_000), ("default", 120_000), ("high_stability", 120_000)]
)
def test_a_window_forgets_before_the_cooldown_of_its_preset_ends(preset: str, age: int) -> None:
    found = document(f"preset: {preset}")
    [line] = reach.plan(found, agent="a", locality=reach.locality_of(found, "a"), number=1).lines

    assert {probe.max_age_ms for probe in line.probes} == {age}


@pytest.mark.parametrize(
    ("preset", "decay", "half_life"),
    [("quick_recovery", 0.25, 15), ("default", 0.15, 30), ("high_stability", 0.10, 60)],
)
def test_presets_charge_faults_as_their_table_says(preset: str, decay: float, half_life: int) -> None:
    found = rules(f"preset: {preset}").faults

    assert power(found.cost, FAULT) / ONE == pytest.approx(2.718_281_828**-decay, rel=1e-6)
    assert power(found.fade, half_life * 1_000) / ONE == pytest.approx(0.5, rel=1e-6)


def test_two_of_three_votes_are_not_more_than_two_thirds() -> None:
    share = rules("preset: high_stability").quorum.share_milli

    assert share * 3 >= 2 * 1_000
    assert share * 4 < 3 * 1_000
    assert share * 7 < 5 * 1_000


def test_rpc_is_stricter_about_p95_alone() -> None:
    found = limits(cluster="class: rpc")

    assert found.pop("p95") == Limit("p95", 100_000, 80_000, 300_000, 240_000, 20)
    assert tuple(found.values()) == tuple(limit for limit in TABLE if limit.metric != "p95")


def test_bulk_ignores_round_trips_and_jitter() -> None:
    found = limits(cluster="class: bulk")

    assert all(found[metric][1:5] == (None,) * 4 for metric in ("p95", "ewma", "jitter"))
    assert found["loss"] == TABLE[0]


def test_a_key_wins_over_a_block_wins_over_a_preset() -> None:
    found = effective(
        document("preset: quick_recovery\npatience: {failed: 4, recover: 5}", "patience: {recover: 6}"), "c"
    )
    patience = found.settings.patience

    assert (patience.degraded, patience.failed, patience.recover) == (2, 4, 6)
    assert found.sources["patience", "degraded"] == "preset quick_recovery"
    assert found.sources["patience", "failed"] == "e.yaml:2:20"
    assert found.sources["patience", "recover"] == "e.yaml:6:25"
    assert ("patience", "lone_failed") not in found.sources


def test_the_block_at_the_top_wins_over_a_preset_named_in_the_cluster() -> None:
    found = effective(document("patience: {failed: 4}", "preset: high_stability"), "c")

    assert (found.settings.patience.failed, found.settings.patience.recover) == (4, 6)
    assert found.sources["preset",] == "e.yaml:5:13"


def test_explicit_limits_win_over_a_class() -> None:
    assert limits("limits: {p95: {degraded: 150ms}}", "class: rpc")["p95"] == Limit(
        "p95", 150_000, 120_000, 300_000, 240_000, 20
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("p95: {degraded: 100ms}", Limit("p95", 100_000, 80_000, 500_000, 400_000, 20)),
        ("p95: {degraded: 100ms, exit: 50ms}", Limit("p95", 100_000, 50_000, 500_000, 400_000, 20)),
        ("p95: {failed: 1s}", Limit("p95", 200_000, 160_000, 1_000_000, 800_000, 20)),
        ("p95: {failed: never}", Limit("p95", 200_000, 160_000, None, None, 20)),
        ("p95: {samples: 40}", Limit("p95", 200_000, 160_000, 500_000, 400_000, 40)),
        ("loss: {degraded: 2%, failed: 10%}", Limit("loss", 20, 10, 100, 60, 25)),
        ("errors: ignore", Limit("errors", None, None, None, None, 5)),
    ],
)
def test_an_exit_that_is_not_said_keeps_its_proportion(said: str, expected: Limit) -> None:
    assert limits(cluster=f"limits: {{{said}}}")[expected.metric] == expected


def test_what_follows_another_key_says_so() -> None:
    found = effective(
        document(cluster="limits: {p95: {degraded: 100ms}}\ncircuit_breaker: {cooldown_seconds: 30}"), "c"
    )

    assert found.sources["limits", "p95", "exit"].startswith("follows degraded, e.yaml:")
    assert found.sources["circuit_breaker", "max_cooldown_seconds"] == "follows cooldown_seconds"
    assert found.settings.circuit_breaker.max_cooldown_seconds == 480


BLOCK = """\
circuit_breaker:
  cooldown_seconds: 60
  half_open:
    traffic_ratio: 0.05
    min_window_seconds: 30
    min_success_requests: 200
    max_success_requests: 1000
    fail_threshold: 3
    cooldown_multiplier: 2.0
  recovery:
    step_ratios: [0.05, 0.1, 0.2, 0.4, 0.6, 1.0]
    step_interval_seconds: 30
"""
RAISED = """\
circuit_breaker:
  cooldown_seconds: 60
  half_open: {traffic_ratio: 0.05, min_window_seconds: 30, min_success_requests: 200, max_success_requests: 1000, fail_threshold: 3}
  cooldown_multiplier: 3.0
recovery: {step_ratios: [0.05, 1.0], step_interval_seconds: 45}
"""


def test_the_block_of_the_source_document_is_read_as_it_stands() -> None:
    assert rules(BLOCK).breaker == BreakerRules()


def test_what_stands_one_level_too_high_is_read_there_and_shown_from_there() -> None:
    found = effective(document(RAISED), "c")
    breaker = rules(RAISED).breaker

    assert (breaker.multiplier_milli, breaker.steps_milli, breaker.step_ms) == (3_000, (50, 1_000), 45_000)
    assert found.sources["circuit_breaker", "half_open", "cooldown_multiplier"] == "e.yaml:4:24"
    assert found.sources["circuit_breaker", "recovery", "step_interval_seconds"] == "e.yaml:5:61"


@pytest.mark.parametrize(
    ("ratio", "ladder", "expected"),
    [
        (0.05, (0.05, 0.1, 1.0), (0.05, 0.1, 1.0)),
        (0.1, (0.05, 0.1, 0.2, 1.0), (0.1, 0.2, 1.0)),
        (0.05, (0.2, 1.0), (0.05, 0.2, 1.0)),
        (0.05, (1.0,), (0.05, 1.0)),
    ],
)
def test_the_ladder_begins_with_the_trial(ratio: float, ladder: tuple[float, ...], expected: tuple[float, ...]) -> None:
    assert steps(ratio, ladder) == expected


def test_a_policy_may_be_stacked_and_named_short() -> None:
    lines = (
        "{a: {to: tcp://h:1, role: [A, primary]}, b: {to: tcp://h:2, role: [A, backup]}, c: {to: tcp://h:3, role: B}}"
    )
    found = reach.read(f"clusters: {{c: {{lines: {lines}, policy: [ab, primary_backup]}}}}", name="e.yaml")

    assert reach.rules(found, "c").policy == ("ab_groups", "primary_backup")
    assert [sorted(line.roles) for line in reach.lines(found, "c")] == [
        ["primary", "traffic"],
        ["backup", "traffic"],
        ["reserve"],
    ]


def test_every_preset_is_consistent_in_itself() -> None:
    for preset in ("quick_recovery", "default", "high_stability"):
        for service_class in ("rpc", "bulk"):
            assert document(f"preset: {preset}\nclass: {service_class}").warnings == ()
