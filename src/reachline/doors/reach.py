"""The reach door: one YAML document becomes settings, rules, lines and plans. Pure; knows no socket, task or clock.

document = read(text, name="reachline.yaml", environ=os.environ)
rules(document, "payments"), lines(document, "payments")
plan(document, agent="edge-03", locality=Locality(zone="az1"), number=1)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from reachline.core.rules import (
    SHADOWS,
    BaselineRules,
    BreakerRules,
    BusinessRules,
    FaultRules,
    GuardRules,
    Limit,
    LocalRules,
    QuorumRules,
    Rules,
    with_tables,
)
from reachline.doors import fast
from reachline.doors.addresses import is_public, login_of
from reachline.doors.effective import Effective, effective
from reachline.doors.limits import RATES, ROUND_TRIPS, RateLimit, RttLimit
from reachline.doors.outbounds import without_password
from reachline.doors.planning import probe_plans
from reachline.doors.presets import EARLY_TRIAL_MS, LONG_HAUL
from reachline.doors.reading import examine, read_secret
from reachline.doors.settings import Cluster, Document, LineSettings
from reachline.errors import ConfigError, Problem
from reachline.model import Kind, Line, LineId, Locality, Role, Scope, VantageId
from reachline.wire.frame import LinePlan, Plan

__all__ = ["changes", "line_id", "lines", "locality_of", "plan", "read", "refuse_exposed", "rules", "vantages"]

_ROUNDS: Final = 3
"""Probe rounds that `connect` looks at: none ok is failed, all ok is well again."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def read(
    text: str, *, name: str, environ: Mapping[str, str] = _NOTHING, secret_file: Callable[[str], str] = read_secret
) -> Document:
    """The document in `text`; ConfigError holds every problem found, in the order of the file.

    `environ` and `secret_file` answer `${env:X}` and `${file:/…}`; `document.warnings` tells what is odd but not wrong.
    """
    document, problems = examine(text, name=name, environ=environ, secret_file=secret_file)
    if document is None:
        raise ConfigError(*problems)
    return document


def rules(document: Document, cluster: str) -> Rules:
    """What the judge of this cluster obeys, as integers."""
    found = effective(document, cluster)
    settings = found.settings
    local = settings.local_breaker
    shadowed = tuple(name for name in SHADOWS if not getattr(settings.enforce, name))
    return Rules(
        mode=settings.mode,
        tick_ms=_ms(settings.judge.tick),
        limits=_limits(found),
        questions=fast.questions(found),
        patience=fast.patience(found),
        quorum=_quorum(found),
        faults=with_tables(FaultRules(), decay=settings.faults.decay, half_life_ms=_ms(settings.faults.half_life)),
        breaker=_breaker(found),
        local=LocalRules(
            failures=local.failures,
            open_ms=_ms(local.open),
            open_cap_ms=_ms(local.open_cap),
            max_open_milli=_milli(local.max_open) if settings.enforce.local else 0,
            share_milli=_milli(local.fail_share),
        ),
        policy=settings.policy,
        enforce=len(shadowed) < len(SHADOWS),
        seed=document.seed,
        baseline=LONG_HAUL if settings.service_class == "long_haul" else BaselineRules(),
        shadowed=shadowed,
        guard=_guard(found),
        business=_business(found),
        priority=document.clusters[cluster].priority,
        regions=_regions(document),
    )


def _regions(document: Document) -> tuple[tuple[str, int], ...]:
    """What the document says that regions carry, by name."""
    return tuple((name, each.capacity) for name, each in sorted(document.regions.items()) if each.capacity is not None)


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


def _milli(ratio: float) -> int:
    return round(ratio * 1_000)


def _limits(found: Effective) -> tuple[Limit, ...]:
    table = found.settings.limits
    rates = [_limit(metric, getattr(table, metric), 1_000) for metric in RATES]
    times = [_limit(metric, getattr(table, metric), 1_000_000) for metric in ROUND_TRIPS]
    return (*rates, *times, Limit("connect", None, None, 0, _ROUNDS, _ROUNDS))


def _limit(metric: str, limit: RateLimit | RttLimit, units: int) -> Limit:
    def whole(value: float | None) -> int | None:
        return None if value is None else round(value * units)

    return Limit(
        metric,
        degraded_enter=whole(limit.degraded),
        degraded_exit=whole(limit.exit),
        failed_enter=whole(limit.failed),
        failed_exit=whole(limit.failed_exit),
        minimum=limit.samples,
    )


def _quorum(found: Effective) -> QuorumRules:
    judge = found.settings.judge
    return QuorumRules(
        # Rounded up: 2 of 3 must not pass where more than 2/3 is asked for. The hair keeps 0.5 at 500.
        share_milli=math.ceil(judge.vote_share * 1_000 - 1e-9),
        fresh_ms=_ms(judge.fresh * judge.heartbeat),
        blind_ms=_ms(judge.blind),
    )


def _breaker(found: Effective) -> BreakerRules:
    breaker = found.settings.circuit_breaker
    trial = breaker.half_open
    return BreakerRules(
        cooldown_ms=_ms(breaker.cooldown_seconds),
        cooldown_cap_ms=_ms(breaker.max_cooldown_seconds),
        multiplier_milli=_milli(trial.cooldown_multiplier),
        jitter_milli=_milli(breaker.cooldown_jitter),
        reset_ms=_ms(breaker.reset_seconds),
        steps_milli=tuple(map(_milli, found.steps)),
        trial_ms=_ms(trial.min_window_seconds),
        step_ms=_ms(breaker.recovery.step_interval_seconds),
        min_ok=trial.min_success_requests,
        max_ok=trial.max_success_requests,
        fail_threshold=trial.fail_threshold,
        fail_milli=_milli(trial.fail_rate or 0),
        early_ms=EARLY_TRIAL_MS if breaker.early_trial else 0,
        share_steps=breaker.ratio_mode == "share",
    )


def _guard(found: Effective) -> GuardRules:
    guard = found.settings.guard
    return GuardRules(
        open_milli=_milli(guard.max_open),
        panic_milli=_milli(guard.panic),
        alive_ms=_ms(guard.alive),
        group_ms=_ms(guard.group),
        fill_milli=_milli(guard.fill),
    )


def _business(found: Effective) -> BusinessRules:
    business = found.settings.business
    return BusinessRules(
        span_ms=_ms(business.span),
        minimum=business.calls,
        clients=business.clients,
        conflict_ticks=business.conflict_ticks,
        hold_ms=_ms(business.hold),
    )


def vantages(document: Document, cluster: str) -> frozenset[VantageId]:
    """The agents that are expected to vote on this cluster; empty where the document names none: whoever joins counts."""
    origins = [line.origins for line in document.clusters[cluster].lines.values()]
    if not all(origins):
        return frozenset(map(VantageId, document.agents))
    return frozenset(
        VantageId(name)
        for name, agent in document.agents.items()
        if any(agent.locality.zone in zones for zones in origins)
    )


def lines(document: Document, cluster: str) -> tuple[Line, ...]:
    """The lines of a cluster in the document's order; one a zone where a line says `from`."""
    settings = document.clusters[cluster]
    return tuple(
        _line(document, cluster, name, line, origin)
        for name, line in settings.lines.items()
        for origin in line.origins or ("",)
    )


def line_id(cluster: str, name: str, origin: str = "") -> LineId:
    """`cluster/line[@origin]`."""
    return LineId(f"{cluster}/{name}@{origin}" if origin else f"{cluster}/{name}")


def _line(document: Document, cluster: str, name: str, line: LineSettings, origin: str) -> Line:
    voters = [agent for agent, each in document.agents.items() if origin and each.locality.zone == origin]
    return Line(
        id=line_id(cluster, name, origin),
        scope=Scope(cluster=cluster),
        endpoint=line.endpoint,
        outbound=_outbound(line),
        origin=origin,
        base=line.weight,
        roles=frozenset(map(Role, line.role)),
        provider=line.provider,
        groups=line.groups,
        capacity=line.capacity,
        drained=line.drained,
        vantages=frozenset(map(VantageId, voters)),
        region=line.region,
    )


def _outbound(line: LineSettings) -> str:
    """`direct` or the proxy's URL; a source address, interface or family is part of how a connection leaves:
    `direct?source=…`.
    """
    said = (("source", line.source), ("interface", line.interface), ("family", line.family))
    binding = [f"{key}={value}" for key, value in said if value]
    return without_password(line.via) + (f"?{'&'.join(binding)}" if binding else "")


def locality_of(document: Document, agent: str) -> Locality:
    """Where the document says an agent stands; empty where it says nothing."""
    named = document.agents.get(agent)
    return Locality(**named.locality.model_dump()) if named is not None else Locality()


def plan(
    document: Document,
    *,
    agent: str,
    locality: Locality,
    number: int,
    usual: Callable[[LineId], Mapping[Kind, int]] = lambda _: {},
) -> Plan:
    """What one agent must watch: every line without an origin, and those from its own zone.

    An agent that the document names has the locality written there; `locality` is what an unnamed one says of itself.
    `usual` tells a line's usual round trips, microseconds by kind: those of a long haul move what counts as slow.
    """
    zone = locality_of(document, agent).zone or locality.zone
    found = {name: effective(document, name) for name in document.clusters}
    watched = [
        _watched(document, found[name], line_id(name, line_name, origin), line, usual=usual)
        for name, cluster in document.clusters.items()
        for line_name, line, origin in _seen_from(cluster, zone)
    ]
    # One heartbeat carries all lines: it keeps the pace of the fastest cluster.
    beat = min(each.settings.judge.heartbeat for each in found.values())
    own = document.agents.get(agent)
    return Plan(
        number=number, heartbeat_ms=_ms(beat), lines=tuple(watched), sources=own.sources if own is not None else ()
    )


def _seen_from(cluster: Cluster, zone: str) -> list[tuple[str, LineSettings, str]]:
    seen = []
    for name, line in cluster.lines.items():
        if not line.origins:
            seen.append((name, line, ""))
        elif zone in line.origins:
            seen.append((name, line, zone))
    return seen


def _watched(
    document: Document,
    found: Effective,
    line: LineId,
    settings: LineSettings,
    *,
    usual: Callable[[LineId], Mapping[Kind, int]],
) -> LinePlan:
    endpoint, login = settings.endpoint, login_of(document.revealed(settings.to))
    return LinePlan(
        line=line,
        target=str(endpoint),
        via=document.revealed(settings.via),
        source=settings.source,
        interface=settings.interface,
        family=endpoint.family,
        alpha_milli=_milli(found.settings.window.alpha),
        probes=probe_plans(endpoint, found, settings.via, login=login, usual_us=usual(line)),
        groups=(*settings.groups, *((settings.provider,) if settings.provider else ())),
        mark=settings.mark or 0,
    )


def changes(old: Document, new: Document) -> tuple[str, ...]:
    """The keys that differ and take effect at the next start only; everything else is swapped while running."""
    keys = type(old.center).model_fields
    return tuple(f"center.{key}" for key in keys if getattr(old.center, key) != getattr(new.center, key))


def refuse_exposed(document: Document, *, insecure: bool = False, grpc: str = "", http: str = "") -> None:
    """ConfigError where an address is public without TLS and tokens, unless that is wanted. `grpc` and `http` override
    the document's, as options do.
    """
    center = document.center
    if insecure or center.insecure:
        return
    binds = {"grpc": grpc or center.grpc, "http": http or center.http}
    problems = []
    for key, bind in binds.items():
        lacking = _lacking(document, key) if is_public(bind) else ""
        if lacking:
            problems.append(
                Problem(
                    place=document.place(("center", key)),
                    path=f"center.{key}",
                    value=bind,
                    rule=f"is reachable from other machines, but has no {lacking}",
                    hint="bind 127.0.0.1, add what lacks, or say --insecure on a network you trust",
                )
            )
    if problems:
        raise ConfigError(*problems)


def _lacking(document: Document, key: str) -> str:
    """What a public door lacks, in words; empty where it is safe."""
    center = document.center
    if center.tls is None:
        return "TLS and no authentication" if not _has_tokens(document, key) else "TLS"
    return "" if _has_tokens(document, key) or (key == "grpc" and center.tls.client_ca) else "authentication"


def _has_tokens(document: Document, key: str) -> bool:
    if key == "http":
        return document.center.token is not None or bool(document.center.access)
    agents = document.agents.values()
    return bool(agents) and all(agent.token is not None for agent in agents)
