"""Policies: how the lines of a cluster share what the judge left of each. The SDK runs the same functions.

Each policy spreads `total` (1/1000 points) over its lines and may leave some of it unspread: what is missing is the
group's lack of health, which an outer policy acts on. Stacking is a policy that spreads by inner policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from reachline.core.rules import FAULT, ONE, FaultRules
from reachline.core.weigh import MILLI, cost_milli, factor
from reachline.model import Gate, Health, Role

__all__ = ["TABLE", "Part", "Share", "full_milli", "own_part", "spread"]

_WHOLE: Final = 1_000_000
"""Shares inside a policy are millionths: half of 9.5 % must not round."""
_PRIMARY: Final = 950_000
"""A healthy primary's share; the rest keeps the backup alive and measured."""
_LEVEL: Final = 500_000
"""A degraded primary stands level with its backup."""
_SENTINEL: Final = 10_000
"""The reserve group's share in health: a sentinel that keeps it measured."""
_OVERPROVISION_MILLI: Final = 1_400
"""A group may lose 1 - 1/1.4 = 28 % of its health before any of its traffic moves (Envoy's factor)."""

_SICK: Final = (Health.DEGRADED, Health.UNHEALTHY)
_NONE: Final[frozenset[Role]] = frozenset()


Part = tuple[int, int, int]
"""What a line's own weight is made of: base, faults, and the step in 1/1000."""


class Share(NamedTuple):
    """One line as a policy sees it. `step_milli` is what its breaker admits (0 open, 1000 closed)."""

    base: int
    roles: frozenset[Role]
    health: Health
    gate: Gate
    faults: int
    step_milli: int


def full_milli(lines: Sequence[Share], policy: Sequence[str]) -> int:
    """The points all lines share: the sum of their bases where the weights are the user's own, else 100 a line above
    one, so that two lines read 95/5 and rounding up stays below 1 % of a line.
    """
    if policy and policy[0] == "weighted":
        return MILLI * sum(line.base for line in lines)
    return MILLI * 100 * max(1, len(lines) - 1)


def spread(lines: Sequence[Share], policy: Sequence[str], total: int, faults: FaultRules) -> list[int]:
    """Raw weights in 1/1000 point, in the order of `lines`; their sum is at most `total`. Outermost policy first."""
    if not lines:
        return []
    name, inner = (policy[0], policy[1:]) if policy else ("weighted", ())
    return TABLE[name](lines, inner, total, faults)


def _weighted(lines: Sequence[Share], _: Sequence[str], total: int, faults: FaultRules) -> list[int]:
    """Each line its base share, times what its faults and its gate leave."""
    bases = sum(line.base for line in lines)
    if not bases:
        return [0] * len(lines)
    known: dict[Part, int] = {}  # most lines of a cluster are alike
    found = []
    for line in lines:
        base, charged, step_milli = line.base, line.faults, line.step_milli
        own = known.get(alike := (base, charged, step_milli))
        if own is None:
            own = known[alike] = own_part(alike, total, bases, faults)
        found.append(own)
    return found


def _primary_backup(lines: Sequence[Share], _: Sequence[str], total: int, faults: FaultRules) -> list[int]:
    """Each primary keeps to its own share; what it cannot carry goes to the backups, by their weight."""
    primaries = [line for line in lines if Role.BACKUP not in line.roles]
    bases = sum(line.base for line in primaries)
    kept: dict[int, int] = {}
    conceded = 0 if bases else total
    for place, line in enumerate(lines):
        if Role.BACKUP in line.roles or not bases:
            continue
        entitled = total * line.base // bases
        keeps, concedes = _primary(line)
        kept[place] = cost_milli(entitled * keeps // _WHOLE, _charged(line), faults)
        conceded += entitled * concedes // _WHOLE
    return _with_backups(lines, kept, conceded, faults)


def _primary(line: Share) -> tuple[int, int]:
    """What a primary keeps of its share and what it concedes to the backups, in millionths."""
    keeps = _PRIMARY * line.step_milli // 1_000
    if line.gate is Gate.CLOSED and line.health in _SICK:
        keeps = _LEVEL
    return keeps, _WHOLE - keeps


def _charged(line: Share) -> int:
    """The first fault of a degraded primary is already paid by standing level with the backup."""
    if line.gate is Gate.CLOSED and line.health in _SICK:
        return max(0, line.faults - FAULT)
    return line.faults


def _with_backups(lines: Sequence[Share], kept: dict[int, int], conceded: int, faults: FaultRules) -> list[int]:
    """Open backups leave their part to the others; with none admitting, the conceded part stays unspread."""
    bases = sum(line.base for place, line in enumerate(lines) if place not in kept and line.gate is not Gate.OPEN)
    return [
        kept[place] if place in kept else (_left(conceded * line.base, line, faults, bases) if bases else 0)
        for place, line in enumerate(lines)
    ]


def _ab_groups(lines: Sequence[Share], inner: Sequence[str], total: int, faults: FaultRules) -> list[int]:
    """Traffic group and reserve group: B takes max(1 %, 1 - min(1, 1.4 * hA)), hA what A's own policy could spread."""
    reserve = [Role.RESERVE in line.roles for line in lines]
    a_raw = spread([line for line, is_b in zip(lines, reserve, strict=True) if not is_b], inner, total, faults)
    b_raw = spread([line for line, is_b in zip(lines, reserve, strict=True) if is_b], inner, total, faults)
    a_sum, b_sum = sum(a_raw), sum(b_raw)
    lacking = _WHOLE - min(_WHOLE, _OVERPROVISION_MILLI * (_WHOLE // 1_000) * a_sum // total) if total else 0
    b_share = max(_SENTINEL, lacking)
    if not a_sum or not b_sum:
        b_share = _WHOLE if b_sum else 0
    a_left, b_left = iter(a_raw), iter(b_raw)
    return [
        _part(total * b_share, next(b_left), b_sum) if is_b else _part(total * (_WHOLE - b_share), next(a_left), a_sum)
        for is_b in reserve
    ]


def _part(points: int, raw: int, raw_sum: int) -> int:
    """A line's part of its group's points (in millionths), by what its own policy gave it."""
    return points * raw // (raw_sum * _WHOLE) if raw_sum else 0


def own_part(part: Part, total: int, bases: int, faults: FaultRules) -> int:
    """What the policy `weighted` gives one line of `total`, where all lines' bases sum up to `bases` (not 0)."""
    base, charged, step_milli = part
    return _left(total * base, Share(base, _NONE, Health.HEALTHY, Gate.CLOSED, charged, step_milli), faults, bases)


def _left(points: int, line: Share, faults: FaultRules, parts: int) -> int:
    """What faults and gate leave of one part of some points, to the nearest unit."""
    scale = 1_000 * ONE * parts
    return (points * line.step_milli * factor(line.faults, faults) + scale // 2) // scale


TABLE: Final[dict[str, Callable[[Sequence[Share], Sequence[str], int, FaultRules], list[int]]]] = {
    "weighted": _weighted,
    "primary_backup": _primary_backup,
    "ab_groups": _ab_groups,
}
