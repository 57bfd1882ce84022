"""What becomes of a line's row beside its own step: calls and probes counted, tripped, held by the guard, made to wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from reachline.core.breaker import CLOSED, count, count_synthetic, trip
from reachline.core.guard import allowed
from reachline.core.judge import Judgement
from reachline.core.refuge import Others, others, without
from reachline.core.row import Row, chance, is_quiet, is_well
from reachline.core.rules import Rules
from reachline.core.spreading import UNCOUPLED, candidates
from reachline.core.usual import learnt
from reachline.model import Gate, Health, Kind, Line, LineId, Outcome, Reading

_BREAKER, _USUAL, _OK_MS = map(Row._fields.index, ("breaker", "usual", "ok_ms"))
_HELD, _GUARD, _DECISIONS = map(Row._fields.index, ("held", "guard", "decisions"))

__all__ = ["Answered", "called", "guarded", "hold", "open_now", "probed", "wait"]

_CLOSED: Final = Gate.CLOSED
_UNHEALTHY: Final = Health.UNHEALTHY
_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""
Answered = dict[int, tuple[Row, int, Row]]
"""Rows with a newer success, by the place in memory of those before it: (before, when, after)."""
_FEW: Final = 64
"""Of these that are kept: lines that are alike stand close together in a report, and where few are, nothing is gained."""


def called(row: Row, seen: Outcome, now_ms: int, rules: Rules) -> Row:
    """The row after some calls of one client; timeouts and server errors fail a trial too."""
    _, _, window, ok, failed, late, errors, *_ = seen
    failed += late + errors
    was, usual, ok_ms, quiet = row.breaker, row.usual, row.ok_ms, is_quiet(row, rules)
    breaker = was if was is CLOSED else count(was, window=window, ok=ok, failed=failed, rules=rules.breaker)
    learns = rules.breaker.fail_milli and (quiet or is_well(row))
    if learns:
        usual = learnt(usual, calls=ok + failed, failed=failed, now_ms=now_ms)
    if ok and not quiet and now_ms > ok_ms:
        ok_ms = now_ms
    elif not learns and breaker is was:
        return row
    values = [*row]
    values[_BREAKER], values[_USUAL], values[_OK_MS] = breaker, usual, ok_ms
    return _new(Row, values)


def probed(
    row: Row,
    kinds: Iterable[Reading],
    decides: frozenset[Kind],
    now_ms: int,
    rules: Rules,
    *,
    known: Answered | None = None,
) -> Row:
    """The row after some probes of one vantage; of them only kinds that decide count. Lines that share a row still do, by what is
    `known` of the newest.
    """
    ok = failed = 0
    for one in kinds:
        if one.kind in decides and not one.void:
            ok, failed = ok + one.fresh_ok, failed + one.fresh_failed
    breaker = row.breaker
    if breaker.gate is not _CLOSED:
        breaker = count_synthetic(breaker, ok, failed, now_ms=now_ms, rules=rules.breaker)
        if breaker is not row.breaker:
            return row._replace(breaker=breaker, ok_ms=max(row.ok_ms, now_ms) if ok else row.ok_ms)
    if not ok or now_ms <= row.ok_ms:
        return row
    return _answered(row, now_ms, {} if known is None else known)


def _answered(row: Row, now_ms: int, known: Answered) -> Row:
    """The row with a success at `now_ms`."""
    alike = known.get(id(row))
    if alike is not None and alike[0] is row and alike[1] == now_ms:
        return alike[2]
    if len(known) >= _FEW:
        known.clear()
    values = [*row]
    values[_OK_MS] = now_ms
    after = _new(Row, values)
    known[id(row)] = row, now_ms, after
    return after


def guarded(
    wishes: Sequence[LineId],
    lines: Mapping[LineId, Line],
    rows: Mapping[LineId, Row],
    rules: Rules,
    *,
    well: Others,
    restless: AbstractSet[LineId],
    offered: int,
    now_ms: int,
) -> dict[LineId, Row]:
    """The rows of the lines that want to trip: tripped, or held where the guard says so. All lines but the `restless` are quiet;
    `well` is what all were, if these were too.
    """
    seen = [lines[name] for name in restless]
    rest = without(well, others(seen, is_tiered=rules.policy != UNCOUPLED))
    found: dict[LineId, Row] = {}
    held: dict[tuple[int, str], Row] = {}  # lines that share a row are held alike
    for line, why in allowed(
        candidates(seen, rows, rules, now_ms=now_ms), wishes, rules, rest=rest, offered=offered
    ).items():
        row = rows[line]
        if not why:
            found[line] = open_now(line, row, now_ms, rules)
            continue
        after = held.get(key := (id(row), why))
        if after is None:
            after = held[key] = hold(row, why)
        found[line] = after
    return found


def open_now(line: LineId, row: Row, now_ms: int, rules: Rules) -> Row:
    """The row with its breaker tripped."""
    jitter = chance(line, row.decisions, rules.seed)
    values = [*row]
    values[0] = _new(Judgement, (_UNHEALTHY, *row.judgement[1:]))
    values[_BREAKER] = trip(row.breaker, now_ms, jitter=jitter, rules=rules.breaker)
    values[_DECISIONS], values[_HELD] = row.decisions + 1, False
    return _new(Row, values)


def hold(row: Row, why: str) -> Row:
    """The row of a line that should be open and, by this rule, may not be."""
    if row.held and row.guard is why and row.judgement.health is _UNHEALTHY:
        return row
    values = [*row]
    values[0] = _new(Judgement, (_UNHEALTHY, *row.judgement[1:]))
    values[_HELD], values[_GUARD] = True, why
    return _new(Row, values)


def wait(before: Row, after: Row) -> Row:
    """The row of a line whose trial would begin, were it its turn: still open, without doubling, and its faults as before."""
    was = before.judgement
    judged = after.judgement._replace(faults=was.faults, bad=was.bad, down=was.down)
    return after._replace(judgement=judged, breaker=before.breaker._replace(waits=True))
