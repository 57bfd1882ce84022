"""Each hole of the source documents: the test of the rule that closes it, and ways to take exactly that rule out.

A way patches the one function, field or row of a table that carries the rule, as if it had never been written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest
from tests.core.holes import test_breaker as breaking
from tests.core.holes import test_evidence as evidence
from tests.core.holes import test_judging as judging
from tests.core.holes import test_operation as operation
from tests.core.holes import test_policy as policy
from tests.core.holes import test_vote as vote
from tests.core.holes.world import ruled

from reachline.center.hold import Hold
from reachline.center.roster import Roster
from reachline.core import (
    breaker,
    cusum,
    direction,
    ejection,
    freeze,
    guard,
    histogram,
    judge,
    kinds,
    local,
    outlier_rules,
    pour,
    quorum,
    regroup,
    scope,
    silence,
    tempo,
    tiers,
    trust,
    weigh,
    window,
    zone,
)
from reachline.core import groups as risks
from reachline.core.board import Board
from reachline.core.credit import Credit
from reachline.core.echo import brought
from reachline.core.groups import Groups
from reachline.core.ledger import Ledger
from reachline.core.poll import Poll
from reachline.core.row import Row
from reachline.core.rules import FAULT, ONE, Rules
from reachline.doors import heartbeat, presets, reach
from reachline.model import Counts, Gate, Kind, VantageId, Version, Zone
from reachline.net import kernel
from reachline.simulate.ran import Ran
from reachline.upstream.cluster import Cluster
from reachline.wire import listed, view

__all__ = ["TABLE", "Hole", "Way", "caches"]

Way = Callable[[pytest.MonkeyPatch], None]
_OURS: Final = ("reachline.", "tests.core.holes.")
_EVER: Final = 10**9


class Hole(NamedTuple):
    """The test of the rule that closes it, and the ways to take that out; each must fail the test."""

    test: Callable[[], None]
    ways: tuple[Way, ...]


def caches() -> Iterator[Callable[[], None]]:
    """What forgets the answers that functions of ours remember."""
    for name, module in list(sys.modules.items()):
        for value in list(vars(module).values()) if name.startswith(_OURS) else ():
            if callable(forget := getattr(value, "cache_clear", None)):
                yield forget


def _instead(was: Callable[..., Any], by: Callable[..., Any]) -> Way:
    """Wherever this function goes by a name, the other."""

    def put(patch: pytest.MonkeyPatch) -> None:
        for name, module in list(sys.modules.items()):
            for key, value in list(vars(module).items()) if name.startswith(_OURS) else ():
                if value is was and module is not sys.modules[__name__]:
                    patch.setattr(module, key, by)

    return put


def _method(of: type, name: str, by: object) -> Way:
    return lambda patch: patch.setattr(of, name, by)


def _number(module: object, name: str, value: object) -> Way:
    return lambda patch: patch.setattr(module, name, value)


def _in_table(table: Mapping[str, Any], **rows: object) -> Way:
    def put(patch: pytest.MonkeyPatch) -> None:
        for key, value in rows.items():
            patch.setitem(table, key, value)  # type: ignore[arg-type]

    return put


def _compiled(change: Callable[[Rules], Rules]) -> Way:
    """The document's rules with something changed."""
    rules = reach.rules
    return _instead(rules, lambda document, cluster: change(rules(document, cluster)))


def _rules(**parts: Mapping[str, object]) -> Way:
    return _compiled(lambda rules: ruled(rules, **parts))


def _limits(wanted: Callable[[str], bool]) -> Way:
    """Only these rows of the table of limits."""
    return _compiled(lambda rules: replace(rules, limits=tuple(one for one in rules.limits if wanted(one.metric))))


def _judged(change: Callable[[judge.Judgement, Zone, Callable[..., judge.Judgement]], judge.Judgement]) -> Way:
    """Another judge: `change(row, zone, judged)`, `judged(row)` being what ours says of a row."""
    real = judge.judge

    def other(row: judge.Judgement, zone: Zone, elapsed_ms: int, **more: Any) -> judge.Judgement:
        return change(row, zone, lambda row, **other: real(row, zone, elapsed_ms, **(more | other)))

    return _instead(real, other)


def _relabelled(row: judge.Judgement, zone: Zone, ours: Callable[..., judge.Judgement]) -> judge.Judgement:
    """As the source document's code: two degraded samples make a line degraded, whatever it was."""
    after = ours(row)
    return after._replace(health=judge._DEGRADED) if zone is Zone.D and after.bad >= 2 else after


def _apart(row: judge.Judgement, zone: Zone, ours: Callable[..., judge.Judgement]) -> judge.Judgement:
    """As the source document's code: each counter counts its own zone, and the other zone does not concern it."""
    after = ours(row)
    match zone:
        case Zone.D:
            return after._replace(down=row.down)
        case Zone.F:
            return after._replace(bad=row.bad)
        case _:
            return after


def _by_ticks(*args: Any, elapsed_ms: int, **more: Any) -> int:
    return _FAULTS(*args, elapsed_ms=10_000, **more)


_FAULTS: Final = judge._faults
_ADVANCE: Final = breaker.advance
_OPEN_AGAIN: Final = breaker.open_again
_COUNT: Final = breaker.count
_HAS_FAILED: Final = breaker._has_failed
_MEASURES: Final = zone._measures
_VERDICT: Final = zone.verdict
_REFUSAL: Final = guard._Left.refusal
_REPORT: Final = Ledger.report
_SNAPSHOT: Final = Board.snapshot
_REPLACE: Final = Cluster.replace
_HEARD: Final = Roster.heard
_LINE: Final = view.line
_READING: Final = heartbeat.reading
_DECODE: Final = freeze.decode
_FIND: Final = direction.find
_RANK: Final = window.nearest_rank
_WAIT: Final = ejection.wait_ms
_GROUPS: Final = tiers.TABLE["ab_groups"]


def _unfrozen(row: breaker.Breaker, zone: Zone, now_ms: int, **more: Any) -> breaker.Move:
    """As the source document's code: every further failure sets the cooldown anew."""
    if row.gate is Gate.OPEN and zone is Zone.F:
        return breaker.Move(row._replace(until_ms=now_ms + 60_000))
    return _ADVANCE(row, zone, now_ms, **more)


def _unheld(row: breaker.Breaker, zone: Zone, now_ms: int, **more: Any) -> breaker.Move:
    """A degraded verdict does not hold the ramp."""
    return _ADVANCE(row, Zone.H if row.gate is Gate.RAMP and zone is Zone.D else zone, now_ms, **more)


def _unasked(row: breaker.Breaker, *more: Any) -> bool:
    """Only the trial asks how calls end."""
    return row.gate is Gate.HALF_OPEN and _HAS_FAILED(row, *more)


def _undoubled(row: breaker.Breaker, now_ms: int, **more: Any) -> breaker.Breaker:
    """A failure in the ramp is a first opening."""
    return (breaker.trip if row.gate is Gate.RAMP else _OPEN_AGAIN)(row, now_ms, **more)


def _by_time(row: breaker.Breaker, now_ms: int, rules: Any) -> breaker.Move:
    """Reopenings are forgiven by time alone."""
    is_old = row.reopens and now_ms - row.since_ms >= rules.reset_ms
    return breaker.Move(row._replace(reopens=0), "breaker.forgiven") if is_old else breaker.Move(row)


def _whenever(row: breaker.Breaker, *, window: int, **more: Any) -> breaker.Breaker:
    """Calls count for the window that is open, whenever they were made."""
    return _COUNT(row, window=row.window, **more)


def _measured(change: Callable[[Any, Any], Any]) -> Way:
    """Each measure of a reading as `change(measure, reading)`."""
    return _instead(_MEASURES, lambda reading, limits: [change(one, reading) for one in _MEASURES(reading, limits)])


def _of_connects(measure: Any, reading: Any) -> Any:
    return measure._replace(denominator=reading.counts.attempts) if measure.name == "loss" else measure


def _with_late(measure: Any, reading: Any) -> Any:
    found = measure.numerator + reading.counts.late
    return measure._replace(numerator=found) if measure.name == "loss" else measure


def _intervals(change: Callable[[Any], Mapping[str, object]]) -> Way:
    """Of each interval only what a round trip tells."""
    return _instead(_FIND, lambda seen, *of, **more: _FIND([one._replace(**change(one)) for one in seen], *of, **more))


def _whole_window(readings: Any, decides: Any) -> tuple[cusum.Evidence, Kind | None]:
    """Evidence is what windows hold, new or not."""
    (reading,) = readings
    attempts = reading.counts.attempts
    return brought(attempts, attempts - reading.counts.ok, 0, 0), reading.kind


def _twice(self: Ledger, vantage: VantageId, readings: Any, **more: Any) -> None:
    """A second report between two ticks is a second vantage's."""
    if self.poll.credit.spoke.get(vantage):
        vantage = VantageId(f"{vantage}/2")
        self.poll.vantages |= {vantage}
    _REPORT(self, vantage, readings, **more)


def _unsorted(self: Board) -> Any:
    found = _SNAPSHOT(self)
    return replace(found, standings=tuple(sorted(found.standings, key=lambda one: one.line)))


def _any_version(self: Cluster, lines: Any, **more: Any) -> bool:
    return _REPLACE(self, replace(lines, version=max(lines.version, self.version or Version(0, 0))), **more)


def _unplaced(self: Roster, agent: Any, *more: Any) -> Any:
    agent.sequence = (0, 0)
    return _HEARD(self, agent, *more)


def _forgotten(frozen: bytes, ledger: type[Ledger]) -> Ledger:
    """A center that keeps no state."""
    found = _DECODE(frozen, ledger)
    found.rows = dict.fromkeys(found.rows, Row())
    return found


def _believed(told: heartbeat.ForeignHeartbeat) -> Any:
    """The agent's status is what it says."""
    found, count = _READING(told), told.samples
    return found._replace(counts=Counts(late=count) if told.status == "down" else Counts(ok=count))


def _unwarned(self: Groups, line: object, row: Row) -> Row:
    return row


def _refusing(unless: str) -> Way:
    """A guard without one of its rules."""

    def refusal(self: Any, line: Any, **more: Any) -> str:
        why = _REFUSAL(self, line, **more)
        return "" if why == unless else why

    return _method(guard._Left, "refusal", refusal)


def _open_too(lines: Any, kept: dict[int, int], conceded: int, faults: Any) -> list[int]:
    """Backups that are out keep their part of what primaries concede."""
    bases = sum(line.base for place, line in enumerate(lines) if place not in kept)
    return [
        kept[place] if place in kept else tiers._left(conceded * line.base, line, faults, bases)
        for place, line in enumerate(lines)
    ]


_LITERAL: Final = presets.PRESETS["default"]
_ALL_KINDS: Final = _instead(kinds.deciding, lambda _: frozenset(Kind))
_NO_CAP: Final = _rules(faults={"cap": _EVER})
_NO_FAIL_OPEN: Final = _instead(guard.fail_open, lambda _: {})


def _literal() -> Way:
    rules = reach.rules
    return _instead(rules, lambda document, name: rules(document.model_copy(update={"mode": "literal"}), name))


TABLE: Final[Mapping[int, Hole]] = {
    1: Hole(evidence.test_limits_call_the_documents_numbers_what_its_text_calls_them, (_limits(lambda _: False),)),
    2: Hole(
        policy.test_a_cluster_is_listed_with_all_that_a_client_needs,
        (
            _instead(_LINE, lambda *of, **more: _LINE(*of, **more) | {"roles": [], "role": ""}),
            _instead(_LINE, lambda *of, **more: _LINE(*of, **more) | {"health": "unknown", "reason": ""}),
            _instead(listed.local_rules, lambda *_: {}),
        ),
    ),
    3: Hole(
        operation.test_a_preset_says_how_soon_a_line_is_back,
        (
            _in_table(presets.PRESETS, quick_recovery=_LITERAL),
            _in_table(presets.PRESETS, high_stability=_LITERAL),
        ),
    ),
    4: Hole(judging.test_weights_are_rounded_up, (_instead(weigh.wire, lambda raw: (raw + 500) // 1_000),)),
    5: Hole(
        judging.test_a_period_is_three_heartbeats_and_each_bad_one_is_a_fault, (_rules(faults={"per_ms": 30_000}),)
    ),
    6: Hole(
        judging.test_the_first_fault_costs_most_and_each_one_the_same_factor,
        (_instead(weigh.factor, lambda faults, _: max(0, ONE - ONE * faults // (20 * FAULT))),),
    ),
    7: Hole(judging.test_a_fault_is_ten_seconds_of_bad_whatever_the_tick_is, (_instead(_FAULTS, _by_ticks),)),
    8: Hole(judging.test_two_heartbeats_of_one_period_are_enough_to_degrade, (_rules(patience={"degraded": 6}),)),
    9: Hole(
        operation.test_a_dead_line_is_out_within_eight_seconds_and_a_slow_one_loses_weight_within_twelve, (_literal(),)
    ),
    10: Hole(judging.test_three_good_ticks_lead_back_to_healthy, (_rules(patience={"recover": _EVER}),)),
    11: Hole(
        judging.test_only_failed_ticks_in_a_row_open,
        (
            _judged(
                lambda row, zone, ours: ours(row)._replace(down=row.down) if zone is Zone.D else ours(row),
            ),
        ),
    ),
    12: Hole(
        judging.test_a_failed_tick_counts_toward_degraded_too,
        (_judged(lambda row, zone, ours: ours(row._replace(bad=row.bad - 1) if zone is Zone.F else row)),),
    ),
    13: Hole(judging.test_what_the_breaker_took_out_is_given_no_weight_by_milder_zones, (_judged(_relabelled),)),
    14: Hole(judging.test_while_open_further_failures_do_not_put_off_the_trial, (_instead(_ADVANCE, _unfrozen),)),
    15: Hole(judging.test_each_zone_resets_the_counters_that_it_contradicts, (_judged(_apart),)),
    16: Hole(
        judging.test_a_missing_heartbeat_is_no_vote_and_nobody_for_a_minute_makes_a_line_blind,
        (_instead(silence.is_silent, lambda *_: False), _method(Poll, "is_blind", lambda *_: False)),
    ),
    17: Hole(
        evidence.test_a_zone_is_left_at_its_exit_limit_only,
        (_instead(_VERDICT, lambda name, kinds, _, rules, **more: _VERDICT(name, kinds, {}, rules, **more)),),
    ),
    18: Hole(
        evidence.test_no_attempt_older_than_two_minutes_speaks_of_now,
        (_instead(window.max_age, lambda *_: float(_EVER)),),
    ),
    19: Hole(
        evidence.test_a_tick_judges_what_it_brought_not_what_earlier_ones_have_judged,
        (_instead(zone.evidence, _whole_window),),
    ),
    20: Hole(evidence.test_loss_is_of_the_packets_sent_not_of_the_connects, (_measured(_of_connects),)),
    21: Hole(
        evidence.test_all_vantages_together_see_a_loss_that_none_of_them_can,
        (_instead(cusum.spared, lambda told: told[:1]),),
    ),
    22: Hole(
        evidence.test_a_connect_that_took_a_second_lost_its_first_packet,
        (
            _instead(kernel.handshake, lambda info: (kernel.INFO.unpack(info(0, 0, 0))[1], 0)),
            _number(kernel, "SYN_AGAIN_US", _EVER),
        ),
    ),
    23: Hole(evidence.test_an_attempt_ends_in_one_way_and_what_is_late_is_no_loss, (_measured(_with_late),)),
    24: Hole(
        evidence.test_what_was_never_answered_is_slower_than_anything_waited_for,
        (_instead(_RANK, lambda values, share: _RANK([one for one in values if one < 1e9], share)),),
    ),
    25: Hole(
        evidence.test_percentiles_of_vantages_are_merged_by_their_histograms,
        (_instead(histogram.merged, lambda *each: each[-1]),),
    ),
    26: Hole(evidence.test_jitter_alone_degrades_and_fails_a_line, (_limits(lambda metric: metric != "jitter"),)),
    27: Hole(
        evidence.test_each_way_of_a_path_is_judged_by_itself_without_common_clocks,
        (
            _intervals(lambda one: {"forward_lost": 0, "reverse_lost": one.forward_lost + one.reverse_lost}),
            _intervals(lambda one: dict.fromkeys(("forward_us", "reverse_us"), one.rtt_us and one.rtt_us // 2)),
        ),
    ),
    28: Hole(
        evidence.test_the_worst_metric_of_the_worst_kind_is_the_lines,
        (
            _instead(_MEASURES, lambda *of: list(_MEASURES(*of))[:1]),
            _instead(_VERDICT, lambda name, kinds, *of, **more: _VERDICT(name, list(kinds)[:1], *of, **more)),
        ),
    ),
    29: Hole(
        evidence.test_few_samples_say_nothing_and_a_rate_must_be_sure,
        (
            _compiled(lambda rules: replace(rules, gate_milli=0)),
            _compiled(lambda rules: replace(rules, limits=tuple(one._replace(minimum=0) for one in rules.limits))),
        ),
    ),
    30: Hole(
        evidence.test_what_is_slow_depends_on_the_class_and_on_the_lines_own_usual,
        (
            _in_table(presets.CLASSES, rpc=_LITERAL),
            _in_table(presets.CLASSES, bulk=_LITERAL),
            _rules(baseline={"degraded_milli": 0, "failed_milli": 0}),
        ),
    ),
    31: Hole(
        judging.test_faults_are_capped_fade_are_forgotten_stand_still_while_open_and_are_gone_at_the_trial,
        (
            _NO_CAP,
            _rules(faults={"fade": (ONE,) * 25}),
            _rules(faults={"forget": 0}),
            _judged(lambda row, zone, ours: ours(row, gate=Gate.CLOSED) if zone is Zone.F else ours(row)),
            _instead(judge.at_trial, lambda row: row),
        ),
    ),
    32: Hole(judging.test_a_line_that_is_only_degraded_keeps_a_twentieth, (_NO_CAP,)),
    33: Hole(policy.test_lines_are_listed_by_weight_and_then_by_name, (_method(Board, "snapshot", _unsorted),)),
    34: Hole(
        breaking.test_the_clients_own_breaker_opens_shortly_doubles_tries_once_and_spares_half_of_the_lines,
        (
            _rules(local={"failures": 1}),
            _rules(local={"open_cap_ms": _EVER}),
            _rules(local={"max_open_milli": 1_000}),
            _rules(local={"share_milli": 0}),
            _instead(local.may_trip, lambda *_: True),
            _instead(local.claim, lambda row, *_: row),
        ),
    ),
    35: Hole(
        breaking.test_the_ramp_is_that_of_the_configuration,
        (_rules(breaker={"steps_milli": (50, 200, 400, 600, 1_000)}),),
    ),
    36: Hole(
        breaking.test_five_percent_are_of_the_lines_weight_or_where_asked_for_of_all_traffic,
        (_rules(breaker={"share_steps": True}), _rules(breaker={"share_steps": False})),
    ),
    37: Hole(
        breaking.test_a_trial_that_starves_leans_on_probes_after_five_minutes, (_rules(breaker={"starved_ms": _EVER}),)
    ),
    38: Hole(
        breaking.test_three_failures_among_many_calls_are_no_reason_to_go_back, (_rules(breaker={"fail_milli": 0}),)
    ),
    39: Hole(
        breaking.test_every_step_of_the_ramp_asks_again_and_the_probes_must_agree,
        (_instead(_HAS_FAILED, _unasked), _instead(_ADVANCE, _unheld)),
    ),
    40: Hole(breaking.test_counting_stops_where_evidence_is_enough, (_rules(breaker={"max_ok": _EVER}),)),
    41: Hole(
        breaking.test_waits_double_up_to_a_cap_move_by_chance_and_are_forgiven_by_traffic,
        (
            _rules(breaker={"cooldown_cap_ms": _EVER}),
            _rules(breaker={"jitter_milli": 0}),
            _rules(breaker={"reset_ms": _EVER}),
            _instead(breaker._forgive, _by_time),
        ),
    ),
    42: Hole(breaking.test_a_failure_during_the_ramp_is_one_of_the_trial, (_instead(_OPEN_AGAIN, _undoubled),)),
    43: Hole(
        breaking.test_successes_of_all_clients_count_for_the_window_they_were_made_in, (_instead(_COUNT, _whenever),)
    ),
    44: Hole(
        vote.test_a_majority_of_those_configured_and_ties_are_mild_old_votes_count_for_nothing_and_one_alone_waits,
        (
            _rules(quorum={"share_milli": 499}),
            _instead(quorum.needed, lambda _: 1),
            _rules(quorum={"fresh_ms": _EVER}),
            _rules(patience={"lone_failed": 3}),
        ),
    ),
    45: Hole(vote.test_two_instances_of_one_vantage_have_one_vote, (_method(Ledger, "report", _twice),)),
    46: Hole(
        vote.test_trust_falls_by_differing_returns_by_agreeing_and_is_gone_for_a_minute_where_one_alone_sees_most_fail,
        (
            _number(trust, "_DIFFER_MILLI", 0),
            _number(trust, "_RETURN", 0),
            _method(Credit, "put_aside", lambda *_: None),
            _number(trust, "_ASIDE_MS", 0),
        ),
    ),
    47: Hole(
        vote.test_the_business_needs_calls_and_callers_enough_a_fault_of_the_lines_own_and_three_ticks,
        (
            _rules(business={"conflict_ticks": _EVER}),
            _rules(business={"conflict_ticks": 1}),
            _rules(business={"minimum": 1}),
            _rules(business={"clients": 1}),
            _instead(scope.causes, lambda *_: ()),
        ),
    ),
    48: Hole(
        policy.test_primary_and_backup_share_95_to_5_and_one_carries_all_where_the_other_is_out,
        (
            _instead(tiers._primary, lambda _: (950_000, 50_000)),
            _instead(tiers._with_backups, _open_too),
            _instead(tiers._charged, lambda line: line.faults),
            _NO_FAIL_OPEN,
        ),
    ),
    49: Hole(
        policy.test_the_reserve_takes_what_the_traffic_group_lacks_and_one_percent_in_health,
        (_number(tiers, "_SENTINEL", 0), _number(tiers, "_OVERPROVISION_MILLI", 1_000)),
    ),
    50: Hole(
        policy.test_groups_come_first_and_inside_a_group_its_own_policy,
        (_in_table(tiers.TABLE, ab_groups=lambda lines, _, *more: _GROUPS(lines, (), *more)),),
    ),
    51: Hole(
        policy.test_half_of_a_cluster_and_its_last_line_stay_in_what_is_full_is_poured_on_and_all_open_is_fail_open,
        (
            _refusing(guard.BLAST),
            _refusing(guard.LAST_LINE),
            _instead(pour.poured, lambda vessels, *_: [vessel.weight for vessel in vessels]),
            _NO_FAIL_OPEN,
        ),
    ),
    52: Hole(
        operation.test_a_restart_forgets_nothing_and_cuts_nobody_on_old_votes,
        (_instead(_DECODE, _forgotten), _method(Hold, "is_over", lambda *_: True)),
    ),
    53: Hole(
        operation.test_without_a_center_a_client_keeps_its_list_takes_no_older_one_and_tries_what_is_out_itself,
        (_method(Cluster, "replace", _any_version), _instead(regroup._may_try, lambda *_: False)),
    ),
    54: Hole(
        operation.test_messages_are_placed_by_their_sequence_and_the_centers_clock,
        (_method(Roster, "heard", _unplaced),),
    ),
    55: Hole(
        policy.test_lines_of_one_supplier_are_one_incident_warned_of_and_tried_one_at_a_time,
        (
            _instead(risks.members, lambda _: {}),
            _method(Groups, "_warned", _unwarned),
            _method(Groups, "in_turn", lambda *of: of[-1]),
        ),
    ),
    56: Hole(
        operation.test_a_line_in_doubt_is_asked_sooner_a_dead_one_seldom_and_all_alike_beyond_the_rate,
        (
            _instead(tempo.interval, lambda usual, *_, **__: usual),
            _instead(tempo.stretch, lambda *_: 1.0),
        ),
    ),
    57: Hole(
        evidence.test_names_and_handshakes_are_advice_about_a_line_that_others_watch,
        (_ALL_KINDS, _instead(zone._cause, lambda measure, _: measure.name)),
    ),
    58: Hole(
        evidence.test_lost_pings_raise_the_zone_only_where_tcp_and_the_service_are_bad,
        (_ALL_KINDS, _number(zone, "_CALLS", frozenset())),
    ),
    59: Hole(
        evidence.test_what_an_agent_thinks_of_a_line_is_not_what_the_center_finds, (_instead(_READING, _believed),)
    ),
    60: Hole(
        operation.test_false_trips_are_counted_by_hours_of_lines, (_method(Ran, "hours", property(lambda _: 1.0)),)
    ),
    61: Hole(
        operation.test_an_ejection_as_envoys_grows_by_its_base_up_to_the_ceiling,
        (
            _instead(_WAIT, lambda level, rules: _WAIT(level, rules._replace(growth=outlier_rules.Growth.EXPONENTIAL))),
            _instead(outlier_rules.ceiling_ms, lambda _: _EVER),
        ),
    ),
    62: Hole(
        evidence.test_a_line_is_not_well_because_some_sample_got_through, (_limits(lambda metric: metric == "connect"),)
    ),
}
