"""Values for tests of the pure floors, one call each: only what a test is about is said, the rest is ordinary."""

from __future__ import annotations

from collections.abc import Sequence

from reachline.model import (
    Counts,
    Endpoint,
    Gate,
    Health,
    Kind,
    Line,
    LineId,
    Outcome,
    Reading,
    Role,
    Scope,
    Snapshot,
    Standing,
    VantageId,
    Version,
    Vote,
    Zone,
)

__all__ = [
    "healthy",
    "line",
    "lines",
    "mute",
    "outcome",
    "reading",
    "scope",
    "slow",
    "snapshot",
    "standing",
    "vantages",
    "vote",
]

CLUSTER = "payments"

ORDINARY_US = 60_000
"""The founding incident's healthy median, 60 ms, well under every default limit…"""
TAIL_US = 110_000
"""…and its healthy P95."""


def scope(cluster: str = CLUSTER, *, tenant: str = "default") -> Scope:
    return Scope(cluster=cluster, tenant=tenant)


def line(
    name: str = "a",
    *,
    cluster: str = CLUSTER,
    origin: str = "",
    base: int = 100,
    roles: Sequence[Role] = (),
    drained: bool = False,
    port: int = 443,
    vantages: Sequence[str] = (),
) -> Line:
    """`payments/a` to `tcp://a.test:443`, direct, base weight 100."""
    where = f"@{origin}" if origin else ""
    return Line(
        id=LineId(f"{cluster}/{name}{where}"),
        scope=scope(cluster),
        endpoint=Endpoint(scheme="tcp", host=f"{name}.test", port=port),
        origin=origin,
        base=base,
        roles=frozenset(roles),
        drained=drained,
        vantages=frozenset(map(VantageId, vantages)),
    )


def lines(*names: str, cluster: str = CLUSTER) -> tuple[Line, ...]:
    """One ordinary line a name: `lines("a", "b")`, or `lines(*"abc")`."""
    return tuple(line(name, cluster=cluster) for name in names)


def vantages(count: int) -> tuple[VantageId, ...]:
    """`v1` … `v<count>`."""
    return tuple(VantageId(f"v{number}") for number in range(1, count + 1))


def reading(
    kind: Kind = Kind.TCP,
    *,
    ok: int = 40,
    late: int = 0,
    refused: int = 0,
    reset: int = 0,
    errors: int = 0,
    lost: int = 0,
    rounds_ok: int = 3,
    recent_bad: int = 0,
    p50_us: int | None = ORDINARY_US,
    p95_us: int | None = TAIL_US,
    ewma_us: int | None = ORDINARY_US,
    void: bool = False,
) -> Reading:
    """A window of `ok` good attempts and as many bad ones as named; one packet an attempt, three known rounds."""
    counts = Counts(ok=ok, late=late, refused=refused, reset=reset, errors=errors)
    answered = counts.attempts - late
    tail = None if p50_us is None or p95_us is None else p95_us - p50_us
    return Reading(
        kind=kind,
        counts=counts,
        sent=counts.attempts + lost,
        lost=lost,
        rounds=3,
        rounds_ok=rounds_ok,
        recent=5,
        recent_bad=recent_bad,
        answered=answered,
        ewma_us=ewma_us,
        p50_us=p50_us,
        p95_us=p95_us,
        jitter_us=tail,
        fresh_ok=ok,
        fresh_failed=counts.attempts - ok,
        covered_ms=120_000,
        void=void,
    )


def healthy() -> Reading:
    """Zone H under the default limits: 60 ms, P95 110 ms, nothing lost."""
    return reading()


def slow() -> Reading:
    """Zone D under the default limits, by P95 alone: 270 ms, the sample heartbeat's."""
    return reading(p50_us=140_000, p95_us=270_000, ewma_us=140_000)


def mute() -> Reading:
    """Zone F under the default limits: three rounds known, none of them ok, nothing ever answered."""
    return reading(ok=0, late=40, rounds_ok=0, p50_us=None, p95_us=None, ewma_us=None)


def outcome(name: str = "a", *, cluster: str = CLUSTER, window: int = 0, ok: int = 0, failed: int = 0) -> Outcome:
    return Outcome(line=LineId(f"{cluster}/{name}"), window=window, ok=ok, failed=failed)


def vote(vantage: str = "v1", zone: Zone = Zone.H, *, metric: str = "tcp.loss", numerator: int = 0) -> Vote:
    return Vote(VantageId(vantage), zone, metric, numerator, 200, 10)


def standing(
    name: str = "a",
    *,
    cluster: str = CLUSTER,
    health: Health = Health.HEALTHY,
    gate: Gate = Gate.CLOSED,
    weight: int = 100,
    step: int = 0,
    window: int = 0,
    reason: str = "",
) -> Standing:
    """A standing whose score and raw weight agree with `weight` of a base of 100."""
    return Standing(
        line=LineId(f"{cluster}/{name}"),
        health=health,
        gate=gate,
        step=step,
        weight=weight,
        raw_milli=weight * 1_000,
        score=0 if gate is Gate.OPEN else min(weight, 100),
        reason=reason,
        window=window,
        since_ms=0,
    )


def snapshot(
    *standings: Standing, cluster: str = CLUSTER, epoch: int = 1, counter: int = 1, panic: str = ""
) -> Snapshot:
    """The standings sorted as a ledger publishes them: weight down, then id."""
    ordered = sorted(standings, key=lambda each: (-each.weight, each.line))
    return Snapshot(
        scope=scope(cluster), version=Version(epoch, counter), issued_ms=0, standings=tuple(ordered), panic=panic
    )
