"""One line's memory and its single step: judge, breaker, trip or wish to trip. Pure; the ledger owns the rows."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final, NamedTuple

from reachline.core.breaker import CLOSED, Breaker, advance, deadline, told
from reachline.core.cusum import Asked, grown
from reachline.core.judge import NEW, Judgement, after_close, at_trial, judge, wants_trip
from reachline.core.orders import NOTHING, Obeys
from reachline.core.quorum import Tally
from reachline.core.rules import Rules
from reachline.core.severity import severity_milli
from reachline.core.usual import NEVER, Usual, forgotten, rate_milli
from reachline.model import Gate, Health, LineId, Vote, Zone

__all__ = [
    "Row",
    "Stepped",
    "chance",
    "due_ms",
    "is_quiet",
    "is_well",
    "noted",
    "reason_of",
    "step",
]


class Row(NamedTuple):
    """All that is remembered of a line besides its ballots. `zone` is the newest verdict, N before the first."""

    judgement: Judgement = NEW
    breaker: Breaker = CLOSED
    zone: Zone = Zone.N
    zone_ms: int = 0
    judged_ms: int = 0
    """End of the newest judged tick; 0 before the first."""
    blind: bool = False
    held: bool = False
    """Should be open, but the guard keeps it closed, at the floor weight; `guard` says why."""
    reason: str = ""
    since_ms: int = 0
    decisions: int = 0
    """How often chance was asked for this line."""
    asked: Asked = Asked()
    """`fast` mode: what has added up against the line."""
    obeys: Obeys = NOTHING
    """The operator's orders that it follows."""
    bad_ms: int = 0
    """The first of the bad verdicts in a row that still last; 0 while there are none."""
    guard: str = ""
    """The rule by which the guard holds it."""
    incident: str = ""
    """The shared-risk group whose incident it is part of."""
    usual: Usual = NEVER
    """`fast` mode: how often calls fail while it is healthy."""
    ok_ms: int = 0
    """The newest success, of a probe or a call; not kept while it is healthy in every respect."""
    lively: bool = False
    """Open, and yet something succeeded since: in panic it is not kept open."""
    recent: tuple[int, ...] = ()
    """`fast` mode: how bad it has been of late (`core.severity`)."""


class Stepped(NamedTuple):
    """A row after its tick, the rule that changed its state (empty: none did), and whether it wants to trip."""

    row: Row
    rule: str = ""
    wants: bool = False


_H: Final = Zone.H
_D: Final = Zone.D
_F: Final = Zone.F
_N: Final = Zone.N
_CLOSED: Final = Gate.CLOSED
_HEALTHY: Final = Health.HEALTHY
_SICK: Final = (Health.DEGRADED, Health.UNHEALTHY)
"""Looked up once: an enum's attribute costs eight times as much as a name, and this runs for every line of a tick."""
_BLIND, _BAD, _GUARD, _REASON, _DECISIONS = map(Row._fields.index, ("blind", "bad_ms", "guard", "reason", "decisions"))


def chance(line: LineId, decision: int, seed: int) -> int:
    """A number in -1000…1000 that is the same in every replay: from the line, its decision number and the run's seed."""
    digest = hashlib.blake2b(f"{seed}\x00{line}\x00{decision}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % 2_001 - 1_000


def step(line: LineId, row: Row, tally: Tally, *, votes: tuple[Vote, ...], now_ms: int, rules: Rules) -> Stepped:
    """The row after the tick that ends now. `tally` is N where nothing new was heard: only deadlines then act."""
    zone = tally.zone
    gate, severity = row.breaker.gate, 0
    if (zone is _F or zone is _D) and gate is _CLOSED and row.judgement.health in _SICK:
        severity = severity_milli(row.recent, row.asked.sums, rules.questions)  # faults grow by nothing else
    elapsed = min(now_ms - row.judged_ms, 2 * rules.tick_ms) if row.judged_ms else rules.tick_ms
    judged = judge(
        row.judgement,
        zone,
        elapsed,
        gate=gate,
        patience=rules.patience,
        faults=rules.faults,
        severity_milli=severity,
    )
    after = row
    if zone is not _N:
        bad_ms = 0 if zone is _H else row.bad_ms or now_ms
        told = (judged, row.breaker, zone, now_ms, now_ms)
        after = Row._make(
            (*told, *row[_BLIND:_BAD], bad_ms, *row[_GUARD:])
        )  # what `_replace` does, in a third of its time
    after = _informed(after, now_ms, rules)
    if zone is _F and gate is _CLOSED and wants_trip(judged, rules.patience, lone=tally.is_lone):
        return Stepped(after, f"vote.{_cause(after, votes, Zone.F, rules)}.failed", wants=True)
    if after.held and (zone is _H or zone is _D):
        released = after._replace(judgement=after_close(judged, rules.patience), held=False)
        return Stepped(released, "guard.released")
    return _through_breaker(line, row, after, votes=votes, now_ms=now_ms, rules=rules)


def _through_breaker(
    line: LineId, before: Row, after: Row, *, votes: tuple[Vote, ...], now_ms: int, rules: Rules
) -> Stepped:
    if after.obeys.forced == "open":  # an operator's: no cooldown ends it
        return Stepped(after)
    was, changed = after.breaker, after.judgement.health is not before.judgement.health
    if was.gate is _CLOSED and not was.reopens:
        return Stepped(after, _health_rule(after, votes, rules) if changed else "")
    move = advance(
        was,
        _current(after, now_ms, rules),
        now_ms,
        jitter=chance(line, after.decisions, rules.seed),
        rules=rules.breaker,
        usual_milli=rate_milli(after.usual),
        steady=after.judgement.good >= rules.patience.recover,
    )
    after = after._replace(breaker=move.row)
    rule = move.rule
    if rule == "breaker.probes_failed":
        rule = f"vote.{_cause(after, votes, Zone.F, rules)}.failed"
    if move.row.gate is Gate.OPEN and before.breaker.gate is not Gate.OPEN:
        after = after._replace(decisions=after.decisions + 1)
    if move.row.gate is Gate.HALF_OPEN and before.breaker.gate is Gate.OPEN:
        after = after._replace(judgement=at_trial(after.judgement))
    if move.row.gate is Gate.CLOSED and before.breaker.gate is not Gate.CLOSED:
        after = after._replace(judgement=after_close(after.judgement, rules.patience))
        rule = f"{rule}.closed"
    if not rule and after.judgement.health is not before.judgement.health:
        rule = _health_rule(after, votes, rules)
    return Stepped(after, rule)


def _informed(row: Row, now_ms: int, rules: Rules) -> Row:
    """The row with what the reports since the last tick came to."""
    if row.breaker.gate is _CLOSED:
        if row.lively or (row.usual.new_calls and not is_well(row)):
            return row._replace(usual=row.usual if is_well(row) else forgotten(row.usual), lively=False)
        return row
    is_open = row.breaker.gate is Gate.OPEN
    lively = is_open and row.ok_ms > row.breaker.since_ms and now_ms - row.ok_ms <= rules.guard.alive_ms
    return row._replace(breaker=told(row.breaker, rules.breaker), usual=forgotten(row.usual), lively=lively)


def is_well(row: Row) -> bool:
    """Healthy, in traffic, and nobody says otherwise now."""
    return row.judgement.health is _HEALTHY and row.zone is _H and row.breaker.gate is _CLOSED


def _health_rule(after: Row, votes: tuple[Vote, ...], rules: Rules) -> str:
    if after.judgement.health is Health.DEGRADED:
        return f"vote.{_cause(after, votes, Zone.D, rules)}.degraded"
    return "judge.recovered"


def _cause(row: Row, votes: tuple[Vote, ...], zone: Zone, rules: Rules) -> str:
    """What decided: the metric that most vantages name; in `fast` mode what was asked and has added up."""
    return grown(row.asked, rules.questions)[0] or reason_of(votes, zone)


def reason_of(votes: tuple[Vote, ...], zone: Zone) -> str:
    """The metric that most vantages of this zone or worse name, without its probe kind; ties by name.

    Where none is so bad by itself (they add up), it is the metric of those that complain at all.
    """
    worst = [metric for _, own, metric, *_ in votes if own is zone] if zone is not _D else ()
    return _most(tuple(worst or [metric for _, own, metric, *_ in votes if own is _D or own is _F]))


@lru_cache(maxsize=1 << 10)  # most lines of a tick complain of the same
def _most(metrics: tuple[str, ...]) -> str:
    names = [metric.partition(".")[2] for metric in metrics]
    return max(sorted(set(names)), key=names.count, default="unknown")


def _current(row: Row, now_ms: int, rules: Rules) -> Zone:
    """The newest verdict while it still says something about now."""
    return row.zone if now_ms - row.zone_ms <= rules.quorum.blind_ms else Zone.N


def due_ms(row: Row, rules: Rules) -> int | None:
    """When this row's breaker moves without new evidence, or None. A verdict speaks of now for `blind_ms` only."""
    if row.obeys.forced == "open":
        return None
    if row.breaker.gate is _CLOSED and not (row.breaker.reopens and row.breaker.ok):
        return None
    fades_ms = row.zone_ms + rules.quorum.blind_ms + 1
    usual, steady = rate_milli(row.usual), row.judgement.good >= rules.patience.recover
    known = deadline(row.breaker, rules.breaker, zone=row.zone, usual_milli=usual, steady=steady)
    if row.breaker.gate is Gate.OPEN:
        return known if known is not None and known < fades_ms else None
    if known is not None or row.breaker.gate is Gate.CLOSED or row.zone is not Zone.D:
        return known
    later = deadline(row.breaker, rules.breaker, zone=Zone.N, usual_milli=usual)
    return None if later is None else max(later, fades_ms)


def is_quiet(row: Row, rules: Rules) -> bool:
    """Healthy in every respect: a tick without a bad ballot gives this very row back, so it need not be taken."""
    judged, breaker = row.judgement, row.breaker
    return (
        judged.health is _HEALTHY
        and judged.good == rules.patience.recover
        and not (judged.faults or judged.bad or row.blind or row.held or breaker.reopens)
        and breaker.gate is _CLOSED
        and row.zone is _H
        and row.asked.is_calm
    )


def noted(before: Row, after: Row, rule: str, now_ms: int) -> Row:
    """The row with when and why its state changed, for people."""
    judged, breaker, was = after.judgement, after.breaker, before.breaker
    reason = after.guard if after.held else rule or after.reason
    if judged.health is _HEALTHY and breaker.gate is _CLOSED:
        reason = "faults.fading" if judged.faults else ""
    has_moved = (
        judged.health is not before.judgement.health
        or (breaker is not was and (breaker.gate is not was.gate or breaker.step != was.step))
        or after.held != before.held
        or after.blind != before.blind
    )
    if not has_moved and reason == after.reason:
        return after
    since_ms = now_ms if has_moved else after.since_ms
    return Row._make((*after[:_REASON], reason, since_ms, *after[_DECISIONS:]))
