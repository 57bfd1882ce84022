"""The decision log as it goes out: incidents for people, findings counted for machines. Fed with every decision; decides nothing."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from reachline.core.incidents import Incident, Incidents, finding
from reachline.core.orders import Action
from reachline.model import Change
from reachline.store.history import recent

__all__ = ["Log", "earlier", "families"]

log = logging.getLogger("reachline.center")

_SEGMENTS: Final = 48
"""Two days of hourly segments…"""
_MOST: Final = 50_000
"""…and at most so many decisions of them: an incident takes some thirty."""

Family = tuple[str, str, str, list[tuple[str, float]]]
"""A metric's name, kind and help, and its samples: labels in braces, and a value."""


def earlier(directory: Path | str) -> list[Change]:
    """The decisions of the journal's newest two days, oldest first."""
    return [change for _, change in recent(directory, segments=_SEGMENTS, most=_MOST).decisions]


class Log:
    """Incidents, and what was found since this start. Written by the owner's task."""

    def __init__(self) -> None:
        self.incidents = Incidents()
        self.found: Counter[tuple[str, str]] = Counter()
        """By `detected`, `enforced` or `unenforced`, and the reason."""
        self.times: Counter[str] = Counter()
        """Sums of ms and numbers of the incidents that ended since this start."""

    def remember(self, changes: Iterable[Change]) -> None:
        """Decisions from before this start: incidents, but no counts."""
        self.incidents.take(changes)

    def take(self, changes: Iterable[Change]) -> None:
        """Decisions as they are published."""
        for change in changes:
            if one := finding(change):
                self.found["detected", one.reason] += 1
                self.found["enforced" if one.is_enforced else "unenforced", one.kept_by or one.reason] += 1
            for ended in self.incidents.take([change]):
                self._ended(ended)

    def _ended(self, one: Incident) -> None:
        if one.ended_ms is None:
            return
        detect_ms, restore_ms = one.detected_ms - one.began_ms, one.ended_ms - one.began_ms
        self.times.update(ended=1, detect_ms=detect_ms, restore_ms=restore_ms)
        fields = {"incident": one.name, "rule": one.rule, "detect_ms": detect_ms, "restore_ms": restore_ms}
        log.info("incident_ended", extra=fields)


_HELP: Final = {
    "detected": "Decisions that found a line worse, by the metric that said so.",
    "enforced": "Of these, those that took traffic away, by the metric.",
    "unenforced": "Of these, those that did not, by what kept them from it.",
}


def families(told: Log, orders: Mapping[Action, int]) -> Iterator[Family]:
    """The metrics of the decision log."""
    for outcome, help_ in _HELP.items():
        rows = [
            (f'{{reason="{reason}"}}', float(count))
            for (which, reason), count in sorted(told.found.items())
            if which == outcome
        ]
        yield f"faults_{outcome}_total", "counter", help_, rows
    lasting = sum(not one.is_over for one in told.incidents.all())
    yield "incidents", "gauge", "Incidents that last.", [("", float(lasting))]
    for name, help_ in (
        ("detect", "From the first bad verdict to the decision, of incidents that ended since this start."),
        ("restore", "From the first bad verdict to full weight, of incidents that ended since this start."),
    ):
        seconds = told.times[f"{name}_ms"] / 1_000
        rows = [("_sum", seconds), ("_count", float(told.times["ended"]))]
        yield f"incident_{name}_seconds", "summary", help_, rows
    yield (
        "orders",
        "gauge",
        "Orders of operators in force.",
        [(f'{{action="{action.value}"}}', float(orders.get(action, 0))) for action in Action],
    )
