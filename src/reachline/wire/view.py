"""The JSON of the HTTP contract: what a center renders and every SDK may rely on. Standard library only, no waiting.

Rates are 0…1, durations and RTT seconds, instants Unix seconds; what is not known is null, never 0. Names of health and
breaker are the words of the design in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, NotRequired, TypedDict

from reachline.model import (
    CENSORED_US,
    Change,
    Gate,
    Health,
    Line,
    Reading,
    Role,
    Seconds,
    Standing,
    Vote,
    Zone,
)

__all__ = [
    "GATES",
    "HEALTHS",
    "NO_FIGURES",
    "ZONES",
    "ChangeRow",
    "ErrorDocument",
    "Figures",
    "LineRow",
    "LinesDocument",
    "ReadingRow",
    "StandingRow",
    "VoteRow",
    "change",
    "error",
    "line",
    "reading",
    "roles",
    "vote",
]

HEALTHS: Final[Mapping[Health, str]] = {health: health.name.lower() for health in Health}
GATES: Final[Mapping[Gate, str]] = {gate: gate.name.lower() for gate in Gate}
ZONES: Final[Mapping[Zone, str]] = {Zone.H: "healthy", Zone.D: "degraded", Zone.F: "failed", Zone.N: "none"}


class Figures(NamedTuple):
    """Of one line, for people: pooled over its fresh vantages, seconds and ratios; None where not known."""

    p95: Seconds | None = None
    p50: Seconds | None = None
    ewma: Seconds | None = None
    jitter: Seconds | None = None
    loss: float | None = None
    timeout: float | None = None
    kind: str | None = None
    """The probe kind whose RTT this is."""


NO_FIGURES: Final = Figures()


class LineRow(TypedDict):
    """One line as every list shows it. `spark` is only in snapshots of the live stream: [p95, loss, timeout] a point."""

    line: str
    cluster: str
    address: str
    via: str
    origin: str
    role: str
    roles: list[str]
    provider: str
    groups: list[str]
    drained: bool
    health: str
    breaker: str
    step: int
    weight: int
    base: int
    raw: float
    score: int
    reason: str
    since: float
    next: float | None
    window: int
    blind: bool
    incident: str
    kind: str | None
    p95: float | None
    p50: float | None
    ewma: float | None
    jitter: float | None
    loss: float | None
    timeout: float | None
    region: str
    spark: NotRequired[list[tuple[float | None, float | None, float | None]]]


class LinesDocument(TypedDict):
    """`GET /api/v1/lines`; `age` is the seconds since the newest judgement."""

    version: str
    age: float
    lines: list[LineRow]


class VoteRow(TypedDict):
    """One vantage's vote: the deciding metric as numerator of denominator, held against a limit, raw as judged."""

    vantage: str
    zone: str
    metric: str
    numerator: int
    denominator: int
    limit: int


class ReadingRow(TypedDict):
    """One vantage's window by one kind: every count with its own denominator; RTT in seconds, null where never answered."""

    vantage: str
    kind: str
    age: float
    void: bool
    quality: int
    attempts: int
    ok: int
    failures: dict[str, int]
    sent: int
    lost: int
    answered: int
    rounds: int
    rounds_ok: int
    covered: float
    ewma: float | None
    p50: float | None
    p95: float | None
    jitter: float | None


class StandingRow(TypedDict):
    """A standing on one side of a change."""

    health: str
    breaker: str
    step: int
    weight: int
    raw: float
    score: int
    reason: str
    next: float | None


class ChangeRow(TypedDict):
    """One decision. `id` rises with every decision the center knows of; ask for more with `since=id`."""

    id: int
    line: str
    at: float
    rule: str
    before: StandingRow
    after: StandingRow
    votes: list[VoteRow]
    facts: dict[str, int]


class ErrorBody(TypedDict):
    """What went wrong, for machines and for people, and what to do."""

    code: str
    message: str
    hint: str


class ErrorDocument(TypedDict):
    """Every answer that is not a success."""

    error: ErrorBody


_ROLE_ORDER: Final = (Role.TRAFFIC, Role.RESERVE, Role.PRIMARY, Role.BACKUP)


def roles(of: Line) -> list[str]:
    """The roles of a line, the outer group first."""
    return [role.value for role in _ROLE_ORDER if role in of.roles]


def _seconds(microseconds: int | None) -> float | None:
    # An attempt that was never answered has no RTT to show.
    return None if microseconds is None or microseconds >= CENSORED_US else microseconds / 1e6


def line(of: Line, standing: Standing, figures: Figures, *, origin: Seconds) -> LineRow:
    """One LINE; `origin` is the Unix time of the journal's epoch."""
    names = roles(of)
    return {
        "line": of.id,
        "cluster": of.scope.cluster,
        "address": str(of.endpoint),
        "via": of.outbound,
        "origin": of.origin,
        "role": "+".join(names),
        "roles": names,
        "provider": of.provider,
        "groups": list(of.groups),
        "region": of.region,
        "drained": of.drained,
        "health": HEALTHS[standing.health],
        "breaker": GATES[standing.gate],
        "step": standing.step,
        "weight": standing.weight,
        "base": of.base,
        "raw": standing.raw_milli / 1000,
        "score": standing.score,
        "reason": standing.reason,
        "since": _instant(standing.since_ms, origin),
        "next": None if standing.next_ms is None else _instant(standing.next_ms, origin),
        "window": standing.window,
        "blind": standing.blind,
        "incident": standing.incident,
        "kind": figures.kind,
        "p95": figures.p95,
        "p50": figures.p50,
        "ewma": figures.ewma,
        "jitter": figures.jitter,
        "loss": figures.loss,
        "timeout": figures.timeout,
    }


def _instant(at_ms: int, origin: Seconds) -> float:
    return round(origin + at_ms / 1000, 3)


def vote(of: Vote) -> VoteRow:
    """One vote."""
    return {
        "vantage": of.vantage,
        "zone": ZONES[of.zone],
        "metric": of.metric,
        "numerator": of.numerator,
        "denominator": of.denominator,
        "limit": of.limit,
    }


def reading(vantage: str, of: Reading, *, age: Seconds) -> ReadingRow:
    """One vantage's reading, `age` seconds old."""
    columns = of.counts._asdict()
    ok = columns.pop("ok")
    return {
        "vantage": vantage,
        "kind": of.kind.value,
        "age": round(age, 3),
        "void": of.void,
        "quality": of.quality,
        "attempts": of.counts.attempts,
        "ok": ok,
        "failures": columns,
        "sent": of.sent,
        "lost": of.lost,
        "answered": of.answered,
        "rounds": of.rounds,
        "rounds_ok": of.rounds_ok,
        "covered": of.covered_ms / 1000,
        "ewma": _seconds(of.ewma_us),
        "p50": _seconds(of.p50_us),
        "p95": _seconds(of.p95_us),
        "jitter": _seconds(of.jitter_us),
    }


def _standing(of: Standing, origin: Seconds) -> StandingRow:
    return {
        "health": HEALTHS[of.health],
        "breaker": GATES[of.gate],
        "step": of.step,
        "weight": of.weight,
        "raw": of.raw_milli / 1000,
        "score": of.score,
        "reason": of.reason,
        "next": None if of.next_ms is None else _instant(of.next_ms, origin),
    }


def change(of: Change, *, number: int, origin: Seconds) -> ChangeRow:
    """One decision, numbered by the center."""
    return {
        "id": number,
        "line": of.line,
        "at": _instant(of.at_ms, origin),
        "rule": of.rule,
        "before": _standing(of.before, origin),
        "after": _standing(of.after, origin),
        "votes": [vote(one) for one in of.votes],
        "facts": {fact.name: fact.value for fact in of.facts},
    }


def error(code: str, message: str, hint: str = "") -> ErrorDocument:
    """The body of every refusal."""
    return {"error": {"code": code, "message": message, "hint": hint}}
