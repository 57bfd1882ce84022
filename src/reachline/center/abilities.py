"""What an agent can be asked to do: kinds that its release does not know stay out of its plan, and their lines say so.

An agent of an older release could not even read a plan that names such a kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import msgspec

from reachline.doors.addresses import SCHEMES, parse_target
from reachline.model import Kind, Reading
from reachline.wire.frame import Detail, LinePlan, Plan, Report

__all__ = ["Fitted", "fitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A plan as its agent can carry it out."""

    plan: Plan
    lacks: frozenset[Kind]
    """Kinds that were left out of it."""
    excuses: tuple[Report, ...]
    """For people, in the place of the readings that will not come."""


def fitted(plan: Plan, known: Collection[Kind], *, release: str) -> Fitted:
    """The plan without kinds that are not `known`; a line with no other kind is not in it at all."""
    missing = [(line, probe.kind) for line in plan.lines for probe in line.probes if probe.kind not in known]
    if not missing:
        return Fitted(plan=plan, lacks=frozenset(), excuses=())
    lines = tuple(_kept(plan, known))
    excuses = tuple(_excuse(line.line, kind, release) for line, kind in missing)
    return Fitted(
        plan=msgspec.structs.replace(plan, lines=lines), lacks=frozenset(kind for _, kind in missing), excuses=excuses
    )


def _kept(plan: Plan, known: Collection[Kind]) -> Iterator[LinePlan]:
    for line in plan.lines:
        probes = tuple(probe for probe in line.probes if probe.kind in known)
        if probes == line.probes:
            yield line
        elif probes:
            yield msgspec.structs.replace(line, probes=probes, target=_readable(line.target, known))


def _readable(target: str, known: Collection[Kind]) -> str:
    """The target with a scheme that the agent can read: who does not know a kind does not know its schemes either."""
    endpoint = parse_target(target)
    if SCHEMES[endpoint.scheme].kinds[0] in known:
        return target
    return str(replace(endpoint, scheme="tcp", path=""))


def _excuse(line: str, kind: Kind, release: str) -> Report:
    words = f"this agent cannot probe {kind.value}: its release {release} does not know the kind"
    return Report(line=line, reading=Reading(kind, void=True), detail=Detail(error=words))
