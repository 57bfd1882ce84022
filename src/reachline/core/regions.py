"""The order of business across regions: what each cluster asks for and may have, and the one plan for all of them.

Reads ledgers and changes none. There is a plan only while present weights put more on some region than it carries; a cluster
is at home where its present weights put it, for they are what operators and the judge say of where its traffic belongs, and
so a plan moves only what must move. Callers' own regions are not known to a center.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from reachline.core.breaker import share_milli
from reachline.core.placing import Claim, place
from reachline.core.steer import FULL, SHED, SPENT, Steer
from reachline.model import Gate

if TYPE_CHECKING:
    from reachline.core.ledger import Ledger

__all__ = [
    "Outlook",
    "Seen",
    "is_scarce",
    "limits_of",
    "outlook",
    "plan",
    "rooms",
    "seen",
    "steers",
    "why_apart",
    "without",
]

_PER_CALL: Final = 1_000
"""Of the rates of `offered`."""
_SLACK_MILLI: Final = 50
"""By a twentieth more than its room a region is not full yet: published weights are whole points and follow in steps, and a
room is 0.85 of what lines carry."""
_TRIED: Final = (Gate.HALF_OPEN, Gate.RAMP)


class Seen(NamedTuple):
    """One cluster as the plan sees it, in calls a second."""

    cluster: str
    calls: int
    """Asked for: carried and refused."""
    loads: Mapping[str, int]
    """Where present weights put them…"""
    rooms: Mapping[str, int | None]
    """…and what its lines there carry, filled as far as the guard fills them; None: nobody knows."""
    priority: int = 0
    obeys: bool = True
    """Whether its clients are told; else it goes on by its weights, whatever the plan says of it."""


class Outlook(NamedTuple):
    """What becomes of every cluster, with a plan or without."""

    seen: tuple[Seen, ...]
    rooms: Mapping[str, int]
    """Of each region in all."""
    steers: Mapping[str, Steer]
    is_scarce: bool

    def where(self, of: Seen) -> Mapping[str, int]:
        """Calls a second by region: as the plan says, else by weight."""
        steer = self.steers.get(of.cluster)
        return of.loads if steer is None else dict(steer.placed)


def seen(ledger: Ledger) -> Seen | None:
    """The ledger's cluster; None where the document names no region of its lines, nobody calls it, or no line takes calls but the
    least bad one.
    """
    if not any(line.region for line in ledger.lines.values()) or ledger.board.panic == "fail_open":
        return None
    rules, rows = ledger.rules, ledger.rows
    weights: dict[str, int] = {}
    found: dict[str, int | None] = {}
    for standing in ledger.board.standings.values():
        line = ledger.lines.get(standing.line)
        if line is None or not standing.weight:
            continue
        breaker = rows[line.id].breaker
        share = share_milli(breaker, rules.breaker) if breaker.gate in _TRIED else 1_000
        room = None if line.capacity is None else line.capacity * rules.guard.fill_milli * share // 1_000_000
        before = found.get(line.region, 0)
        found[line.region] = None if room is None or before is None else before + room
        weights[line.region] = weights.get(line.region, 0) + standing.weight
    calls, total = -(-ledger.asked.level // _PER_CALL), sum(weights.values())
    if not total or not calls:
        return None
    return Seen(ledger.scope.cluster, calls, _split(calls, weights), found, rules.priority, rules.acts("regions"))


def why_apart(ledger: Ledger) -> str:
    """Why the cluster takes no part in the plan, in words; empty where it does."""
    if not any(line.region for line in ledger.lines.values()):
        return "no line names a region"
    if ledger.board.panic == "fail_open":
        return "every line is open"
    return "" if seen(ledger) else "nobody calls it, or no line takes calls"


def limits_of(ledgers: Iterable[Ledger]) -> dict[str, int]:
    """What the document says a region carries in all, by name; all ledgers' rules say the same."""
    return {region: calls for ledger in ledgers for region, calls in ledger.rules.regions}


def rooms(seens: Sequence[Seen], limits: Mapping[str, int]) -> dict[str, int]:
    """Calls a second that each region carries in all: its limit, or what its lines do; enough for all where nobody knows."""
    most = sum(each.calls for each in seens)
    found: dict[str, int] = {}
    for region in sorted({region for each in seens for region in each.rooms}):
        carried = [room for each in seens if (room := each.rooms.get(region, 0)) != 0]
        known = [room for room in carried if room is not None]
        lines = sum(known) if len(known) == len(carried) else most
        found[region] = min(limits.get(region, lines), lines)
    return found


def is_scarce(seens: Sequence[Seen], limits: Mapping[str, int]) -> bool:
    """Whether present weights put more on some region, or on one cluster's lines in it, than it carries."""
    loads: dict[str, int] = {}
    for each in seens:
        if sum(each.loads.values()) < each.calls:
            return True
        for region, calls in each.loads.items():
            room = each.rooms[region]
            if room is not None and _is_over(calls, room):
                return True
            loads[region] = loads.get(region, 0) + calls
    found = rooms(seens, limits)
    return any(_is_over(calls, found[region]) for region, calls in loads.items())


def plan(seens: Sequence[Seen], limits: Mapping[str, int]) -> dict[str, Steer]:
    """What becomes of every cluster that has less than it asks for, or has it elsewhere; the others go on by their weights.

    One that does not obey gets what it would get if all did; those that do share what it leaves of the regions' limits.
    """
    obeying = [each for each in seens if each.obeys]
    if not is_scarce(seens, limits):
        return {}
    found = _planned(seens, limits)
    if not obeying or len(obeying) == len(seens):
        return found
    others = {each.cluster: found[each.cluster] for each in seens if not each.obeys and each.cluster in found}
    return others | plan(obeying, _left(limits, seens))


def _left(limits: Mapping[str, int], seens: Sequence[Seen]) -> dict[str, int]:
    """The limits without what clusters that do not obey put on the regions by their weights."""
    taken = [each.loads for each in seens if not each.obeys]
    return {region: max(0, limit - sum(loads.get(region, 0) for loads in taken)) for region, limit in limits.items()}


def _planned(seens: Sequence[Seen], limits: Mapping[str, int]) -> dict[str, Steer]:
    """The plan were all to obey."""
    claims = [
        Claim(
            cluster=each.cluster,
            calls=each.calls,
            rooms={region: each.calls if room is None else room for region, room in each.rooms.items()},
            usual=each.loads,
            priority=each.priority,
        )
        for each in seens
    ]
    placed: dict[str, list[tuple[str, int]]] = {each.cluster: [] for each in seens}
    for cluster, region, calls in place(claims, rooms(seens, limits)).placed:
        placed[cluster].append((region, calls))
    found = {each.cluster: _steer(each, tuple(sorted(placed[each.cluster]))) for each in seens}
    return {cluster: steer for cluster, steer in found.items() if steer is not None}


def outlook(seens: Sequence[Seen], limits: Mapping[str, int]) -> Outlook:
    """What becomes of these clusters."""
    return Outlook(tuple(seens), rooms(seens, limits), plan(seens, limits), is_scarce(seens, limits))


def steers(ledgers: Sequence[Ledger]) -> dict[str, Steer]:
    """The plan for these ledgers as they stand."""
    seens = [one for one in map(seen, ledgers) if one is not None]
    return plan(sorted(seens), limits_of(ledgers)) if seens else {}


def without(seens: Sequence[Seen], region: str) -> tuple[Seen, ...]:
    """The clusters as they would stand with that region gone: the others get its traffic as their weights say."""
    return tuple(
        each._replace(
            loads=_split(each.calls, {name: load for name, load in each.loads.items() if name != region}),
            rooms={name: room for name, room in each.rooms.items() if name != region},
        )
        for each in seens
    )


def _steer(of: Seen, placed: tuple[tuple[str, int], ...]) -> Steer | None:
    """None where all of it is carried where it goes anyway."""
    carried, here = sum(calls for _, calls in placed), dict(placed)
    if carried == of.calls:
        is_moved = any(_is_over(here.get(region, 0), of.loads.get(region, 0)) for region in of.rooms)
        return Steer(of.calls, placed, FULL, of.priority) if is_moved else None
    own = sum(of.calls if room is None else room for room in of.rooms.values())
    return Steer(of.calls, placed, SPENT if own <= carried else SHED, of.priority)


def _is_over(calls: int, room: int) -> bool:
    return 1_000 * calls > (1_000 + _SLACK_MILLI) * room


def _split(calls: int, weights: Mapping[str, int]) -> dict[str, int]:
    """The calls by weight, all of them; nothing where there is no weight."""
    total, below, found = sum(weights.values()), 0, {}
    for region in sorted(weights):
        upto = below + weights[region]
        found[region] = calls * upto // total - calls * below // total
        below = upto
    return found
