"""One line's memory and its single step: judge, breaker, trip or wish to trip. Pure; the ledger owns the rows."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from reachline.core.breaker import CLOSED, Breaker, advance, deadline, told
from reachline.core.cusum import Asked
from reachline.core.judge import NEW, Judgement, after_close, at_trial, judge, wants_trip
from reachline.core.orders import NOTHING, Obeys
from reachline.core.quorum import Tally
from reachline.core.reasons import Votes, failed, turned
from reachline.core.rules import Rules
from reachline.core.severity import severity_milli
from reachline.core.usual import NEVER, Usual, forgotten, rate_milli
from reachline.model import Gate, Health, LineId, Zone

__all__ = [
    "Row",
    "Stepped",
    "Sums",
    "chance",
    "due_ms",
    "is_quiet",
    "is_well",
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
    """A row after its tick, the rule that changed its state (empty: none did), and whether it wants to trip: why is worked out
    where somebody asks (`told.named`), for most that want to may not.
    """

    row: Row
    rule: str = ""
    wants: bool = False


_H: Final = Zone.H
_D: Final = Zone.D
_F: Final = Zone.F
_N: Final = Zone.N
_CLOSED: Final = Gate.CLOSED
_OPEN: Final = Gate.OPEN
_HEALTHY: Final = Health.HEALTHY
_SICK: Final = (Health.DEGRADED, Health.UNHEALTHY)
"""Looked up once: an enum's attribute costs eight times as much as a name, and this runs for every line of a tick."""
_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""

Sums = tuple[Asked, tuple[int, ...]]
"""A row's `asked` and `recent`, as a tick leaves them."""


def chance(line: LineId, decision: int, seed: int) -> int:
    """A number in -1000…1000 that is the same in every replay: from the line, its decision number and the run's seed."""
    digest = hashlib.blake2b(f"{seed}\x00{line}\x00{decision}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % 2_001 - 1_000


def step(
    line: LineId, row: Row, tally: Tally, *, votes: Votes, now_ms: int, rules: Rules, sums: Sums | None = None
) -> Stepped:
    """The row after the tick that ends now. `tally` is N where nothing new was heard: only deadlines then act. `sums` are what has
    added up by now (None: as before), `votes` those behind the tally.
    """
    zone = tally.zone
    after = _judged(row, zone, sums, now_ms, rules)
    judged, breaker = after.judgement, after.breaker
    is_closed = breaker is CLOSED or breaker.gate is _CLOSED
    if not is_closed:
        after = _informed(after, now_ms, rules)
    elif zone is _F and wants_trip(judged, rules.patience, lone=tally.is_lone):
        return _new(Stepped, (after, "", True))
    if after.held and (zone is _H or zone is _D):
        released = after._replace(judgement=after_close(judged, rules.patience), held=False)
        return Stepped(released, "guard.released")
    if after.obeys.forced == "open":  # an operator's: no cooldown ends it
        return Stepped(after)
    if not is_closed or breaker.reopens:
        return _moved(line, row, after, votes=votes, now_ms=now_ms, rules=rules)
    health = judged.health
    rule = "" if health is row.judgement.health else turned(health, after.asked, votes, rules)
    return _new(Stepped, (after, rule, False))


def _judged(row: Row, zone: Zone, sums: Sums | None, now_ms: int, rules: Rules) -> Row:
    """The row with what the judge makes of this zone, and while it is closed with what calls since the last tick came to."""
    # Taken apart and put together once: `_replace` takes three times as long, and an attribute a third of all of this.
    (was, breaker, newest, zone_ms, judged_ms, blind, held, reason, since_ms, decisions, asked,
     obeys, bad_ms, guard, incident, usual, ok_ms, lively, recent) = row  # fmt: skip
    asked, recent = sums or (asked, recent)
    gate, severity = breaker.gate, 0
    judged = was
    if zone is not _N:
        if rules.questions and zone is not _H and gate is _CLOSED and was.health in _SICK:
            severity = severity_milli(recent, asked.sums, rules.questions)  # faults grow by nothing else
        elapsed = min(now_ms - judged_ms, 2 * rules.tick_ms) if judged_ms else rules.tick_ms
        patience, faults = rules.patience, rules.faults
        judged = judge(was, zone, elapsed, gate=gate, patience=patience, faults=faults, severity_milli=severity)
        newest, zone_ms, judged_ms = zone, now_ms, now_ms
        bad_ms = 0 if zone is _H else bad_ms or now_ms
    if gate is _CLOSED and (lively or usual.new_calls):
        is_well = judged.health is _HEALTHY and newest is _H
        usual, lively = usual if is_well else forgotten(usual), False
    after = (
        judged, breaker, newest, zone_ms, judged_ms, blind, held, reason, since_ms, decisions, asked,
        obeys, bad_ms, guard, incident, usual, ok_ms, lively, recent,
    )  # fmt: skip
    return _new(Row, after)


def _moved(line: LineId, before: Row, after: Row, *, votes: Votes, now_ms: int, rules: Rules) -> Stepped:
    """The row once its breaker was asked."""
    breaker = after.breaker
    is_tried = (
        breaker.gate is not _OPEN and breaker.gate is not _CLOSED
    )  # only a trial that fails opens anew, by chance
    move = advance(
        breaker,
        _current(after, now_ms, rules),
        now_ms,
        jitter=chance(line, after.decisions, rules.seed) if is_tried else 0,
        rules=rules.breaker,
        usual_milli=rate_milli(after.usual),
        steady=after.judgement.good >= rules.patience.recover,
    )
    rule = move.rule
    if move.row is not breaker:
        after = after._replace(breaker=move.row)
    if rule == "breaker.probes_failed":
        rule = failed(after.asked, votes, rules)
    if move.row.gate is _OPEN and before.breaker.gate is not _OPEN:
        after = after._replace(decisions=after.decisions + 1)
    if move.row.gate is Gate.HALF_OPEN and before.breaker.gate is _OPEN:
        after = after._replace(judgement=at_trial(after.judgement))
    if move.row.gate is _CLOSED and before.breaker.gate is not _CLOSED:
        after = after._replace(judgement=after_close(after.judgement, rules.patience))
        rule = f"{rule}.closed"
    if not rule and after.judgement.health is not before.judgement.health:
        rule = turned(after.judgement.health, after.asked, votes, rules)
    return Stepped(after, rule)


def _informed(row: Row, now_ms: int, rules: Rules) -> Row:
    """The row, not closed, with what the reports since the last tick came to."""
    breaker, usual = row.breaker, row.usual
    is_open = breaker.gate is _OPEN
    lively = is_open and row.ok_ms > breaker.since_ms and now_ms - row.ok_ms <= rules.guard.alive_ms
    after, known = told(breaker, rules.breaker), forgotten(usual)
    if after is breaker and known is usual and lively is row.lively:
        return row  # as most that are open
    return row._replace(breaker=after, usual=known, lively=lively)


def is_well(row: Row) -> bool:
    """Healthy, in traffic, and nobody says otherwise now."""
    return row.judgement.health is _HEALTHY and row.zone is _H and row.breaker.gate is _CLOSED


def _current(row: Row, now_ms: int, rules: Rules) -> Zone:
    """The newest verdict while it still says something about now."""
    return row.zone if now_ms - row.zone_ms <= rules.quorum.blind_ms else Zone.N


def due_ms(row: Row, rules: Rules) -> int | None:
    """When this row's breaker moves without new evidence, or None. A verdict speaks of now for `blind_ms` only."""
    if row.obeys.forced == "open":
        return None
    if row.breaker.gate is _CLOSED and not (row.breaker.reopens and row.breaker.ok):
        return None
    if row.breaker.gate is _OPEN and (row.zone is _F or row.zone is _N):
        return None  # as most that are open: they wait for a better verdict
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
    health, bad, _, good, faults = row.judgement
    if health is not _HEALTHY or good != rules.patience.recover or faults or bad:
        return False
    breaker = row.breaker
    return (
        row.zone is _H
        and not (row.blind or row.held)
        and (breaker is CLOSED or (breaker.gate is _CLOSED and not breaker.reopens))
        and row.asked.is_calm
    )
