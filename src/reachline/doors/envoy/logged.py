"""Access logs of an Envoy document as plain values: where to, what a line holds, which requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from reachline.doors.envoy.routes import Format, HeaderMatch

__all__ = ["AccessLog", "Comparison", "LogFilter", "LogFormat"]


class Comparison(NamedTuple):
    """A ComparisonFilter: EQ, GE, LE or NE, against a number."""

    operator: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which requests are logged. `kind` says which of the fields counts; of `and` and `or` all or one of `inner`."""

    kind: str
    """status, duration, not_health_check, header, response_flag, grpc_status, fraction, and, or."""
    comparison: Comparison | None = None
    """Of a status, or of a duration in milliseconds."""
    header: HeaderMatch | None = None
    words: frozenset[str] = frozenset()
    """Response flags, or names of gRPC statuses; empty: any flag."""
    exclude: bool = False
    """Of gRPC statuses: all others."""
    fraction: tuple[int, int] | None = None
    inner: tuple[LogFilter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """How one line reads. Both None: Envoy's default format."""

    text: Format | None = None
    """With its line break, which Envoy adds to none."""
    json: Mapping[str, object] | None = None
    """Keys to Format, to a mapping or tuple of such, or to a plain number or truth; one object a line."""
    omit_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLog:
    """One log."""

    path: str
    """A file; `/dev/stdout` and `/dev/stderr` for the two streams."""
    format: LogFormat = LogFormat()
    filter: LogFilter | None = None
