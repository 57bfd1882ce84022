"""Whether a heartbeat can be true: counts that are counts, parts not above their whole. RemoteProtocolError names the field."""

from __future__ import annotations

from typing import Final

from reachline.errors import RemoteProtocolError
from reachline.model import Kind, Reading
from reachline.wire.frame import SLICE, Heartbeat, Report

__all__ = ["check"]

_MOST_REPORTS: Final = SLICE * len(Kind)
"""A slice of lines, each by every probe kind."""
_MOST: Final = 2**40
"""Above any honest count, microsecond or millisecond (12 days in microseconds), far below what a journal can hold."""
_MOST_DOUBT: Final = 7
_MOST_TEXT: Final = 300


def check(heartbeat: Heartbeat) -> None:
    """Returns where the heartbeat may be given to a ledger."""
    part, parts = heartbeat.part
    _refuse(not 1 <= part <= parts <= _MOST, "part", "must be i of n")
    _refuse(not 0 <= heartbeat.sequence <= _MOST, "sequence", "must be a whole number, not negative")
    _refuse(not 0 <= heartbeat.doubt <= _MOST_DOUBT, "doubt", f"must be 0…{_MOST_DOUBT}")
    _refuse(len(heartbeat.reports) > _MOST_REPORTS, "reports", f"are {len(heartbeat.reports)}, at most {_MOST_REPORTS}")
    for at, report in enumerate(heartbeat.reports):
        _report(report, f"reports.{at}")


def _report(report: Report, path: str) -> None:
    _refuse(not 1 <= len(report.line) <= _MOST_TEXT, f"{path}.line", f"must be 1…{_MOST_TEXT} characters")
    _reading(report.reading, f"{path}.reading")
    detail = report.detail
    _refuse(len(detail.address) > _MOST_TEXT or len(detail.error) > _MOST_TEXT, f"{path}.detail", "has an endless text")


def _reading(reading: Reading, path: str) -> None:
    counted: tuple[int, ...] = (
        reading.sent,
        reading.lost,
        reading.rounds,
        reading.rounds_ok,
        reading.recent,
        reading.recent_bad,
    )
    counted += (reading.answered, reading.fresh_ok, reading.fresh_failed, reading.covered_ms, reading.quality)
    known = (reading.ewma_us, reading.p50_us, reading.p95_us, reading.jitter_us)
    numbers = (*reading.counts, *counted, *(value for value in known if value is not None))
    _refuse(min(numbers) < 0 or max(numbers) > _MOST, path, "has a number below 0 or beyond reason")
    _refuse(reading.lost > reading.sent, f"{path}.lost", "is more than was sent")
    _refuse(reading.rounds_ok > reading.rounds, f"{path}.rounds_ok", "is more than there were rounds")
    _refuse(reading.recent_bad > reading.recent, f"{path}.recent_bad", "is more than there were attempts")
    _refuse(reading.answered > reading.counts.attempts, f"{path}.answered", "is more than there were attempts")


def _refuse(is_wrong: bool, path: str, rule: str) -> None:
    if is_wrong:
        raise RemoteProtocolError(f"heartbeat: {path} {rule}")
