"""Statuses as Xray's interfaces show them: the `observatory` map of `/debug/vars`, and the values of the gRPC message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from reachline.core.observing.values import Ping, Status

__all__ = ["OutboundStatus", "debug_vars", "show"]


class OutboundStatus(NamedTuple):
    """The message `xray.core.app.observatory.OutboundStatus`: fields in the order of their numbers, 1 to 7."""

    alive: bool
    delay: int
    last_error_reason: str
    outbound_tag: str
    last_seen_time: int
    last_try_time: int
    health_ping: Ping | None
    """`HealthPingMeasurementResult`: all, fail, deviation, average, max, min, numbered 1 to 6."""


def show(statuses: Iterable[Status]) -> tuple[OutboundStatus, ...]:
    """What `GetOutboundStatus` answers, in the observer's order."""
    return tuple(
        OutboundStatus(each.alive, each.delay, each.reason, each.tag, each.seen, each.tried, each.ping)
        for each in statuses
    )


def debug_vars(statuses: Iterable[Status]) -> dict[str, dict[str, object]]:
    """The value of `observatory` in `/debug/vars`, ready for a JSON encoder: by tag, what is false, zero or empty left out."""
    return {each.tag: _fields(each) for each in statuses}


def _fields(status: Status) -> dict[str, object]:
    found: dict[str, object] = {
        "alive": status.alive,
        "delay": status.delay,
        "last_error_reason": status.reason,
        "outbound_tag": status.tag,
        "last_seen_time": status.seen,
        "last_try_time": status.tried,
    }
    if status.ping is not None:
        found["health_ping"] = {name: value for name, value in status.ping._asdict().items() if value}
    return {name: value for name, value in found.items() if value or name == "health_ping"}
