"""An explanation as plain text for people and as a document for scripts. The edges give the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from reachline.core import words
from reachline.core.explain import Explanation
from reachline.core.orders import Order
from reachline.core.vitals import Beside
from reachline.model import Change, Seconds, Vote

__all__ = ["Clock", "document", "text"]

Clock = Callable[[int], str]
"""A moment of the journal in local time, for people."""

_INDENT = " " * 9
_WEIGHT_ONLY = ("faults.", "policy.")


def text(found: Explanation, clock: Clock, beside: Sequence[Beside] = ()) -> str:
    """Plain text, the most needed first: what, why, what vantages said of themselves beside it, now, next, else, before."""
    standing = found.standing
    ago = words.duration(found.now_ms - standing.since_ms)
    weight = f"weight {standing.weight} of {found.base}, score {standing.score}"
    decided = f" at {clock(found.decided_ms)}" if found.decided_ms is not None else ""
    lines = [f"{found.line} is {words.state(standing)}; {weight}, since {clock(standing.since_ms)} ({ago})."]
    lines += ["", f"Why    {found.rule or 'no rule'}{decided}: {found.because}.", *_cast(found.votes)]
    if found.orders:
        lines += ["", *(f"{head:7}{_order(one, found.now_ms, clock)}" for head, one in _headed(found.orders))]
    if beside:
        lines += ["", *_beside(beside)]
    lines += ["", f"Now    {found.seen}.", *_cast(found.current)]
    lines += [f"{_INDENT}{one}" for one in found.trusted]
    lines += [f"Calls    {one}." if not place else f"{_INDENT}{one}." for place, one in enumerate(found.business)]
    lines += ["", f"Next   {_moment(found, clock)}{found.next}."]
    lines += [f"Else   {one}." for one in found.otherwise]
    if found.earlier:
        lines += ["", "Before", *_earlier(found.earlier, clock)]
    return "\n".join(lines)


def _cast(votes: Iterable[Vote]) -> list[str]:
    """One row for all vantages that say the same, worst first."""
    said: dict[str, list[str]] = {}
    for vote in sorted(votes, key=lambda vote: (-vote.zone.value, vote.vantage)):
        said.setdefault(f"{words.zone(vote.zone)}, {words.vote(vote)}", []).append(vote.vantage)
    return [f"{_INDENT}{', '.join(vantages)}: {what}" for what, vantages in said.items()]


def _beside(said: Sequence[Beside]) -> list[str]:
    """One row for each vantage and moment; it decides nothing, but it may be why."""
    rows: list[str] = []
    for (when, vantage), group in groupby(said, key=lambda one: (one.when, one.vantage)):
        head = _INDENT if rows else "Beside   "
        rows.append(f"{head}at {when} {vantage}: {', '.join(one.text for one in group)}")
    return rows


def _headed(orders: Sequence[Order]) -> Iterator[tuple[str, Order]]:
    for place, one in enumerate(reversed(orders)):
        yield "" if place else "Orders", one


def _order(order: Order, now_ms: int, clock: Clock) -> str:
    """Who asked what, until when and why: `drain, order 3 by local until 16:03:22 (in 2 h), because works.`"""
    what = f"{order.action.value} {order.weight}" if order.weight else order.action.value
    what += f" of {words.milliseconds(1_000 * order.slow_ms)}" if order.slow_ms else ""
    until = "until it is undone"
    if order.until_ms is not None:
        until = f"until {clock(order.until_ms)} (in {words.duration(order.until_ms - now_ms)})"
    why = f", because {order.why}" if order.why else ""
    return f"{what}, order {order.number} by {order.by} on {order.target} {until}{why}."


def _earlier(changes: Iterable[Change], clock: Clock) -> list[str]:
    """Newest first; a run of the same small moves of weight is one row, from its first to its last."""
    rows = []
    for (rule, state), run in groupby(changes, key=lambda change: (change.rule, words.state(change.after))):
        newest, *older = run
        if older and rule.startswith(_WEIGHT_ONLY):
            oldest = older[-1]
            times = f"{clock(oldest.at_ms)} … {clock(newest.at_ms)}"
            weights = f"weight {oldest.before.weight} → {newest.after.weight} in {len(older) + 1} steps"
            rows.append(f"{_INDENT}{times}  {rule}: {state}, {weights}")
        else:
            rows += [f"{_INDENT}{clock(one.at_ms)}  {rule}: {words.move(one)}" for one in (newest, *older)]
    return rows


def _moment(found: Explanation, clock: Clock) -> str:
    if found.next_ms is None:
        return ""
    if found.next_ms <= found.now_ms:
        return f"since {clock(found.next_ms)}: "
    return f"{clock(found.next_ms)} (in {words.duration(found.next_ms - found.now_ms)}): "


def document(
    found: Explanation, clock: Clock, unix: Callable[[int], Seconds], beside: Sequence[Beside] = ()
) -> dict[str, object]:
    """The same as JSON: `text` for people, the numbers for scripts; times in Unix seconds, integers in their unit."""
    standing = found.standing
    return {
        "line": found.line,
        "at": unix(found.now_ms),
        "health": standing.health.name.lower(),
        "breaker": standing.gate.name.lower(),
        "step": standing.step,
        "weight": standing.weight,
        "base": found.base,
        "score": standing.score,
        "since": unix(standing.since_ms),
        "rule": found.rule,
        "because": found.because,
        "decided": None if found.decided_ms is None else unix(found.decided_ms),
        "votes": [_vote(vote) for vote in found.votes],
        "facts": {fact.name: fact.value for fact in found.facts},
        "now": {"summary": found.seen, "votes": [_vote(vote) for vote in found.current], "trust": list(found.trusted)},
        "business": list(found.business),
        "next": None if found.next_ms is None else unix(found.next_ms),
        "comes": found.next,
        "otherwise": list(found.otherwise),
        "orders": [_ordered(one, unix) for one in found.orders],
        "earlier": [{"at": unix(one.at_ms), "rule": one.rule, "move": words.move(one)} for one in found.earlier],
        "beside": [{"vantage": one.vantage, "at": one.at, "text": one.text} for one in beside],
        "text": text(found, clock, beside),
    }


def _ordered(order: Order, unix: Callable[[int], Seconds]) -> dict[str, object]:
    return {
        "id": order.number,
        "action": order.action.value,
        "target": order.target,
        "by": order.by,
        "reason": order.why,
        "since": unix(order.since_ms),
        "until": None if order.until_ms is None else unix(order.until_ms),
    }


def _vote(vote: Vote) -> dict[str, object]:
    return {
        "vantage": vote.vantage,
        "zone": words.zone(vote.zone),
        "metric": vote.metric,
        "numerator": vote.numerator,
        "denominator": vote.denominator,
        "limit": vote.limit,
        "text": words.vote(vote),
    }
