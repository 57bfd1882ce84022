"""Ours, from the same document that Envoy has: the engines of `core` driven one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from random import Random
from typing import Any

from reachline.core.hashing import xxh64
from reachline.core.pick import Member, Memory, Picker, build
from reachline.core.pick.build import loads_of
from reachline.core.pick.priorities import Loads
from reachline.doors.envoy import Cluster, read, rules
from reachline.model import Health

CHANCE = Random(1)


def cluster(document: Mapping[str, Any]) -> Cluster:
    """The one cluster of a document, read as text: as Envoy reads it."""
    return read(json.dumps([document])).clusters[document["name"]]


def members(found: Cluster, out: AbstractSet[int] = frozenset()) -> list[Member[int]]:
    """Its endpoints by their ports; those of `out` are ejected or have failed their checks."""
    made = []
    for each in found.membership.members:
        labels = each.metadata.get("envoy.lb", {})
        key = labels.get("hash_key") if isinstance(labels, dict) else None
        named = each.hostname if found.hash_hostnames and each.hostname else str(each.address)
        made.append(
            Member(
                each.address.port,
                str(key or named),
                weight=each.weight,
                health=Health.UNHEALTHY if each.address.port in out else each.health,
                excluded=each.health is Health.DRAINING,
                priority=each.priority,
                locality=each.locality,
            )
        )
    return made


def picker(
    document: Mapping[str, Any], out: AbstractSet[int] = frozenset(), memory: Memory | None = None
) -> Picker[int]:
    found = cluster(document)
    policy = rules(read([document]), found.name).policy
    return build(members(found, out), policy, memory or Memory(), CHANCE)


def shares(document: Mapping[str, Any], out: AbstractSet[int] = frozenset()) -> Loads:
    """Percent of the calls by priority."""
    found = cluster(document)
    return loads_of(members(found, out), rules(read([document]), found.name).policy)


def pick_by(chooser: Picker[int], key: str) -> int | None:
    """The endpoint of a header's value."""
    return chooser.pick(CHANCE, xxh64(key.encode()))
