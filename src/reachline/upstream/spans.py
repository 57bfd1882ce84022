"""What a call says to a trace: attributes on the caller's own span. No span of ours, and nothing where nobody traces."""

from __future__ import annotations

import sys
from typing import Any

from reachline.model import LineId
from reachline.upstream.outcome import Column

__all__ = ["annotate"]

_API = "opentelemetry.trace"


def annotate(cluster: str, line: LineId, column: Column) -> None:
    """Cluster, line and outcome of a call that ends, on the current span, if OpenTelemetry is imported and the span recorded."""
    # Looked up, never imported; it may be half imported by another thread.
    api: Any = sys.modules.get(_API)
    current = getattr(api, "get_current_span", None)
    if current is None:
        return
    span = current()
    if span.is_recording():
        span.set_attribute("reachline.cluster", cluster)
        span.set_attribute("reachline.line", line)
        span.set_attribute("reachline.outcome", column.name.lower())
