"""The weight of every line, in this order: drain, breaker, policy, faults, ramp, capacity, guard. Rounding up is the publisher's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Final, NamedTuple

from reachline.core.breaker import CLOSED, share_milli
from reachline.core.guard import Candidate, fail_open, is_panic
from reachline.core.pour import Vessel, Will, is_enough, poured
from reachline.core.refuge import is_lower
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.tiers import Share, full_milli, spread
from reachline.core.weigh import MILLI, raw_milli
from reachline.model import Gate, Health, Line, LineId, Role

__all__ = [
    "UNCOUPLED",
    "WHOLE",
    "Weights",
    "candidates",
    "flag_of",
    "is_taking",
    "shares",
    "weighed",
    "weights",
    "whole",
]

UNCOUPLED: Final = ("weighted",)
"""The policy under which a line's weight depends on no other line's state, only on the sum of all bases."""
_TRIED: Final = (Gate.HALF_OPEN, Gate.RAMP)
WHOLE: Final = 1_000
"""A step that takes nothing away, in 1/1000."""
_OPEN: Final = Gate.OPEN
_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""


class Weights(NamedTuple):
    """Raw and full weight of every line in 1/1000 point, why ordinary rules are suspended (or empty), and whose weight
    was moved by what lines can carry.
    """

    raw: Mapping[LineId, int]
    full: Mapping[LineId, int]
    panic: str
    poured: frozenset[LineId] = frozenset()


def is_taking(line: Line, row: Row) -> bool:
    """Whether no operator took the line out."""
    return not line.drained and row.obeys.forced != "open"


def candidates(lines: Sequence[Line], rows: Mapping[LineId, Row], rules: Rules, *, now_ms: int = 0) -> list[Candidate]:
    """The lines as the guard sees them at the end of the tick `now_ms`. To it a line without weight is drained: it relieves nobody."""
    is_tiered = rules.policy != UNCOUPLED
    left: dict[tuple[int, int], int] = {}  # what faults leave of a base
    found, since_ms = [], now_ms - rules.tick_ms
    for line in lines:
        name, base = line.id, line.base
        # Taken apart at once: each attribute costs a sixth of that.
        (judged, breaker, zone, _, _, _, held, _, _, _, _, obeys, _, _, incident, _, ok_ms, _, _) = rows[name]
        faults = judged.faults
        alike = base, faults
        weight = left.get(alike)
        if weight is None:
            weight = left[alike] = raw_milli(base, faults, WHOLE, rules.faults)
        is_out = not base or line.drained or obeys.forced == "open"
        one = (
            name, base, breaker.gate, zone, faults, is_out, line.capacity, is_tiered and is_lower(line), incident,
            weight, ok_ms >= since_ms, held,
        )  # fmt: skip
        found.append(_new(Candidate, one))
    return found


def shares(lines: Sequence[Line], rows: Mapping[LineId, Row], rules: Rules) -> list[Share]:
    """The lines as a policy sees them; a held line has the floor's faults, whatever it gathered. Rules that do not act are not
    seen.
    """
    trips, costs, cap = rules.acts("breaker"), rules.acts("faults"), rules.faults.cap
    found = []
    for line in lines:
        row = rows[line.id]
        judged, breaker = row.judgement, row.breaker
        step_milli = WHOLE if breaker is CLOSED else share_milli(breaker, rules.breaker)
        faults = cap if row.held and trips else judged.faults
        share = _new(Share, (line.base, line.roles, judged.health, breaker.gate, faults, step_milli))
        if not (trips and costs):
            share = _seen(share, trips=trips, costs=costs or (row.held and trips))
        found.append(share)
    return found


def _seen(share: Share, *, trips: bool, costs: bool) -> Share:
    """The line without what does not act: a breaker that does not trip leaves it degraded, faults that cost nothing healthy."""
    if not trips:
        health = Health.DEGRADED if share.health is Health.UNHEALTHY else share.health
        share = share._replace(gate=Gate.CLOSED, step_milli=WHOLE, health=health)
    if costs:
        return share
    return share._replace(faults=0, health=Health.HEALTHY if share.health is Health.DEGRADED else share.health)


def weights(lines: Sequence[Line], rows: Mapping[LineId, Row], rules: Rules, *, offered: int = 0) -> Weights:
    """All lines' weights; `offered` is what they are asked to carry, in 1/1000 call a second. Unenforced rules leave
    health's weights.
    """
    taking = [line for line in lines if is_taking(line, rows[line.id])]
    return weighed(taking, shares(taking, rows, rules), whole(taking, rules), rows, rules=rules, offered=offered)


def whole(taking: Sequence[Line], rules: Rules) -> dict[LineId, int]:
    """The weights of these lines in health."""
    well = [Share(line.base, line.roles, Health.HEALTHY, Gate.CLOSED, 0, WHOLE) for line in taking]
    found = spread(well, rules.policy, full_milli(well, rules.policy), rules.faults)
    return dict(zip([line.id for line in taking], found, strict=True))


def weighed(
    taking: Sequence[Line],
    now: Sequence[Share],
    full: Mapping[LineId, int],
    rows: Mapping[LineId, Row],
    *,
    rules: Rules,
    offered: int,
) -> Weights:
    """`weights`, of the lines that no operator took out, as a policy sees them, with their weights in health."""
    if not rules.enforce:
        return Weights(full, full, "")
    is_shut = rules.acts("breaker") and all(share.gate is _OPEN for share in now if share.base)
    if is_shut and (least := fail_open(candidates(taking, rows, rules))):
        return Weights(least, full, "fail_open")
    names, total = [line.id for line in taking], full_milli(now, rules.policy)
    raw = _spread(now, total, rules)
    is_lost = is_panic(sum(raw), sum(full.values()), rules.guard)
    if is_lost and rules.acts("guard") and not _rest_carries(taking, rows, offered):
        revived = [_revived(share, rows[line.id]) for line, share in zip(taking, now, strict=True)]
        raw = raw if all(map(is_, revived, now)) else _spread(revived, total, rules)
    else:
        is_lost = False
    found = _poured(taking, rows, raw, rules, offered)
    moved = frozenset() if found is raw else _moved(names, raw, found)
    return Weights(
        dict(zip(names, found, strict=True)),
        full,
        flag_of({rows[line.id].guard for line in taking if rows[line.id].held}, is_lost=is_lost),
        moved,
    )


def _moved(names: Sequence[LineId], before: Sequence[int], after: Sequence[int]) -> frozenset[LineId]:
    """The lines of which these two differ."""
    return frozenset(name for name, was, now in zip(names, before, after, strict=True) if was != now)


def flag_of(guards: set[str], *, is_lost: bool) -> str:
    """Why ordinary rules are suspended, the most urgent first, by the guard's rules that hold some line."""
    if "guard.last_line" in guards:
        return "last_line"
    if is_lost or "guard.panic" in guards:
        return "panic"
    return "blast" if guards else ""


def _spread(now: Sequence[Share], total: int, rules: Rules) -> list[int]:
    if rules.breaker.share_steps and rules.policy == UNCOUPLED:
        now = _as_shares(now, rules)
    return spread(now, rules.policy, total, rules.faults)


def _as_shares(now: Sequence[Share], rules: Rules) -> list[Share]:
    """The lines with the steps of those that return solved to be shares of all traffic, at most their own full weight."""
    steps = sum(share.step_milli for share in now if share.gate in _TRIED)
    others = sum(
        raw_milli(share.base, share.faults, share.step_milli, rules.faults) for share in now if share.gate not in _TRIED
    )
    if not others or steps >= WHOLE:
        return list(now)
    whole = others * WHOLE // (WHOLE - steps)
    return [
        share._replace(step_milli=min(WHOLE, whole * share.step_milli // (share.base * MILLI)))
        if share.gate in _TRIED and share.base
        else share
        for share in now
    ]


def _revived(share: Share, row: Row) -> Share:
    """In panic a line that is open, but alive, gets what its faults leave of it."""
    return share._replace(gate=Gate.CLOSED, step_milli=WHOLE) if row.lively else share


def _rest_carries(lines: Sequence[Line], rows: Mapping[LineId, Row], offered: int) -> bool:
    """Whether the healthy lines are known to carry what is offered: then the loss of the others is no reason to panic."""
    well = [line for line in lines if rows[line.id].judgement.health is Health.HEALTHY and not rows[line.id].held]
    return is_enough([Vessel(0, line.capacity) for line in well], offered)


def _poured(lines: Sequence[Line], rows: Mapping[LineId, Row], raw: list[int], rules: Rules, offered: int) -> list[int]:
    """The weights as capacities allow; between groups of `ab_groups` only what the reserve cannot carry goes back."""
    if not (offered and rules.acts("capacity") and any(line.capacity for line in lines)):
        return raw
    vessels = [Vessel(weight, line.capacity, _will(rows[line.id])) for line, weight in zip(lines, raw, strict=True)]
    fill = rules.guard.fill_milli
    if rules.policy[:1] != ("ab_groups",):
        return poured(vessels, offered, fill)
    reserve = [Role.RESERVE in line.roles for line in lines]
    vessels = _within_reserve(vessels, reserve, offered, fill)
    found = [0] * len(lines)
    total = sum(vessel.weight for vessel in vessels)
    for group in (False, True):
        places = [place for place, is_reserve in enumerate(reserve) if is_reserve is group]
        own = [vessels[place] for place in places]
        load = offered * sum(vessel.weight for vessel in own) // total if total else 0
        for place, weight in zip(places, poured(own, load, fill), strict=True):
            found[place] = weight
    return found


def _within_reserve(vessels: Sequence[Vessel], reserve: Sequence[bool], offered: int, fill_milli: int) -> list[Vessel]:
    """The reserve group with no more than it can carry, the rest back with the traffic group."""
    lent = [vessel for vessel, is_reserve in zip(vessels, reserve, strict=True) if is_reserve]
    total, out = sum(vessel.weight for vessel in vessels), sum(vessel.weight for vessel in lent)
    kept = total - out
    if not kept or not out or any(vessel.capacity is None for vessel in lent):
        return list(vessels)
    most = min(out, total * fill_milli * sum(vessel.capacity or 0 for vessel in lent) // offered)
    return [
        vessel._replace(weight=vessel.weight * (most if is_reserve else total - most) // (out if is_reserve else kept))
        for vessel, is_reserve in zip(vessels, reserve, strict=True)
    ]


def _will(row: Row) -> Will:
    if row.held or row.breaker.gate is not Gate.CLOSED:
        return Will.BOUND
    return Will.TAKES if row.judgement.health in (Health.HEALTHY, Health.UNKNOWN) else Will.YIELDS
