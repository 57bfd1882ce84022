"""From rows to what the world sees: weights by policy, standings in order, and the change that says why."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from reachline.core.cusum import grown
from reachline.core.quorum import Tally, needed
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.spreading import Weights
from reachline.core.weigh import MILLI, score, wire
from reachline.model import Fact, Gate, Health, Line, Standing

__all__ = ["BLIND", "PANIC", "POURED", "facts_of", "is_standing", "rule_of", "standing"]

_CLOSED: Final = Gate.CLOSED
_OPEN: Final = Gate.OPEN
_DRAINING: Final = Health.DRAINING
"""Looked up once: an enum's attribute costs eight times as much as a name."""

_new: Final = object.__new__
(_LINE, _HEALTH, _GATE, _STEP, _WEIGHT, _RAW, _SCORE, _REASON, _WINDOW, _SINCE, _NEXT, _BLIND, _INCIDENT) = (
    getattr(Standing, name).__set__ for name in Standing.__dataclass_fields__
)
"""A standing is filled in slot by slot: its own constructor asks for each by name, and takes three times as long. Where all lines turn
at once, that is a sixth of the tick.
"""

_SMALLEST_RAISE: Final = 2
"""Points: smaller raises wait, so that a fading fault does not push a snapshot a tick; cuts never wait."""


POURED: Final = "capacity.poured"
PANIC: Final = "guard.panic"
"""The rules by which other lines' limits, and the loss of most of the weight, move what a line gets."""
_GROUP: Final = {True: "group.incident", False: "group.over"}

BLIND: Final = {True: "quorum.blind", False: "quorum.seen"}
"""The rules by which a line loses and regains all its fresh vantages."""


def standing(line: Line, row: Row, found: Weights, rules: Rules) -> Standing:
    """What a snapshot says of this line now."""
    breaker, name = row.breaker, line.id
    gate, raw = breaker.gate, found.raw.get(name, 0)
    is_closed = gate is _CLOSED
    made = _new(Standing)
    _LINE(made, name)
    _HEALTH(made, _DRAINING if line.drained else row.judgement.health)
    _GATE(made, gate)
    _STEP(made, breaker.step)
    _WEIGHT(made, wire(raw))
    _RAW(made, raw)
    _SCORE(made, 0 if gate is _OPEN else score(raw, found.full.get(name, 0)))
    _REASON(made, "operator.drain" if line.drained else _reason(line, row, found))
    _WINDOW(made, 0 if is_closed or gate is _OPEN else breaker.window)
    _SINCE(made, row.since_ms)
    _NEXT(made, None if is_closed else _next_ms(row, rules))
    _BLIND(made, row.blind)
    _INCIDENT(made, row.incident)
    return made


def _reason(line: Line, row: Row, found: Weights) -> str:
    """The row's own reason, else what moved its weight although nothing is wrong with it."""
    if found.panic == "panic" and row.breaker.gate is Gate.OPEN and row.lively:
        return PANIC
    return POURED if not row.reason and line.id in found.poured else row.reason


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


def is_standing(before: Standing, line: Line, row: Row, found: Weights) -> bool:
    """Whether `standing` would say nothing worth publishing beside `before`: no other state, no cut, no raise of two points, and
    not full weight reached. So it is with most rows that move; this is told without making one.
    """
    breaker, gate = row.breaker, before.gate
    if (
        before.health is not (_DRAINING if line.drained else row.judgement.health)
        or before.blind != row.blind
        or before.incident != row.incident
        or gate is not breaker.gate
        or before.step != breaker.step
        or before.window != (0 if gate is _CLOSED or gate is _OPEN else breaker.window)
    ):
        return False
    raw = found.raw.get(line.id, 0)
    grown = wire(raw) - before.weight
    return grown == 0 or (0 < grown < _SMALLEST_RAISE and raw != (before.weight + grown) * MILLI)


def rule_of(last: Standing, after: Standing, rule: str, rules: Rules) -> str:
    """The rule to name for a change: the row's own, else faults or the policy that moved its weight."""
    if rule:
        return rule
    if last.incident != after.incident:
        return _GROUP[bool(after.incident)]
    if after.reason in (POURED, PANIC):
        return after.reason
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


@lru_cache(maxsize=1 << 12)
def _fact(name: str, value: int) -> Fact:
    """Of the few that are the same for most lines of a tick."""
    return Fact(name, value)


def facts_of(before: Row, after: Row, tally: Tally | None, due: int | None, rules: Rules) -> tuple[Fact, ...]:
    """The numbers a decision on a line rests on, votes apart."""
    judged, was, now = after.judgement, before.breaker, after.breaker
    found = [Fact("faults_micro", judged.faults), _fact("bad_ticks", judged.bad), _fact("down_ticks", judged.down)]
    found += [Fact("bad_since_ms", after.bad_ms)] if after.bad_ms else []
    found += [_fact("good_ticks", judged.good), _fact("degraded_patience", rules.patience.degraded)]
    lone = tally is not None and tally.is_lone
    found.append(_fact("failed_patience", rules.patience.lone_failed if lone else rules.patience.failed))
    found.append(_fact("recover_patience", rules.patience.recover))
    if tally is not None and tally.has_quorum:
        found += [_fact("fresh_vantages", tally.fresh), _fact("configured_vantages", tally.configured)]
        found += [_fact("needed_vantages", needed(tally.configured)), _fact("vote_weight_milli", tally.weight)]
        found += [_fact("vote_failed_milli", tally.failed), _fact("vote_bad_milli", tally.bad)]
    if was.gate in (Gate.HALF_OPEN, Gate.RAMP):
        found += [Fact("window", was.window), Fact("trial_ok", was.ok), Fact("trial_failed", was.failed)]
        found += [Fact("trial_synthetic", was.synthetic), Fact("trial_min_ok", rules.breaker.min_ok)]
        found.append(Fact("trial_fail_threshold", rules.breaker.fail_threshold))
    if now.gate is Gate.OPEN and now.until_ms:
        found += [Fact("cooldown_ms", now.until_ms - now.since_ms), Fact("until_ms", now.until_ms)]
        found.append(Fact("reopens", now.reopens))
    if any(after.asked.sums):
        what, total, height = grown(after.asked, rules.questions)
        found += [Fact(f"sum.{what}", 1_000 * total // height)] if what else []
    found += [Fact(f"unenforced.{rule}", 1) for rule in _idle(after, rules)]
    if due is not None:
        found.append(Fact("due_ms", due))
    return tuple(found)


def _idle(row: Row, rules: Rules) -> list[str]:
    """Rules that have something to say of this line, and do not act."""
    if rules.enforce and not rules.shadowed:
        return []
    speaks = {
        "breaker": row.breaker.gate is not Gate.CLOSED,
        "faults": row.judgement.faults > 0,
        "groups": bool(row.incident),
        "guard": row.held,
    }
    return [rule for rule, has_word in speaks.items() if has_word and not rules.acts(rule)]
