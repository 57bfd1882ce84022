"""Whether a heartbeat can be true: counts that are counts, parts not above their whole. RemoteProtocolError names the field."""

from __future__ import annotations

import re
from typing import Final

from reachline.center.matrix import MOST
from reachline.core.direction import Way
from reachline.errors import RemoteProtocolError
from reachline.model import Kind, Reading
from reachline.wire.frame import MOST_TEXT, SLICE, Heartbeat, Hello, MeshReport, Pacing, Ports, Report

__all__ = ["check", "unfit"]

_MOST_REPORTS: Final = SLICE * len(Kind)
"""A slice of lines, each by every probe kind."""
_MOST: Final = 2**40
"""Above any honest count, microsecond or millisecond (12 days in microseconds), far below what a journal can hold."""
_MOST_MESH: Final = 2**53
"""Above what any clock of a peer that lies can make of microseconds, and exact in every reader of JSON."""
_MOST_DOUBT: Final = 7
_MOST_SAID: Final = 256
"""Reasons of doubt and vitals of one host: three for each of its interfaces and references, of which none has this many."""


_MOST_LISTED: Final = 256
"""Sources or features of one agent: a host has fewer addresses, a release fewer kinds."""
_MOST_TOKEN: Final = 8_192
"""Signed tokens have two or three thousand characters."""
_MOST_CAUSES: Final = 32
"""Of rounds left out: there are five, and a newer agent may know more."""
_MOST_PORTS: Final = 65_536
_CAUSE: Final = re.compile(r"[a-z_]{1,32}").fullmatch


def unfit(hello: Hello) -> str:
    """Why what an agent says of itself cannot be kept, logged and shown; empty where it can."""
    listed = (*hello.sources, *hello.features)
    texts = (hello.agent, hello.release, hello.boot, hello.tenant, hello.mesh, *hello.locality, *listed)
    if len(listed) > _MOST_LISTED:
        return f"a hello lists {_MOST_LISTED} sources and features at most"
    if any(len(text) > MOST_TEXT or not text.isprintable() for text in texts):
        return f"a hello has texts of {MOST_TEXT} printable characters at most"
    return f"a token has {_MOST_TOKEN} characters at most" if len(hello.token) > _MOST_TOKEN else ""


def check(heartbeat: Heartbeat) -> None:
    """Returns where the heartbeat may be given to a ledger."""
    part, parts = heartbeat.part
    _refuse(not 1 <= part <= parts <= _MOST, "part", "must be i of n")
    _refuse(not 0 <= heartbeat.sequence <= _MOST, "sequence", "must be a whole number, not negative")
    _refuse(not 0 <= heartbeat.doubt <= _MOST_DOUBT, "doubt", f"must be 0…{_MOST_DOUBT}")
    _refuse(len(heartbeat.reports) > _MOST_REPORTS, "reports", f"are {len(heartbeat.reports)}, at most {_MOST_REPORTS}")
    _refuse(len(heartbeat.mesh) > MOST, "mesh", f"are {len(heartbeat.mesh)}, at most {MOST}")
    _host(heartbeat)
    _pacing(heartbeat.pacing)
    for at, told in enumerate(heartbeat.mesh):
        _mesh(told, f"mesh.{at}")
    for at, report in enumerate(heartbeat.reports):
        _report(report, f"reports.{at}")


def _host(heartbeat: Heartbeat) -> None:
    """What it says of itself stands in terminals and log lines: readable, and not without end."""
    doubts, vitals = heartbeat.doubts, heartbeat.vitals
    _refuse(max(len(doubts), len(vitals)) > _MOST_SAID, "vitals", f"or doubts are more than {_MOST_SAID}")
    texts = (*doubts, *(vital.name for vital in vitals), *(vital.where for vital in vitals))
    _refuse(any(len(text) > MOST_TEXT or not text.isprintable() for text in texts), "vitals", "has an unreadable text")
    numbers = [0, *(number for vital in vitals for number in (vital.value, vital.whole, vital.over_ms))]
    _refuse(min(numbers) < 0 or max(numbers) > _MOST, "vitals", "has a number below 0 or beyond reason")


def _pacing(pacing: Pacing | None) -> None:
    if pacing is None:
        return
    texts = (pacing.limit, *pacing.skipped)
    _refuse(len(pacing.skipped) > _MOST_CAUSES, "pacing", f"has more than {_MOST_CAUSES} causes")
    _refuse(any(len(text) > MOST_TEXT or not text.isprintable() for text in texts), "pacing", "has an unreadable text")
    _refuse(any(not _CAUSE(cause) for cause in pacing.skipped), "pacing", "has a cause that is no word")
    numbers = (pacing.rate_milli, pacing.stretch_milli, pacing.shed, *pacing.skipped.values())
    _refuse(min(numbers) < 0 or max(numbers) > _MOST, "pacing", "has a number below 0 or beyond reason")


def _ports(ports: Ports | None, path: str) -> None:
    if ports is None:
        return
    numbers = (ports.dead, ports.tried, ports.parts, ports.bucket or 0, ports.shift)
    _refuse(min(numbers) < 0 or max(numbers) > _MOST_PORTS, path, "has a number that no port can have")
    _refuse(ports.dead > ports.tried, path, "has more dead ports than were tried")


def _mesh(told: MeshReport, path: str) -> None:
    _refuse(not 1 <= len(told.peer) <= MOST_TEXT or len(told.error) > MOST_TEXT, path, "has an endless text or no peer")
    _refuse(not (told.peer + told.error).isprintable(), path, "has an unreadable text")
    counted = (told.sent, told.forward_lost, told.replied, told.reverse_lost, told.loss, told.delay)
    known = (told.silent_ms, told.asked_ms, told.rtt_us)
    numbers = (*counted, *(value for value in known if value is not None))
    _refuse(min(numbers) < 0 or max(numbers) > _MOST_MESH, path, "has a number below 0 or beyond reason")
    signed = (told.forward_rise_us, told.reverse_rise_us, told.drift_ppb)
    _refuse(any(abs(value or 0) > _MOST_MESH for value in signed), path, "has a number beyond reason")
    _refuse(told.forward_lost > told.sent or told.reverse_lost > told.replied, path, "lost more than was sent")
    _refuse(max(told.loss, told.delay) > Way.BOTH, path, "names a way that there is not")


def _report(report: Report, path: str) -> None:
    _refuse(not 1 <= len(report.line) <= MOST_TEXT, f"{path}.line", f"must be 1…{MOST_TEXT} characters")
    _reading(report.reading, f"{path}.reading")
    detail = report.detail
    _refuse(not 0 <= detail.skipped <= _MOST, f"{path}.detail.skipped", "must be a whole number, not negative")
    _refuse(not 0 <= detail.interval_ms <= _MOST, f"{path}.detail.interval_ms", "must be milliseconds, not negative")
    _ports(detail.ports, f"{path}.detail.ports")
    _refuse(len(detail.address) > MOST_TEXT or len(detail.error) > MOST_TEXT, f"{path}.detail", "has an endless text")


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
    counted += (reading.fresh_marred, reading.fresh_slow, reading.fresh_crawl)
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
