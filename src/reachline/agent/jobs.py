"""A plan's line as jobs for the engine: where to, from where, how it is closed. Waits for nothing and sends nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from reachline.agent.leaving import Leaving
from reachline.doors import outbounds
from reachline.doors.addresses import parse_target
from reachline.model import Endpoint
from reachline.net.attempt import EARLY
from reachline.net.engine import Job
from reachline.talk import Probe, build, hop
from reachline.talk.way import Way
from reachline.wire.frame import LinePlan, ProbePlan

__all__ = ["OWN_SERVER", "connects", "endpoint_of", "jobs_of", "unlimited", "way_of"]

OWN_SERVER: Final = "dns://"
"""The target of a line that asks the agent's own name server."""
_CONNECTS: Final = frozenset({Way.CONNECT, Way.STREAM})


def endpoint_of(line: LinePlan) -> Endpoint:
    """The target with its family; a `dns://` one may leave the server to the agent (an empty host)."""
    if line.target == OWN_SERVER:
        return Endpoint(scheme="dns", host="", port=53)
    endpoint = parse_target(line.target)
    return replace(endpoint, family=line.family) if line.family else endpoint


def way_of(line: LinePlan, plan: ProbePlan) -> tuple[object, ...]:
    """What a window is about: as long as this stays, its attempts are of the same thing."""
    return line.target, outbounds.without_password(line.via), line.source, line.interface, line.family, plan.options


def unlimited(line: LinePlan, plan: ProbePlan) -> tuple[LinePlan, ProbePlan]:
    """Both without what counts as slow: a center that learns moves it, and nothing else changes by that."""
    return msgspec.structs.replace(line, probes=tuple(map(_unlimited, line.probes))), _unlimited(plan)


def _unlimited(plan: ProbePlan) -> ProbePlan:
    return msgspec.structs.replace(plan, slow_us=0, crawl_us=0)


def jobs_of(line: LinePlan, plan: ProbePlan, endpoint: Endpoint, leaving: Leaving, *, token: int) -> tuple[Job, ...]:
    """What the engine does for one attempt, for each way to leave; ConfigError or ValueError where the plan is wrong.

    Half of all direct connects leave from a port that is chosen at bind: connect has even ones only, and half of the paths
    behind a router would never be seen.
    """
    probe = build(plan.kind, endpoint, plan.options)
    hops = outbounds.hops(line.via)
    if hops and (reason := hop.why_not(plan.kind)):
        raise ValueError(f"{reason}; it is not sent directly instead")
    ports = (0, EARLY) if connects(probe) and not hops else (0,)
    return tuple(
        Job(
            token=token,
            endpoint=endpoint,
            probe=probe,
            timeout=plan.timeout_ms / 1_000,
            patience=plan.patience_ms / 1_000,
            source=source,
            interface=line.interface,
            reset=leaving.reset,
            port=port,
            hops=hops,
        )
        for port in ports
        for source in leaving.sources
    )


def connects(probe: Probe) -> bool:
    """Whether its attempts are TCP connections."""
    return probe.way in _CONNECTS
