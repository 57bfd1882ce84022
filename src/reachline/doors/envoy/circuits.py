"""`circuit_breakers` of a cluster: how much may be under way at once, for calls of usual and of high priority."""

from __future__ import annotations

from typing import Final

from reachline.doors.envoy.fields import UINT32, Block
from reachline.doors.envoy.values import Budget, Thresholds

__all__ = ["thresholds"]

_PRIORITIES: Final = ("DEFAULT", "HIGH")


def thresholds(block: Block | None) -> tuple[Thresholds, Thresholds]:
    """Of usual calls, and of those of high priority."""
    found = {name: Thresholds() for name in _PRIORITIES}
    if block is None:
        return found["DEFAULT"], found["HIGH"]
    per_endpoint = _per_endpoint(block)
    seen: set[str] = set()
    for each in block.blocks("thresholds"):
        priority = each.word("priority", _PRIORITIES, "DEFAULT")
        read = _thresholds(each, per_endpoint.get(priority))
        # As in Envoy the first of a priority counts.
        if priority not in seen:
            found[priority] = read
        else:
            each.found.notice(each.path, f"is the second of priority {priority}: the first one counts")
        seen.add(priority)
    for priority, most in per_endpoint.items():
        if priority not in seen:
            found[priority] = Thresholds(max_connections_per_endpoint=most)
    block.done()
    return found["DEFAULT"], found["HIGH"]


def _thresholds(block: Block, per_endpoint: int | None) -> Thresholds:
    usual = Thresholds()
    read = Thresholds(
        max_connections=block.whole("max_connections", usual.max_connections),
        max_pending_requests=block.whole("max_pending_requests", usual.max_pending_requests),
        max_requests=block.whole("max_requests", usual.max_requests),
        max_retries=block.whole("max_retries", usual.max_retries),
        budget=_budget(block.block("retry_budget")),
        max_connections_per_endpoint=per_endpoint,
    )
    block.unsupported({"max_connection_pools": "there are no pools by downstream connection here"})
    block.aside("track_remaining")
    block.done()
    return read


def _budget(block: Block | None) -> Budget | None:
    if block is None:
        return None
    usual = Budget()
    read = Budget(
        share=block.percent("budget_percent", 100 * usual.share) / 100,
        least=block.whole("min_retry_concurrency", usual.least, most=UINT32),
    )
    block.done()
    return read


def _per_endpoint(block: Block) -> dict[str, int]:
    """Connections of one endpoint at most, by priority: the one field that Envoy reads there."""
    found: dict[str, int] = {}
    for each in block.blocks("per_host_thresholds"):
        priority = each.word("priority", _PRIORITIES, "DEFAULT")
        for name in ("max_pending_requests", "max_requests", "max_retries", "max_connection_pools", "retry_budget"):
            if each.has(name):
                each.refuse(name, "is not supported of a single host", "max_connections is")
            each.aside(name)
        each.aside("track_remaining")
        most = each.maybe("max_connections")
        each.done()
        if most is not None:
            found.setdefault(priority, most)
    return found
