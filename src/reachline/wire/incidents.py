"""Incidents as the HTTP contract tells them. Standard library only. Durations are seconds, instants Unix seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from reachline.core.incidents import Incident, times
from reachline.model import Seconds

__all__ = ["IncidentRow", "IncidentsDocument", "TimesRow", "document"]


class IncidentRow(TypedDict):
    """One fault, from the first bad verdict to full weight. `state`: `lasts`, `over`, or `gone` (its lines left the document).

    `worst` is `degraded` or `failed`; `unenforced` names what kept decisions from acting.
    """

    id: str
    name: str
    cluster: str
    group: str
    lines: list[str]
    state: str
    rule: str
    worst: str
    opened: int
    least: int
    unenforced: list[str]
    began: float
    detected: float
    acted: float | None
    ended: float | None
    detect: float
    act: float | None
    restore: float | None


class TimesRow(TypedDict):
    """Means over the incidents of the answer, in seconds: `mttd` to the decision, `mtta` to traffic moved, `mttr` to full weight."""

    total: int
    lasting: int
    mttd: float | None
    mtta: float | None
    mttr: float | None


class IncidentsDocument(TypedDict):
    """`GET /api/v1/incidents`: newest first."""

    times: TimesRow
    incidents: list[IncidentRow]


def document(incidents: Sequence[Incident], *, origin: Seconds) -> IncidentsDocument:
    """These incidents, oldest first as given, newest first as told; `origin` is the Unix time of the journal's epoch."""
    found = times(incidents)
    return {
        "times": {
            "total": found.total,
            "lasting": found.lasting,
            "mttd": _seconds(found.detect_ms),
            "mtta": _seconds(found.act_ms),
            "mttr": _seconds(found.restore_ms),
        },
        "incidents": [_row(one, origin) for one in reversed(incidents)],
    }


def _row(one: Incident, origin: Seconds) -> IncidentRow:
    def unix(at_ms: int) -> float:
        return round(origin + at_ms / 1_000, 3)

    return {
        "id": f"{one.name}#{one.detected_ms}",
        "name": one.name,
        "cluster": one.cluster,
        "group": one.group,
        "lines": list(one.lines),
        "state": "lasts" if not one.is_over else "gone" if one.ended_ms is None else "over",
        "rule": one.rule,
        "worst": "failed" if one.has_failed else "degraded",
        "opened": one.opened,
        "least": one.least,
        "unenforced": list(one.kept_by),
        "began": unix(one.began_ms),
        "detected": unix(one.detected_ms),
        "acted": None if one.acted_ms is None else unix(one.acted_ms),
        "ended": None if one.ended_ms is None else unix(one.ended_ms),
        "detect": (one.detected_ms - one.began_ms) / 1_000,
        "act": None if one.acted_ms is None else (one.acted_ms - one.began_ms) / 1_000,
        "restore": None if one.ended_ms is None else (one.ended_ms - one.began_ms) / 1_000,
    }


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1_000
