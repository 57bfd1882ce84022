"""What a kept cluster tells: each endpoint's state and why, counters by Envoy's names, events by Envoy's keys. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from reachline.core.checking import CheckEvent, Fault, Verdict
from reachline.core.checking import as_envoy as check_as_envoy
from reachline.core.outlier import Outliers
from reachline.core.outlier_events import Event
from reachline.core.outlier_events import as_envoy as outlier_as_envoy
from reachline.core.outlier_explain import Told as Ejected
from reachline.core.outlier_explain import explain, sentence
from reachline.core.pick import Memory
from reachline.model import Gate, Health, LineId, Locality, Seconds
from reachline.upstream.eventlog import stamp
from reachline.upstream.listing import Listed, Target
from reachline.upstream.roll import Roll, Row
from reachline.upstream.settings import ClusterSettings

__all__ = ["Told", "check_counters", "checked_event", "counted", "explained", "listed", "outlier_event"]

_NETWORK: Final = (Fault.NETWORK, Fault.NETWORK_TIMEOUT)


class Told(NamedTuple):
    """One endpoint now. Instants are of this process's monotonic clock."""

    address: str
    hostname: str
    priority: int
    locality: Locality
    weight: int
    health: Health
    """All joined: UNHEALTHY gets no calls while the cluster is not in panic."""
    why: str
    """A sentence: what holds it out, since when and until when; empty where nothing does."""
    discovered: Health
    """Discovery's word."""
    checked: Health | None
    """By active checks alone; None: it is not checked."""
    ejected_until: Seconds | None
    """Planned end of its ejection; None: it is in."""
    ejection: Ejected | None
    """What outlier detection knows of it; None: there is none."""
    active: int
    """Calls of this process under way."""
    latency: Seconds | None
    """Peak-sensitive average of its answers, which `peak_ewma` keeps; None while nothing is known."""


def explained(
    roll: Roll, outliers: Outliers | None, memory: Memory, now_ms: int, *, only: str | None = None
) -> tuple[Told, ...]:
    """Every endpoint, or the one at an address; none where it is not here."""
    rows = tuple(roll) if only is None else tuple(filter(None, [roll.row(only)]))
    return tuple(_told(row, outliers, memory, now_ms) for row in rows)


def _told(row: Row, outliers: Outliers | None, memory: Memory, now_ms: int) -> Told:
    member, load = row.member, memory.loads.get(row.seat.key)
    ejection = None if outliers is None else explain(outliers, row.key)
    until_ms = None if ejection is None else ejection.until_ms
    return Told(
        address=row.key,
        hostname=member.hostname,
        priority=member.priority,
        locality=member.locality,
        weight=member.weight,
        health=row.why.health,
        why="; ".join(_reasons(row, ejection, now_ms)),
        discovered=member.health,
        checked=None if row.check is None else row.check.health,
        ejected_until=None if until_ms is None else until_ms / 1_000,
        ejection=ejection,
        active=0 if load is None else load.active,
        latency=load.latency_us / 1e6 if load is not None and load.latency_us else None,
    )


def _reasons(row: Row, ejection: Ejected | None, now_ms: int) -> list[str]:
    why, check = row.why, row.check
    found = [f"discovery says {row.member.health.name}"] if why.failed_discovery else []
    if why.failed_check and check is not None:
        silent = " by silence" if check.timed_out else ""
        passes = f", {check.passes} passed since" if check.passes else ""
        found.append("not checked yet" if check.first else f"failed its checks{silent}{passes}")
    if why.ejected and ejection is not None:
        found.append(sentence(ejection, now_ms))
    if why.degraded:
        found.append("degraded: used once the others do not carry all")
    if why.excluded:
        found.append("left out of all sums")
    if row.is_leaving:
        found.append("discovery names it no more; it serves until a check fails")
    return found


def listed(roll: Roll) -> tuple[Listed, ...]:
    """Endpoints as the lines of a list: weight 0 while something holds them out."""
    rows = sorted(roll, key=lambda row: row.member.priority)
    return tuple(_listed(row) for row in rows)


def _listed(row: Row) -> Listed:
    pick, weight = row.seat.item, row.member.weight
    is_out = row.why.health is Health.UNHEALTHY
    return Listed(
        LineId(pick.line),
        Target(pick.target, pick.address, pick.url),
        0 if is_out else weight,
        weight,
        health=row.why.health,
        breaker=Gate.OPEN if row.is_ejected else Gate.CLOSED,
        reason="; ".join(_reasons(row, None, 0)),
        is_drained=row.member.health is Health.DRAINING,
        region=row.member.locality.region,
    )


def check_counters(verdict: Verdict) -> tuple[str, ...]:
    """What one result of a check counts as, by Envoy's names."""
    if verdict.fault is None:
        return "attempt", "success"
    if verdict.fault is Fault.PASSIVE:
        return "failure", "passive_failure"
    return ("attempt", "failure", "network_failure") if verdict.fault in _NETWORK else ("attempt", "failure")


def counted(
    roll: Roll, outliers: Outliers | None, memory: Memory, counts: Mapping[str, int], *, dropped: int
) -> dict[str, int]:
    """Counters and gauges by Envoy's names."""
    sums = roll.sums()
    found = {
        "membership_change": 0,
        "lb_healthy_panic": 0,
        "upstream_rq_drop_overload": dropped,
        "upstream_rq_active": sum(load.active for load in list(memory.loads.values())),
        **counts,
        "membership_total": sums.total,
        "membership_healthy": sums.healthy,
        "membership_degraded": sums.degraded,
        "membership_excluded": sums.excluded,
    }
    checks = [row.check for row in roll if row.check is not None]
    if checks:
        found |= {f"health_check.{name}": counts.get(f"health_check.{name}", 0) for name in _CHECKS}
        found["health_check.healthy"] = sum(not check.failed for check in checks)
        found["health_check.degraded"] = sum(check.degraded for check in checks)
    if outliers is not None:
        found |= {f"outlier_detection.{name}": count for name, count in outliers.counts.items()}
    return found


_CHECKS: Final = ("attempt", "success", "failure", "passive_failure", "network_failure")


def checked_event(settings: ClusterSettings, row: Row, event: CheckEvent, wall: Seconds) -> dict[str, object]:
    """A check's event, as a line of Envoy's log."""
    assert settings.check is not None
    host, port = row.member.address
    where = row.member.locality
    return check_as_envoy(
        event,
        checker=settings.check.asked.checker,
        host=host,
        port=port,
        cluster=settings.name,
        timestamp=stamp(wall),
        locality=(where.region, where.zone, where.sub_zone),
    )


def outlier_event(settings: ClusterSettings, event: Event, wall: Seconds) -> dict[str, object] | None:
    """An ejection or a return, as a line of Envoy's log; None where it writes nothing."""
    return outlier_as_envoy(event, cluster=settings.name, url=event.line, timestamp=stamp(wall))
