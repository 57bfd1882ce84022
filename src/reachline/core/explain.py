"""Why a line stands where it stands: the rule, the deciding counts, what came before, what comes next and when.

A pure function of what the ledger holds and what it decided; the edges give the clock that turns ms into local time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reachline.core import quoting, words
from reachline.core.breaker import Breaker
from reachline.core.drill import is_played
from reachline.core.guard import LAST_LINE
from reachline.core.ledger import LineView
from reachline.core.orders import Action, Order
from reachline.core.quorum import needed
from reachline.core.rules import BreakerRules, Rules
from reachline.model import Change, Fact, Gate, Health, LineId, Standing, Vote, Zone

__all__ = ["Explanation", "explain"]

_KEPT: Final = {"open": "open", "close": "closed"}
_EARLIER: Final = 60
"""Changes told besides the deciding one: an incident with its ramp, one weight a tick, fits; like ones are told together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything there is to say about one line at one moment. Times are ms since the journal's epoch."""

    line: LineId
    now_ms: int
    standing: Standing
    base: int
    rule: str
    """Of the newest change of state; empty where nothing ever happened to the line."""
    decided_ms: int | None
    because: str
    votes: tuple[Vote, ...]
    """Of the vantages when it was decided…"""
    facts: tuple[Fact, ...]
    """…and the numbers beside them."""
    current: tuple[Vote, ...]
    """What the vantages say now."""
    seen: str
    next_ms: int | None
    """The next moment at which something may happen by itself."""
    next: str
    otherwise: tuple[str, ...]
    """What would change it besides."""
    earlier: tuple[Change, ...]
    """Newest first, without the deciding one."""
    orders: tuple[Order, ...] = ()
    """Operators' orders that name the line now, oldest first."""
    business: tuple[str, ...] = ()
    """What the business's own calls say now, whose fault it is, and whether they are believed."""
    trusted: tuple[str, ...] = ()
    """Vantages whose word does not count fully."""


def explain(view: LineView, history: Sequence[Change], *, rules: Rules, now_ms: int) -> Explanation:
    """The explanation of `view`; `history` are changes of this line, in any order, as many as are known."""
    standing = view.standing
    newest_first = sorted((change for change in history if change.at_ms <= now_ms), key=_when, reverse=True)
    deciding = next((change for change in newest_first if _is_turn(change)), None)
    facts = {fact.name: fact.value for fact in deciding.facts} if deciding else {}
    name = deciding.rule if deciding else ""
    next_ms, comes = _next(view, rules, now_ms)
    held = f"; {words.rule(view.row.guard, facts)}" if view.row.held else ""
    shared = f"; part of the incident of group {standing.incident}" if standing.incident else ""
    return Explanation(
        line=view.line.id,
        now_ms=now_ms,
        standing=standing,
        base=view.line.base,
        rule=name,
        decided_ms=deciding.at_ms if deciding else None,
        because=words.rule(name, facts) + held + shared + words.unenforced(facts),
        votes=deciding.votes if deciding else (),
        facts=deciding.facts if deciding else (),
        current=tuple(ballot.vote for _, ballot in view.ballots if ballot.vote is not None),
        seen=_seen(view, rules),
        next_ms=next_ms,
        next=comes,
        otherwise=_otherwise(view, rules),
        earlier=tuple(change for change in newest_first if change is not deciding)[:_EARLIER],
        orders=view.orders,
        business=quoting.business(view, rules, now_ms),
        trusted=quoting.trusted(view),
    )


def _when(change: Change) -> int:
    return change.at_ms


def _is_turn(change: Change) -> bool:
    """Whether a change is one of state, not of weight alone."""
    before, after = change.before, change.after
    state = (before.health, before.gate, before.step, before.blind)
    return state != (after.health, after.gate, after.step, after.blind) or change.rule.startswith("guard.")


def _seen(view: LineView, rules: Rules) -> str:
    """Who is heard now and what they say together."""
    found = view.tally
    wanted = needed(found.configured)
    heard = f"{found.fresh} of {found.configured} vantages are fresh ({wanted} needed)"
    if not found.has_quorum:
        return f"{heard}: no verdict now, the state is held"
    share = words.percent(rules.quorum.share_milli, 1_000)
    healthy = found.weight - found.bad
    counts = f"failed {_votes(found.failed)}, degraded {_votes(found.bad - found.failed)}, healthy {_votes(healthy)}"
    return f"{heard}: {counts} of {_votes(found.weight)} votes, more than {share} decide; together: {words.zone(found.zone)}"


def _votes(milli: int) -> str:
    return words.amount(milli * 1_000)


def _next(view: LineView, rules: Rules, now_ms: int) -> tuple[int | None, str]:
    """When something happens by itself, and what."""
    breaker, row = view.row.breaker, view.row
    if breaker.gate is Gate.OPEN and is_played(row):
        return (
            next((order.until_ms for order in view.orders if order.number == row.obeys.drill), None),
            f"order {row.obeys.drill}, a drill, ends; then it stands as its own evidence says",
        )
    match breaker.gate:
        case Gate.OPEN if row.obeys.forced:
            ends = (
                f"order {row.obeys.gate} ends"
                if breaker.until_ms
                else f"nothing is due before order {row.obeys.gate} is undone"
            )
            return (
                breaker.until_ms or None,
                f"{ends}; then it is on trial, as soon as most vantages do not call it failed",
            )
        case Gate.OPEN:
            return breaker.until_ms, _after_cooldown(view, rules, now_ms)
        case Gate.HALF_OPEN | Gate.RAMP:
            length = rules.breaker.trial_ms if breaker.gate is Gate.HALF_OPEN else rules.breaker.step_ms
            return breaker.since_ms + length, _after_window(breaker, rules.breaker)
        case Gate.CLOSED if row.judgement.health is Health.HEALTHY:
            fades = row.judgement.faults and f"{words.amount(row.judgement.faults)} faults fade with every clean tick"
            return view.due_ms, fades or "nothing is due"
        case Gate.CLOSED:
            return view.due_ms, _back_to_health(view, rules)


def _after_cooldown(view: LineView, rules: Rules, now_ms: int) -> str:
    breaker, every = view.row.breaker, words.duration(rules.tick_ms)
    if breaker.waits:
        return "the cooldown is over; it waits for the trial of another line of its shared-risk group to end"
    trial = f"a trial with {words.percent(rules.breaker.steps_milli[0], 1_000)} of its weight begins"
    again = f" (after {breaker.reopens} failed returns)" if breaker.reopens else ""
    if now_ms < breaker.until_ms:
        wait = words.duration(breaker.until_ms - breaker.since_ms)
        return (
            f"the cooldown of {wait}{again} ends; then {trial}, unless most vantages still call it failed: "
            f"then it stays open and is asked again every {every}"
        )
    return f"the cooldown is over; {trial} at the first tick (every {every}) in which most vantages no longer call it failed"


def _after_window(breaker: Breaker, rules: BreakerRules) -> str:
    missing, rest = max(0, rules.min_ok - breaker.ok), max(0, rules.fail_threshold - breaker.failed)
    calls = f"{breaker.ok} of {rules.min_ok} calls are ok" + (f", {missing} more are needed" if missing else "")
    following = breaker.step + 1
    final = following >= len(rules.steps_milli) or rules.steps_milli[following] >= 1_000
    share = "its full weight" if final else f"{words.percent(rules.steps_milli[following], 1_000)} of its weight"
    starved = ""
    if missing:
        starved = f"; with too few calls it may lean on probes after {words.duration(rules.starved_ms)} ({breaker.synthetic} ok so far)"
    rate = (
        f"at least {words.percent(rules.fail_milli, 1_000)}, or {rules.fail_threshold} in a row,"
        if rules.fail_milli
        else ""
    )
    fails = f"{rest} more, and {rate}" if rate else f"{rest} more"
    return (
        f"the window may pass: {calls}; it then gets {share}. {breaker.failed} calls failed, {fails} would open it again"
        f"{starved}"
    )


def _back_to_health(view: LineView, rules: Rules) -> str:
    judged, patience = view.row.judgement, rules.patience
    missing = max(1, patience.recover - judged.good)
    wait = words.duration(missing * rules.tick_ms)
    return (
        f"{missing} more clean ticks in a row make it healthy ({judged.good} of {patience.recover} so far), "
        f"{wait} at the earliest"
    )


def _released(guard: str, rules: Rules) -> str:
    """What lets the guard go of a line that it holds."""
    if guard == LAST_LINE:
        return "it opens as soon as another line of its cluster carries traffic (1 is needed)"
    share = words.percent(rules.guard.open_milli, 1_000)
    return f"it opens once no more than {share} of its cluster would then be open, or the healthy rest is known to carry all"


def _otherwise(view: LineView, rules: Rules) -> tuple[str, ...]:
    """What besides the next deadline would move the line, with the numbers it takes."""
    row, patience = view.row, rules.patience
    asked = patience.lone_failed if view.tally.is_lone else patience.failed
    found = []
    if row.held:
        found.append(_released(row.guard, rules))
    if row.breaker.gate is Gate.CLOSED and not row.held:
        if not row.obeys.forced:
            found.append(f"{asked} failed ticks in a row open it ({row.judgement.down} so far)")
        if row.judgement.health is not Health.DEGRADED:
            found.append(f"{patience.degraded} bad ticks in a row make it degraded ({row.judgement.bad} so far)")
    if row.breaker.gate in (Gate.HALF_OPEN, Gate.RAMP):
        found.append("1 tick in which most vantages call it failed opens it again, with a longer cooldown")
        if row.zone is Zone.D:
            found.append("while most vantages call it degraded, the window neither passes nor fails")
    if row.blind:
        found.append(f"{needed(view.tally.configured)} fresh vantages would let it be judged again")
    return (*found, *_lifted(view))


def _lifted(view: LineView) -> list[str]:
    """What orders it follows that somebody may end."""
    row, found = view.row, []
    if view.line.drained:
        drains = [f"undo {order.number}" for order in view.orders if order.action is Action.DRAIN]
        found.append(f"an operator ends the draining (`{' and '.join(drains) or 'drained: false'}`)")
    if row.obeys.drill:
        found.append(f"an operator ends the drill (`undo {row.obeys.drill}`)")
    if row.obeys.forced:
        found.append(f"an operator ends order {row.obeys.gate}, which keeps it {_KEPT[row.obeys.forced]}")
    return found
