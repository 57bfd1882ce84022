"""Why a line is ejected, or why it is not, and what happens next: numbers, and a sentence for people."""

from __future__ import annotations

from typing import NamedTuple

from reachline.core.ejection import Held, eased_ms, grown, wait_ms
from reachline.core.outlier import Outliers
from reachline.core.outlier_rules import Detector
from reachline.core.outlying import RATE

__all__ = ["Told", "explain", "sentence"]

_WHY = {
    "cap": "too many lines of the cluster are out",
    "cap_priority": "too many lines of its priority are out",
    "not_enforced": "by chance this detection was not enforced",
    "alone": "other detectors have to find it too",
}
"""Of `Held.why`."""


class Told(NamedTuple):
    """One line as outlier detection sees it now. Times are on the caller's clock, in ms."""

    line: str
    detector: Detector | None
    """What ejected it; None: it is in."""
    at_ms: int | None
    """When it was ejected last…"""
    returned_ms: int | None
    """…and when it returned last."""
    until_ms: int | None
    """Planned end of the ejection."""
    ejections: int
    level: int
    """Steps that the wait has grown by…"""
    next_wait_ms: int
    """…how long the next ejection would last, before jitter…"""
    eased_ms: int | None
    """…and when the level falls by one if nothing happens; None: it does not."""
    run_5xx: int
    run_gateway: int
    run_local: int
    success_milli: int | None
    """Of the last sweep, in 1/1000; None: too few calls."""
    held: Held | None
    """The last detection since it was last out that was not acted on."""


def explain(outliers: Outliers, line: str) -> Told | None:
    """What is known of the line; None where it is not of this cluster."""
    monitor = outliers.monitor(line)
    if monitor is None:
        return None
    rules, out = outliers.rules, monitor.ejection
    seen = monitor.rates.get(Detector.SUCCESS_RATE)
    return Told(
        line=line,
        detector=None if out is None else out.detector,
        at_ms=monitor.went_ms,
        returned_ms=monitor.returned_ms,
        until_ms=outliers.until_ms(line),
        ejections=monitor.ejections,
        level=monitor.level,
        next_wait_ms=wait_ms(grown(monitor.level, rules), rules),
        eased_ms=eased_ms(monitor, rules, outliers.sweep_ms),
        run_5xx=monitor.run_5xx,
        run_gateway=monitor.run_gateway,
        run_local=monitor.run_local,
        success_milli=None if seen is None else seen * 1_000 // RATE,
        held=monitor.held,
    )


def sentence(told: Told, now_ms: int) -> str:
    """`ejected for 12 s by consecutive 5xx, 18 s to go`, or why it is in."""
    if told.detector is not None and told.at_ms is not None and told.until_ms is not None:
        since, left = (now_ms - told.at_ms) // 1_000, max(0, -(-(told.until_ms - now_ms) // 1_000))
        return f"ejected for {since} s by {_words(told.detector)}, {left} s to go"
    if told.held is not None:
        ago = (now_ms - told.held.at_ms) // 1_000
        return f"in, though {_words(told.held.detector)} found it {ago} s ago: {_WHY.get(told.held.why, told.held.why)}"
    return "in: no detector has found it" if not told.ejections else "in: no detector has found it since it returned"


def _words(detector: Detector) -> str:
    return detector.value.lower().replace("_", " ")
