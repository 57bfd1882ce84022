"""What outlier detection is told and what it tells, and that as a line of Envoy's event log. Values only."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from reachline.core.outlier_rules import Detector
from reachline.core.outlying import Bar, percent

__all__ = ["CODES", "ORIGINS", "SPLIT_FAILED", "Action", "Event", "Saw", "as_envoy"]


class Saw(Enum):
    """What a call showed of its line. The first four are of our own side of the connection (`local origin`)."""

    CONNECTED = "connect success"
    CONNECTED_FINAL = "connect success, and that was all of the call"
    TIMEOUT = "timeout"
    UNCONNECTED = "connect failed"
    ANSWERED = "request success"
    FAILED = "request failed"


CODES: Final = {
    Saw.CONNECTED_FINAL: 200, Saw.TIMEOUT: 504, Saw.UNCONNECTED: 503, Saw.ANSWERED: 200, Saw.FAILED: 500,
}  # fmt: skip
"""The status that stands for what happened where origins are not split; a bare connect stands for none."""
SPLIT_FAILED: Final = 503
"""What a failed request without a status stands for where they are."""
ORIGINS: Final = {
    Saw.CONNECTED: True, Saw.CONNECTED_FINAL: True, Saw.TIMEOUT: False, Saw.UNCONNECTED: False,
}  # fmt: skip
"""Whose word it is of our own side where they are split, and whether a good one; absent: of what came over the connection."""


class Action(Enum):
    """What became of a line. `HELD`: it is an outlier, and the cap keeps it in; Envoy writes no line of that."""

    EJECT = "EJECT"
    UNEJECT = "UNEJECT"
    HELD = "HELD"


class Event(NamedTuple):
    """One decision. `value` is what the detector saw: a success rate in 1/RATE or a latency in us."""

    at_ms: int
    line: str
    action: Action
    detector: Detector
    ejections: int
    enforced: bool = True
    since_ms: int | None = None
    """How long ago the opposite happened last."""
    until_ms: int | None = None
    """Planned end of the ejection."""
    why: str = ""
    """Of a return `time` or `active_check`; of what was not done: as in `Held`."""
    value: int | None = None
    bar: Bar | None = None


_RATES = (Detector.SUCCESS_RATE, Detector.SUCCESS_RATE_LOCAL_ORIGIN)
_FAILURES = (Detector.FAILURE_PERCENTAGE, Detector.FAILURE_PERCENTAGE_LOCAL_ORIGIN)


def as_envoy(event: Event, *, cluster: str, url: str, timestamp: str) -> dict[str, object] | None:
    """The event as Envoy 1.40 writes it, key by key, ready for a JSON encoder; None where it writes nothing.

    `url` is `address:port`, `timestamp` RFC 3339. A latency ejection, which Envoy does not know, has a key of its own.
    """
    if event.action is Action.HELD:
        return None
    is_return = event.action is Action.UNEJECT
    told: dict[str, object] = {
        # A return says nothing of its cause: in Envoy the enum's first name stands there.
        "type": Detector.CONSECUTIVE_5XX.value if is_return else event.detector.value,
        "timestamp": timestamp,
    }
    if event.since_ms is not None:
        told["secs_since_last_action"] = str(event.since_ms // 1_000)
    told |= {
        "cluster_name": cluster,
        "upstream_url": url,
        "action": event.action.value,
        "num_ejections": event.ejections,
        "enforced": event.enforced and not is_return,
    }
    return told if is_return else told | _cause(event)


def _cause(event: Event) -> dict[str, object]:
    value, bar = event.value or 0, event.bar
    if event.detector in _RATES and bar is not None:
        return {
            "eject_success_rate_event": {
                "host_success_rate": percent(value),
                "cluster_average_success_rate": percent(bar.centre),
                "cluster_success_rate_ejection_threshold": percent(bar.limit),
            }
        }
    if event.detector in _FAILURES:
        return {"eject_failure_percentage_event": {"host_success_rate": percent(value)}}
    if event.detector is Detector.LATENCY and bar is not None:
        figures = {
            "host_latency_us": value,
            "cluster_latency_us": bar.centre,
            "cluster_latency_threshold_us": bar.limit,
        }
        return {"eject_latency_event": figures}
    return {"eject_consecutive_event": {}}
