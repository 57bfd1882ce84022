"""Figures from Reachline's own decision log: what it named, whom it mistrusted, what its guards held. Other contenders have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from reachline.model import Change, Gate
from reachline.simulate.contender import Run
from reachline.simulate.observe import Observer
from reachline.simulate.reach.document import name_of
from reachline.simulate.reach.told import Told
from reachline.simulate.timeline import ms

__all__ = ["named"]

_QUARANTINE = 100
"""Trust in 1/1000 at which a vantage hardly has a word."""
_HALF = 0.5

Found = dict[str, float | bool | str | list[float] | None]


def named(run: Run, seen: Observer, told: Told, faults: Sequence[tuple[str, int, int]]) -> Found:
    """What the log says."""
    return {
        "t_agent_quarantine": _quarantined(seen, told),
        "t_detect_after_return": _after_return(told, faults),
        "blind_flag_within": _blind(seen, told),
        "votes_lost": max(0, told.beats[0] - told.beats[1] - len(run.vantages)),
        "negative_rtt": seen.negative,
        "simultaneous_half_open_in_group": max(told.half_open_most.values(), default=0),
        "incidents": _incidents(told.changes),
        "agent_confidence_drop": any(trust < 1_000 for known in told.trust.values() for _, trust in known),
        "cooldown_doubles": _doubles(told.changes),
        "breaker_state_kept": told.is_state_kept,
        "panic_flag": bool(told.panics),
        "blast_guard_holds": told.open_most <= _HALF + 1e-9 and told.zero_ms is None,
        "never_zero_total_weight": told.zero_ms is None,
        "affected_callers_only": not any(_is_cut(change) for change in told.changes),
        "baseline_must_not_learn_fault": _still_cut(seen, told, faults),
        "config_rejected_or_shadowed": told.pushes_refused > 0
        or not any(change.after.gate is Gate.OPEN for change in told.changes),
        "weights_reset_to_equal": told.were_reset,
        "said": " ".join(sorted(_words(told))),
    }


def _is_cut(change: Change) -> bool:
    return change.after.weight < change.before.weight


def _quarantined(seen: Observer, told: Told) -> float | None:
    """The longest time from a vantage's own fault until its word hardly counted."""
    times: list[float] = []
    for phase in seen.scenario.phases:
        for name in (*((phase.agent,) if phase.agent else ()), *(phase.agents or ())) if phase.local else ():
            known = [at for at, trust in told.trust.get(name, ()) if at >= ms(phase.from_) and trust <= _QUARANTINE]
            if not known:
                return None
            times.append((known[0] - ms(phase.from_)) / 1_000)
    return max(times, default=None)


def _after_return(told: Told, faults: Sequence[tuple[str, int, int]]) -> float | None:
    if not told.returned_ms:
        return None
    back = told.returned_ms[0]
    pending = [line for line, begin, end in faults if begin < back < end]
    times = [
        next(
            (one.at_ms for one in told.changes if name_of(one.line) == line and one.at_ms >= back and _is_cut(one)),
            None,
        )
        for line in pending
    ]
    known = [at for at in times if at is not None]
    return (max(known) - back) / 1_000 if known and len(known) == len(times) else None


def _blind(seen: Observer, told: Told) -> float | None:
    silenced = [ms(phase.from_) for phase in seen.scenario.phases if phase.silent or phase.partition]
    if not silenced or not told.blind:
        return None
    return (min(told.blind.values()) - min(silenced)) / 1_000


def _incidents(changes: Sequence[Change]) -> int:
    """Shared-risk groups' incidents opened."""
    struck: dict[str, set[str]] = {}
    count = 0
    for change in changes:
        was, now = change.before.incident, change.after.incident
        if was and was != now:
            struck.get(was, set()).discard(change.line)
        if now and now != was:
            lines = struck.setdefault(now, set())
            count += not lines
            lines.add(change.line)
    return count


def _doubles(changes: Sequence[Change]) -> bool:
    """Whether each reopening of a line waited longer than the one before, and there was one."""
    waits: dict[str, list[int]] = {}
    for change in changes:
        if change.after.gate is Gate.OPEN and change.before.gate is not Gate.OPEN and change.after.next_ms is not None:
            waits.setdefault(change.line, []).append(change.after.next_ms - change.at_ms)
    pairs = [(one, two) for each in waits.values() for one, two in pairwise(each)]
    return bool(pairs) and all(two > 1.5 * one for one, two in pairs)


def _still_cut(seen: Observer, told: Told, faults: Sequence[tuple[str, int, int]]) -> bool:
    """Whether the faulty lines are still below their base when their faults end."""

    def weights_at(at_ms: int) -> Mapping[str, int]:
        known = [weights for at, weights in told.weights if at <= at_ms]
        return known[-1] if known else {}

    return all(
        weights_at(min(end, seen.end_ms) - 1).get(line, 0) < seen.scenario.lines[line].base for line, _, end in faults
    )


def _words(told: Told) -> set[str]:
    """Every word that the log uses of causes: rules, incidents, facts and metrics."""
    found: set[str] = set(told.causes)
    for change in told.changes:
        found.update(change.rule.split("."), change.after.reason.split("."), {change.after.incident})
        found.update(fact.name for fact in change.facts if fact.value)
        found.update(part for vote in change.votes for part in vote.metric.split("."))
    return {word for word in found if word}
