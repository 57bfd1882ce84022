"""Incidents from the decision log alone: faults of lines, or of what lines share, from the first bad verdict to full weight.

A decision that finds something wrong is a finding: enforced where it took traffic away, else not, and why not. Knows neither
ledger nor clock; the same decisions in the same order give the same incidents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from reachline.model import Change, Gate, Health, LineId, Standing

__all__ = ["Finding", "Incident", "Incidents", "Times", "finding", "times"]

_SICK: Final = (Health.DEGRADED, Health.UNHEALTHY)
_FOUND: Final = ("vote.", "business.")
"""Rules by which something wrong is found: `vote.loss.degraded`, `business.timeout.failed`."""
_TRIAL: Final = "breaker.trial_failed"
_HELD_BACK: Final = 1
"""Points by which a published weight may stay below the full one: smaller raises wait."""
_KEPT: Final = 1_000
"""Incidents remembered that are over."""


class Finding(NamedTuple):
    """What a decision found: by which metric, whether it acted on it, and if not, what kept it from that."""

    reason: str
    """`loss`, `timeout`, …, or `trial`."""
    is_enforced: bool
    kept_by: str = ""
    """`guard.last_line`, `operator.close`, `enforce` or `enforce.RULE` (what only records); empty where it acted."""


def finding(change: Change) -> Finding | None:
    """What this decision found wrong, or None where it found nothing."""
    rule, before, after = change.rule, change.before, change.after
    has_opened = after.gate is Gate.OPEN and before.gate is not Gate.OPEN
    if not (rule.startswith(_FOUND) or rule == _TRIAL):
        return None
    metric, _, level = rule.partition(".")[2].rpartition(".")
    acts = not after.weight if has_opened else level == "degraded" and after.raw_milli < before.raw_milli
    return Finding("trial" if rule == _TRIAL else metric, acts, "" if acts else _kept_by(change))


def _kept_by(change: Change) -> str:
    if change.after.reason.startswith("guard."):
        return change.after.reason
    if any(fact.name == "order" for fact in change.facts):
        return "operator.close"
    shadowed = (fact.name.partition(".")[2] for fact in change.facts if fact.name.startswith("unenforced."))
    return next((f"enforce.{rule}" for rule in shadowed), "enforce")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One fault. Times are ms since the journal's epoch."""

    cluster: str
    group: str
    """What its lines share, where that is the fault; empty for a line's own."""
    lines: tuple[LineId, ...]
    began_ms: int
    """The first bad verdict of those that led to it…"""
    detected_ms: int
    """…the decision that said so…"""
    acted_ms: int | None = None
    """…the first that took traffic away, None where none did…"""
    ended_ms: int | None = None
    """…and full weight again, on all its lines; None while it lasts, or where the last of them left the document."""
    is_over: bool = False
    rule: str
    """Of the decision that detected it."""
    has_failed: bool = False
    """Whether some line was found failed, not only degraded."""
    opened: int = 0
    """Breakers opened, and opened again."""
    least: int
    """The lowest weight of any of its lines."""
    kept_by: tuple[str, ...] = ()
    """What kept decisions from acting."""
    waiting: frozenset[LineId]
    """Lines that are not back at their full weight."""

    @property
    def name(self) -> str:
        """`cluster/line[@origin]`, or `cluster: group`."""
        return f"{self.cluster}: {self.group}" if self.group else self.lines[0]


class Times(NamedTuple):
    """Means over incidents, in ms; None where there are none."""

    total: int
    lasting: int
    detect_ms: int | None
    """From the first bad verdict to the decision (MTTD)…"""
    act_ms: int | None
    """…to the first traffic taken away…"""
    restore_ms: int | None
    """…and to full weight (MTTR), of those that are over."""


def times(incidents: Collection[Incident]) -> Times:
    """The mean times of these incidents."""

    def mean(values: list[int]) -> int | None:
        return sum(values) // len(values) if values else None

    return Times(
        total=len(incidents),
        lasting=sum(not one.is_over for one in incidents),
        detect_ms=mean([one.detected_ms - one.began_ms for one in incidents]),
        act_ms=mean([one.acted_ms - one.began_ms for one in incidents if one.acted_ms is not None]),
        restore_ms=mean([one.ended_ms - one.began_ms for one in incidents if one.ended_ms is not None]),
    )


class Incidents:
    """The incidents that a log of decisions tells. Written by who feeds it the log, in order."""

    def __init__(self) -> None:
        self._lasting: dict[str, Incident] = {}
        """By the line, or by cluster and group."""
        self._of: dict[LineId, str] = {}
        self._full: dict[LineId, int] = {}
        """Weights of lines before their fault."""
        self._over: list[Incident] = []
        self._known: set[LineId] = set()

    def all(self) -> tuple[Incident, ...]:
        """Those that are remembered, by the moment they were detected."""
        return tuple(sorted((*self._over, *self._lasting.values()), key=lambda one: (one.detected_ms, one.name)))

    def take(self, changes: Iterable[Change]) -> tuple[Incident, ...]:
        """Further decisions; the incidents that they ended."""
        return tuple(ended for change in changes if (ended := self._one(change)) is not None)

    def keep(self, lines: Collection[LineId]) -> None:
        """Only these lines are left in the document: incidents of others alone are over, unrestored."""
        for line in self._of.keys() - frozenset(lines):
            self._leave(line, None)
        self._known &= frozenset(lines)

    def _one(self, change: Change) -> Incident | None:
        found, is_new = finding(change), change.line not in self._known
        self._known.add(change.line)
        if change.line not in self._of:
            if found is None and not (is_new and _was_sick(change.before)):
                return None
            self._begin(change, is_known=found is not None)
        key = self._of[change.line] = self._joined(change)
        self._lasting[key] = _grown(self._lasting[key], change, found)
        return self._leave(change.line, change.at_ms) if self._is_back(change) else None

    def _begin(self, change: Change, *, is_known: bool) -> None:
        """`is_known` False: the log begins amid the fault."""
        before = change.before
        facts = {fact.name: fact.value for fact in change.facts}
        began_ms = facts.get("bad_since_ms", change.at_ms) if is_known else before.since_ms
        self._full[change.line] = before.weight if is_known else 0
        self._of[change.line] = change.line
        self._lasting[change.line] = Incident(
            cluster=change.line.partition("/")[0],
            group="",
            lines=(change.line,),
            began_ms=min(began_ms, change.at_ms),
            detected_ms=change.at_ms if is_known else before.since_ms,
            rule=change.rule if is_known else before.reason,
            least=before.weight,
            waiting=frozenset({change.line}),
        )

    def _joined(self, change: Change) -> str:
        """The incident of the line: that of a group, once it is named, takes in the line's own."""
        key, group = self._of[change.line], change.after.incident
        if not group or key != change.line:
            return key
        own = self._lasting.pop(key)
        shared = f"{own.cluster}\x00{group}"
        known = self._lasting.get(shared)
        self._lasting[shared] = replace(own, group=group) if known is None else _merged(known, own)
        return shared

    def _is_back(self, change: Change) -> bool:
        """Healthy, closed, and as much weight as before its fault, or all that it has now."""
        after = change.after
        if after.health is not Health.HEALTHY or after.gate is not Gate.CLOSED or after.incident:
            return False
        full = self._full[change.line]
        return after.score >= 100 or (full > 0 and after.weight + _HELD_BACK >= full)

    def _leave(self, line: LineId, at_ms: int | None) -> Incident | None:
        """The line is back, or (None) gone; the incident, where that ended it."""
        key = self._of.pop(line)
        self._full.pop(line, None)
        left = replace(self._lasting[key], waiting=self._lasting[key].waiting - {line})
        self._lasting[key] = left
        if left.waiting:
            return None
        ended = replace(self._lasting.pop(key), is_over=True, ended_ms=at_ms)
        self._over = [*self._over, ended][-_KEPT:]
        return ended


def _was_sick(standing: Standing) -> bool:
    """Of a line whose first decision in the log this is; what an operator opened, or a drill, is no fault."""
    is_sick = standing.health in _SICK or standing.gate is not Gate.CLOSED
    return is_sick and not standing.reason.startswith(("operator.", "drill."))


def _grown(incident: Incident, change: Change, found: Finding | None) -> Incident:
    """The incident after one decision more on one of its lines."""
    before, after = change.before, change.after
    has_opened = after.gate is Gate.OPEN and before.gate is not Gate.OPEN and found is not None
    acts = incident.acted_ms is None and (found.is_enforced if found else after.weight < before.weight)
    kept_by = incident.kept_by
    if found is not None and found.kept_by and found.kept_by not in kept_by:
        kept_by = (*kept_by, found.kept_by)
    return replace(
        incident,
        acted_ms=change.at_ms if acts else incident.acted_ms,
        has_failed=incident.has_failed or after.health is Health.UNHEALTHY,
        opened=incident.opened + has_opened,
        least=min(incident.least, after.weight),
        kept_by=kept_by,
        lines=tuple(sorted({*incident.lines, change.line})),
        waiting=incident.waiting | {change.line},
    )


def _merged(shared: Incident, own: Incident) -> Incident:
    """The incident of a group with that of one of its lines."""
    first = min(shared, own, key=lambda one: one.detected_ms)
    acted = [one.acted_ms for one in (shared, own) if one.acted_ms is not None]
    return replace(
        shared,
        lines=tuple(sorted({*shared.lines, *own.lines})),
        began_ms=min(shared.began_ms, own.began_ms),
        detected_ms=first.detected_ms,
        rule=first.rule,
        acted_ms=min(acted, default=None),
        has_failed=shared.has_failed or own.has_failed,
        opened=shared.opened + own.opened,
        least=min(shared.least, own.least),
        kept_by=tuple(dict.fromkeys((*shared.kept_by, *own.kept_by))),
        waiting=shared.waiting | own.waiting,
    )
