"""From rows to what the world sees: weights by policy, standings in order, and the change that says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from reachline.core.breaker import share_milli
from reachline.core.guard import Candidate, fail_open
from reachline.core.quorum import Tally, needed
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.tiers import Share, full_milli, spread
from reachline.core.weigh import raw_milli, score, wire
from reachline.model import Fact, Gate, Health, Line, LineId, Role, Standing

__all__ = ["BLIND", "Weights", "candidates", "facts_of", "is_news", "order", "rule_of", "shares", "standing", "weights"]

_SMALLEST_RAISE: Final = 2
"""Points: smaller raises wait, so that a fading fault does not push a snapshot a tick; cuts never wait."""


_WEIGHTED: Final = ("weighted",)
_LOWER: Final = (Role.BACKUP, Role.RESERVE)

BLIND: Final = {True: "quorum.blind", False: "quorum.seen"}
"""The rules by which a line loses and regains all its fresh vantages."""


class Weights(NamedTuple):
    """Raw and full weight of every line in 1/1000 point, and why ordinary rules are suspended (or empty)."""

    raw: Mapping[LineId, int]
    full: Mapping[LineId, int]
    panic: str


def candidates(lines: Sequence[Line], rows: Mapping[LineId, Row], rules: Rules, *, now_ms: int = 0) -> list[Candidate]:
    """The lines as the guard sees them at the end of the tick `now_ms`."""
    is_tiered = rules.policy != _WEIGHTED
    return [
        Candidate(
            line.id,
            line.base,
            row.breaker.gate,
            row.zone,
            row.judgement.faults,
            line.drained or row.obeys.forced == "open",
            line.capacity,
            is_tiered and not line.roles.isdisjoint(_LOWER),
            row.incident,
            raw_milli(line.base, row.judgement.faults, 1_000, rules.faults),
            now_ms - row.ok_ms <= rules.tick_ms,
            row.held,
        )
        for line, row in ((line, rows[line.id]) for line in lines)
    ]


def shares(lines: Sequence[Line], rows: Mapping[LineId, Row], rules: Rules) -> list[Share]:
    """The lines as a policy sees them; a held line has the floor's faults, whatever it gathered."""
    return [
        Share(
            line.base,
            line.roles,
            row.judgement.health,
            row.breaker.gate,
            rules.faults.cap if row.held else row.judgement.faults,
            share_milli(row.breaker, rules.breaker),
        )
        for line, row in ((line, rows[line.id]) for line in lines)
    ]


def weights(lines: Sequence[Line], rows: Mapping[LineId, Row], rules: Rules) -> Weights:
    """Drain first, then policy over breaker, faults and ramp, then fail-open. Unenforced rules leave health's weights."""
    taking = [line for line in lines if not line.drained and rows[line.id].obeys.forced != "open"]
    now = shares(taking, rows, rules)
    well = [Share(share.base, share.roles, Health.HEALTHY, Gate.CLOSED, 0, 1_000) for share in now]
    total = full_milli(well, rules.policy)
    full = dict(zip((line.id for line in taking), spread(well, rules.policy, total, rules.faults), strict=True))
    if not rules.enforce:
        return Weights(full, full, "")
    if least := fail_open(candidates(lines, rows, rules)):
        return Weights(least, full, "fail_open")
    raw = dict(zip((line.id for line in taking), spread(now, rules.policy, total, rules.faults), strict=True))
    return Weights(raw, full, "last_line" if any(row.held for row in rows.values()) else "")


def standing(line: Line, row: Row, found: Weights, rules: Rules) -> Standing:
    """What a snapshot says of this line now."""
    gate, health = row.breaker.gate, row.judgement.health
    raw = found.raw.get(line.id, 0)
    tried = gate in (Gate.HALF_OPEN, Gate.RAMP)
    weight = wire(raw)
    return Standing(
        line=line.id,
        health=Health.DRAINING if line.drained else health,
        gate=gate,
        step=row.breaker.step,
        weight=weight,
        raw_milli=raw,
        score=0 if gate is Gate.OPEN else score(raw, found.full.get(line.id, 0)),
        reason="operator.drain" if line.drained else row.reason,
        window=row.breaker.window if tried else 0,
        since_ms=row.since_ms,
        next_ms=_next_ms(row, rules),
        blind=row.blind,
    )


def _next_ms(row: Row, rules: Rules) -> int | None:
    """For people: the end of a cooldown even where a bad verdict may prolong it, the earliest end of a window."""
    match row.breaker.gate:
        case Gate.CLOSED:
            return None
        case Gate.OPEN:
            return row.breaker.until_ms or None
        case Gate.HALF_OPEN:
            return row.breaker.since_ms + rules.breaker.trial_ms
        case Gate.RAMP:
            return row.breaker.since_ms + rules.breaker.step_ms


def is_news(before: Standing, after: Standing) -> bool:
    """Whether `after` is worth publishing: any state, any cut, any raise of two points, or full weight reached."""
    if (before.health, before.gate, before.step, before.window, before.blind) != (
        after.health,
        after.gate,
        after.step,
        after.window,
        after.blind,
    ):
        return True
    grown = after.weight - before.weight
    return grown < 0 or grown >= _SMALLEST_RAISE or (grown > 0 and after.raw_milli == after.weight * 1_000)


def rule_of(last: Standing, after: Standing, rule: str, rules: Rules) -> str:
    """The rule to name for a change: the row's own, else faults or the policy that moved its weight."""
    if rule:
        return rule
    if after.gate is Gate.OPEN and after.weight and rules.enforce:
        return "guard.fail_open"
    if after.health is Health.DRAINING and last.health is not Health.DRAINING:
        return "operator.drain"
    if (
        after.reason
        and after.health in (Health.DEGRADED, Health.HEALTHY, Health.UNHEALTHY)
        and last.reason == after.reason
    ):
        return "faults.grew" if after.weight < last.weight else "faults.faded"
    return f"policy.{'.'.join(rules.policy)}"


def order(standings: Sequence[Standing]) -> tuple[Standing, ...]:
    """As published: weight down, then id. "Second place" in the list is this order; choice stays weighted random."""
    return tuple(sorted(standings, key=lambda standing: (-standing.weight, standing.line)))


def facts_of(before: Row, after: Row, tally: Tally | None, due: int | None, rules: Rules) -> tuple[Fact, ...]:
    """The numbers a decision on a line rests on, votes apart."""
    judged, was, now = after.judgement, before.breaker, after.breaker
    found = [Fact("faults_micro", judged.faults), Fact("bad_ticks", judged.bad), Fact("down_ticks", judged.down)]
    found += [Fact("bad_since_ms", after.bad_ms)] if after.bad_ms else []
    found += [Fact("good_ticks", judged.good), Fact("degraded_patience", rules.patience.degraded)]
    lone = tally is not None and tally.is_lone
    found.append(Fact("failed_patience", rules.patience.lone_failed if lone else rules.patience.failed))
    found.append(Fact("recover_patience", rules.patience.recover))
    if tally is not None and tally.has_quorum:
        found += [Fact("fresh_vantages", tally.fresh), Fact("configured_vantages", tally.configured)]
        found += [Fact("needed_vantages", needed(tally.configured)), Fact("vote_weight_milli", tally.weight)]
        found += [Fact("vote_failed_milli", tally.failed), Fact("vote_bad_milli", tally.bad)]
    if was.gate in (Gate.HALF_OPEN, Gate.RAMP):
        found += [Fact("window", was.window), Fact("trial_ok", was.ok), Fact("trial_failed", was.failed)]
        found += [Fact("trial_synthetic", was.synthetic), Fact("trial_min_ok", rules.breaker.min_ok)]
        found.append(Fact("trial_fail_threshold", rules.breaker.fail_threshold))
    if now.gate is Gate.OPEN and now.until_ms:
        found += [Fact("cooldown_ms", now.until_ms - now.since_ms), Fact("until_ms", now.until_ms)]
        found.append(Fact("reopens", now.reopens))
    if due is not None:
        found.append(Fact("due_ms", due))
    return tuple(found)
