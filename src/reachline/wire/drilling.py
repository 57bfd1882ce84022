"""Drills as the HTTP contract writes them: what a center takes, and what it tells of them. Standard library only.

Durations are seconds, instants Unix seconds, shares 0…1. Refuses by `RemoteProtocolError`, which names the field.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, NotRequired, TypedDict

from reachline.core.drilled import Counted, Drilled
from reachline.core.rehearsal import Load, Rehearsed
from reachline.errors import RemoteProtocolError
from reachline.model import Seconds
from reachline.wire.ordering import EffectRow, effect, flag, text

__all__ = [
    "AskedDrill",
    "CallsRow",
    "ClusterRow",
    "DrillBody",
    "DrillRow",
    "DrillsDocument",
    "LoadRow",
    "PlayedDocument",
    "RehearsalRow",
    "drill_rows",
    "read_drill",
    "rehearsal",
]

LONGEST: Final[Seconds] = 86_400.0
"""A day: what takes longer is no drill."""
SLOWEST: Final[Seconds] = 60.0
"""As the longest limit of a document."""
MARGIN: Final = 0.01
"""The default of `abort_above`."""
_KEYS: Final = ("target", "fail", "slow", "for", "real", "abort_above", "reason", "force")

DrillBody = TypedDict(
    "DrillBody",
    {
        "target": str,
        "fail": NotRequired[bool],
        "slow": NotRequired[float],
        "for": float,
        "real": NotRequired[bool],
        "abort_above": NotRequired[float],
        "reason": NotRequired[str],
        "force": NotRequired[bool],
    },
)
"""`POST /api/v1/drills`: `fail` or `slow` (seconds that answers take). Without `real` it is only rehearsed, on a copy."""


class LoadRow(TypedDict):
    """Calls a second that a line carries, before and during; `used` is the part of its capacity then, None where unknown."""

    line: str
    before: float
    during: float
    capacity: int | None
    used: float | None


class RehearsalRow(TypedDict):
    """What a drill does to one cluster, by a copy of the center's state that goes on with it.

    `settles` is seconds until the last weight has moved; `held` names lines that the guard keeps in traffic, with its rule.
    """

    cluster: str
    panic: str
    settles: float
    lines: list[EffectRow]
    loads: list[LoadRow]
    held: dict[str, str]


class CallsRow(TypedDict):
    """Calls of the cluster over a time: how many failed, and the shares of those and of calls over the drilled lines."""

    seconds: float
    calls: int
    failed: int
    failed_share: float | None
    on_share: float | None


class PeakRow(TypedDict):
    """The fullest that another line was."""

    line: str
    rate: float
    capacity: int
    used: float
    at: float


class TripRow(TypedDict):
    """Another line that failed during a drill."""

    line: str
    rule: str


class ClusterRow(TypedDict):
    """What became of a drill in one cluster.

    `moved` is seconds until at most 1 % of the calls were on the drilled lines, None where that never came; `since_moved` are
    the calls of the drill from then on. `held` says whether every other line stayed within its capacity, None where none is known.
    """

    cluster: str
    lines: list[str]
    before: CallsRow
    during: CallsRow
    after: CallsRow
    moved: float | None
    since_moved: CallsRow
    peak: PeakRow | None
    held: bool | None
    tripped: list[TripRow]


class DrillRow(TypedDict):
    """One drill. `state`: `running`, `over` (its time came), `undone` (by hand) or `aborted` (by its own rule; `ended_reason`)."""

    id: int
    target: str
    play: str
    slow: float | None
    abort_above: float
    by: str
    reason: str
    since: float
    until: float
    state: str
    ended: float | None
    ended_by: str
    ended_reason: str
    clusters: list[ClusterRow]


class DrillsDocument(TypedDict):
    """`GET /api/v1/drills`: newest first."""

    drills: list[DrillRow]


class PlayedDocument(TypedDict):
    """The answer to a drill: `drill` is None where it was only rehearsed."""

    real: bool
    drill: DrillRow | None
    rehearsals: list[RehearsalRow]
    journalled: bool


class AskedDrill(NamedTuple):
    """A drill as somebody asks for it. `slow` None: the lines are held to have failed."""

    target: str
    slow: Seconds | None
    lasts: Seconds
    is_real: bool
    abort_above: float
    why: str
    force: bool


def read_drill(document: object) -> AskedDrill:
    """The drill in a parsed body; RemoteProtocolError names the field that is wrong."""
    if not isinstance(document, Mapping):
        raise RemoteProtocolError("drill: must be an object")
    if strange := sorted(map(str, document.keys() - set(_KEYS))):
        raise RemoteProtocolError(f"drill.{strange[0]}: unknown key; {', '.join(_KEYS)} are known")
    fails, is_real = flag(document, "fail", of="drill"), flag(document, "real", of="drill")
    if fails is ("slow" in document):
        raise RemoteProtocolError(
            "drill.fail: either `fail: true` or `slow`, the seconds that answers take, must be said"
        )
    why = text(document, "reason", of="drill")
    if is_real and not why:
        raise RemoteProtocolError("drill.reason: must be said for a real drill; everybody who looks reads it")
    return AskedDrill(
        text(document, "target", of="drill", least=1),
        None if fails else _number(document, "slow", 0.001, SLOWEST),
        _number(document, "for", 1.0, LONGEST),
        is_real,
        _number(document, "abort_above", 0.001, 1.0, MARGIN),
        why,
        flag(document, "force", of="drill"),
    )


def _number(
    document: Mapping[object, object], key: str, least: float, most: float, default: float | None = None
) -> float:
    value = document.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RemoteProtocolError(f"drill.{key}: must be a number" + (", and is missing" if value is None else ""))
    if not least <= value <= most:
        raise RemoteProtocolError(f"drill.{key}: must be from {least:g} to {most:g}, got {value:g}")
    return float(value)


def rehearsal(cluster: str, found: Rehearsed) -> RehearsalRow:
    """What a drill does to one cluster."""
    return {
        "cluster": cluster,
        "panic": found.seen.panic,
        "settles": found.settles_ms / 1_000,
        "lines": effect(cluster, found.seen)["lines"],
        "loads": [_load(one) for one in found.loads],
        "held": dict(found.held),
    }


def _load(one: Load) -> LoadRow:
    return {
        "line": one.line,
        "before": one.before / 1_000,
        "during": one.during / 1_000,
        "capacity": one.capacity,
        "used": round(one.during / 1_000 / one.capacity, 4) if one.capacity else None,
    }


def drill_rows(drills: Iterable[Drilled], origin: Seconds) -> list[DrillRow]:
    """Drills as they are shown, newest first; `origin` is the Unix time of the journal's epoch."""
    parts: dict[int, list[Drilled]] = {}
    for one in drills:
        parts.setdefault(one.order.number, []).append(one)
    return [_row(parts[number], origin) for number in sorted(parts, reverse=True)]


def _row(parts: Sequence[Drilled], origin: Seconds) -> DrillRow:
    def unix(at_ms: int) -> float:
        return round(origin + at_ms / 1_000, 3)

    order = parts[0].order
    # A drill is over where it is over everywhere; who ended it ended it everywhere.
    newest = max(parts, key=lambda one: (one.ended_ms is None, one.ended_ms or 0))
    state = (
        "running"
        if newest.ended_ms is None
        else "aborted"
        if newest.is_aborted
        else "undone"
        if newest.ended_by
        else "over"
    )
    return {
        "id": order.number,
        "target": order.target,
        "play": "slow" if order.slow_ms else "fail",
        "slow": order.slow_ms / 1_000 if order.slow_ms else None,
        "abort_above": order.margin_milli / 1_000,
        "by": order.by,
        "reason": order.why,
        "since": unix(order.since_ms),
        "until": unix(order.until_ms or order.since_ms),
        "state": state,
        "ended": None if newest.ended_ms is None else unix(newest.ended_ms),
        "ended_by": newest.ended_by,
        "ended_reason": newest.why,
        "clusters": [_cluster(one, origin) for one in parts],
    }


def _cluster(one: Drilled, origin: Seconds) -> ClusterRow:
    peak: PeakRow | None = None
    if one.peak is not None:
        peak = {
            "line": one.peak.line,
            "rate": one.peak.rate_milli / 1_000,
            "capacity": one.peak.capacity,
            "used": round(one.peak.rate_milli / 1_000 / one.peak.capacity, 4),
            "at": round(origin + one.peak.at_ms / 1_000, 3),
        }
    return {
        "cluster": one.scope.cluster,
        "lines": sorted(one.lines),
        "before": _calls(one.before),
        "during": _calls(one.during),
        "after": _calls(one.after),
        "moved": None if one.moved_ms is None else one.moved_ms / 1_000,
        "since_moved": _calls(one.moved),
        "peak": peak,
        "held": None if peak is None else peak["used"] <= 1,
        "tripped": [{"line": line, "rule": rule} for line, rule in one.tripped],
    }


def _calls(counted: Counted) -> CallsRow:
    return {
        "seconds": counted.ms / 1_000,
        "calls": counted.calls,
        "failed": counted.bad,
        "failed_share": round(counted.bad / counted.calls, 5) if counted.calls else None,
        "on_share": round(counted.on / counted.calls, 5) if counted.calls else None,
    }
