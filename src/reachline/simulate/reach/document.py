"""The document that people would have written for a scenario: read by the reach door, so that every number is its number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.errors import ConfigError
from reachline.simulate.scenarios import Scenario

__all__ = ["CLUSTER", "document", "line_id", "name_of"]

CLUSTER: Final = "sim"
_ROLES: Final[Mapping[str, str]] = {"A": "traffic", "B": "reserve"}
_POLICIES: Final[Mapping[str, str]] = {"ab": "ab_groups"}


def line_id(name: str) -> str:
    """The id of a scenario's line."""
    return f"{CLUSTER}/{name}"


def name_of(line: str) -> str:
    """The scenario's name of a line."""
    return line.partition("/")[2]


def document(
    scenario: Scenario,
    *,
    mode: str,
    seed: int,
    drained: frozenset[str] = frozenset(),
    over: Mapping[str, object] | None = None,
) -> Document:
    """What the center of this scenario runs; ConfigError where a pushed document (`over`) is none."""
    text = json.dumps(_merged(_plain(scenario, mode, seed, drained), over or {}))
    return reach.read(text, name=f"{scenario.id}.yaml")


def _plain(scenario: Scenario, mode: str, seed: int, drained: frozenset[str]) -> dict[str, object]:
    agents = scenario.agents
    policies = [scenario.policy] if isinstance(scenario.policy, str) else list(scenario.policy)
    probes: dict[str, object] = {
        "suspect": _time(agents.tcp_interval_suspect_s),
        "tcp": {"every": _time(agents.tcp_interval_s), "burst": agents.burst},
        "http": {"every": _time(agents.http_interval_s), "path": "/healthz"},
    }
    if any(phase.applies_to == "icmp" for phase in scenario.phases):
        probes["icmp"] = {"every": _time(agents.icmp_interval_s)}
    cluster: dict[str, object] = {
        "policy": [_POLICIES.get(each, each) for each in policies],
        "probes": probes,
        "lines": {name: _line(scenario, name, at, drained) for at, name in enumerate(scenario.lines, 1)},
    }
    if mode == "literal":
        cluster["judge"] = {"heartbeat": _time(agents.heartbeat_s)}
    return {
        "schema_version": 1,
        "mode": mode,
        "seed": seed,
        "agents": {f"a{at}": {} for at in range(1, agents.count + 1)},
        "clusters": {CLUSTER: cluster},
    }


def _line(scenario: Scenario, name: str, at: int, drained: frozenset[str]) -> dict[str, object]:
    line = scenario.lines[name]
    said: dict[str, object] = {"to": f"tcp://10.0.{at // 256}.{at % 256}:443", "weight": line.base}
    if role := _ROLES.get(line.role, line.role):
        said["role"] = role
    if line.provider:
        said["provider"] = line.provider
    if line.capacity_rps:
        said["capacity"] = line.capacity_rps
    if name in drained:
        said["drained"] = True
    return said


def _time(seconds: float) -> str:
    return f"{round(1_000 * seconds)}ms"


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    found = dict(below)
    for key, value in above.items():
        was = found.get(key)
        found[key] = _merged(was, value) if isinstance(was, dict) and isinstance(value, dict) else value
    return found


def accepted(scenario: Scenario, over: Mapping[str, object], *, mode: str, seed: int) -> Document | None:
    """The document with what was pushed, or None where the door refuses it."""
    try:
        return document(scenario, mode=mode, seed=seed, over=over)
    except ConfigError:
        return None
