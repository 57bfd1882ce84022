"""`leastLoad`: who qualifies, what each costs, how they are sorted, and how many of them are taken. Xray's arithmetic, step by step."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from reachline.core.observing.rules import NUMBER, Cost, LeastLoad, float32
from reachline.core.observing.values import MS, Status

__all__ = ["Node", "node_of", "qualifies", "ranked", "root_of", "take", "weight_of"]

_TAGS: Final = 16_384
"""Weights remembered, as Xray remembers them: three times the outbounds of the largest documents."""


class Node(NamedTuple):
    """One candidate in the order they are sorted by: the least first."""

    cost: int
    average: int
    fail: int
    fewer: int
    """Minus the number of results."""
    tag: str


def weight_of(tag: str, costs: Sequence[Cost]) -> float:
    """That of the first rule that matches; 1 where none does, or where what matched holds no number."""
    for cost in costs:
        matched = _matched(tag, cost)
        if not matched:
            continue
        if cost.value > 0:
            return float32(cost.value)
        found = NUMBER.search(matched)
        return float(found[0]) if found else 1.0
    return 1.0


def _matched(tag: str, cost: Cost) -> str:
    """What matched: of a plain rule its own text, not the tag's. Empty: nothing did, or it is no pattern."""
    if not cost.is_pattern:
        return cost.match if cost.match in tag else ""
    try:
        found = re.search(cost.match, tag)
    except re.error:
        return ""
    return found[0] if found else ""


def qualifies(status: Status, candidates: Container[str], load: LeastLoad) -> bool:
    """Alive, a candidate, faster than `max_rtt` and not failing more often than tolerated; a limit of 0 is none."""
    if not status.alive or status.tag not in candidates:
        return False
    if load.max_rtt and status.delay >= load.max_rtt // MS:
        return False
    ping = status.ping
    if ping is None or ping.all <= 0 or load.tolerance <= 0:
        return True
    # A double against a single: 7 of 10 are more than the single nearest to 0.7, as they are in Xray.
    return ping.fail / ping.all <= float32(load.tolerance)


@lru_cache(maxsize=_TAGS)
def root_of(tag: str, costs: tuple[Cost, ...]) -> float:
    """The root of the tag's weight, which is what costs are multiplied by."""
    return math.sqrt(weight_of(tag, costs))


def node_of(status: Status, costs: tuple[Cost, ...]) -> Node:
    """Without statistics its delay stands for average and deviation, and it has one result, which failed: as in Xray."""
    weight = root_of(status.tag, costs) if costs else 1.0
    if status.ping is None:
        delay = status.delay * MS
        return Node(int(delay * weight), delay, 1, -1, status.tag)
    ping = status.ping
    return Node(int(ping.deviation * weight), ping.average, ping.fail, -ping.all, status.tag)


def ranked(statuses: Iterable[Status], candidates: Container[str], load: LeastLoad) -> list[Node]:
    """The qualified ones, best first: by deviation, so steadiness comes before speed."""
    return sorted(node_of(each, load.costs) for each in statuses if qualifies(each, candidates, load))


def take(nodes: Sequence[Node], load: LeastLoad) -> tuple[str, ...]:
    """Tags that share the traffic, best first: as many as expected, and those that lie below the baseline which gives as many."""
    tags = tuple(node.tag for node in nodes)
    if not tags or load.expected > len(tags):
        return tags
    wanted = max(load.expected, 1)
    if not load.baselines:
        return tags[:wanted]
    number = 0
    for baseline in load.baselines:
        while number < len(nodes) and nodes[number].cost < baseline:
            number += 1
        if number >= wanted:
            break
    if load.expected > 0:
        number = max(number, load.expected)
    return tags[:number]
