"""The source document's heartbeat, as foreign agents post it: read as it stands, matched to a line, turned into a reading.

It names a sample count and rates, nothing else: the reading is weaker evidence (quality 1), and what it cannot say stays
unknown instead of being guessed. Its `status` is the agent's opinion; the center judges for itself.
"""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reachline.errors import ConfigError, Problem
from reachline.model import Counts, Kind, Line, LineId, Locality, Reading, VantageId

__all__ = ["MAX_BYTES", "ForeignHeartbeat", "match", "read", "reading"]

MAX_BYTES: Final = 16 << 10
"""The document's own example has 230 bytes; whatever is 70 times larger is not one."""
_MAX_SAMPLES: Final = 1_000_000
_MAX_RTT_MS: Final = 600_000
"""Ten minutes: nobody waits longer for a probe."""
_MAX_TEXT: Final = 120

_KINDS: Final[Mapping[str, Kind]] = {kind.value: kind for kind in Kind} | {
    "tcp_connect": Kind.TCP,
    "http_get": Kind.HTTP,
    "https": Kind.HTTP,
    "tls_handshake": Kind.TLS,
    "dns_resolve": Kind.DNS,
    "ping": Kind.ICMP,
}
"""A kind by its own name, and what the source document and its like call some."""
_STATUSES: Final = ("healthy", "degraded", "down")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignHeartbeat:
    """One report on one target by one foreign agent; RTTs in ms and rates as it wrote them, None where it did not."""

    agent: VantageId
    sent: float
    """Its own clock, unix seconds: for display only."""
    target_zone: str
    target: str
    """An IP address, in its canonical form."""
    kind: Kind
    samples: int
    average_ms: float | None
    p95_ms: float | None
    loss: float
    timeouts: float
    status: str
    line: LineId | None
    """The optional key that says which line is meant."""


def read(payload: bytes) -> ForeignHeartbeat:
    """The heartbeat in `payload`; ConfigError names every field that is missing or wrong. Other keys are passed over."""
    if len(payload) > MAX_BYTES:
        raise ConfigError(_problem("", f"has {len(payload)} bytes, at most {MAX_BYTES} are taken"))
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        raise ConfigError(_problem("", "is not JSON")) from None
    if not isinstance(document, dict):
        raise ConfigError(_problem("", "is not an object", hint="one heartbeat, one object"))
    fields = _Fields(document, [])
    heartbeat = _read(fields)
    if fields.problems:
        raise ConfigError(*fields.problems)
    return heartbeat


def _read(fields: _Fields) -> ForeignHeartbeat:
    line = fields.text("line", needed=False)
    kind = fields.text("probe_type")
    if kind and kind not in _KINDS:
        fields.refuse("probe_type", "is no known probe", f"one of {', '.join(_KINDS)}")
    status = fields.text("status", needed=False)
    if status and status not in _STATUSES:
        fields.refuse("status", "is no known status", f"one of {', '.join(_STATUSES)}")
    return ForeignHeartbeat(
        agent=VantageId(fields.text("agent_id")),
        sent=fields.number("ts", most=1e11) or 0.0,
        target_zone=fields.text("target_zone", needed=False),
        target=fields.address("target_ip"),
        kind=_KINDS.get(kind, Kind.TCP),
        samples=fields.count("sample_count"),
        average_ms=fields.number("avg_rtt_ms", most=_MAX_RTT_MS, needed=False),
        p95_ms=fields.number("p95_rtt_ms", most=_MAX_RTT_MS, needed=False),
        loss=fields.number("loss_rate", most=1) or 0.0,
        timeouts=fields.number("timeout_rate", most=1) or 0.0,
        status=status,
        line=LineId(line) if line else None,
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """A JSON object read field by field; what is wrong is collected. Written by `read` alone."""

    document: Mapping[str, Any]
    problems: list[Problem]

    def refuse(self, name: str, rule: str, hint: str = "") -> None:
        self.problems.append(_problem(name, rule, hint=hint, value=self.document.get(name)))

    def text(self, name: str, *, needed: bool = True) -> str:
        value: object = self.document.get(name, "")
        if not isinstance(value, str) or len(value) > _MAX_TEXT or not value.isprintable():
            self.refuse(name, f"must be a text of at most {_MAX_TEXT} printable characters")
            return ""
        if needed and not value:
            self.refuse(name, "is needed")
        return value

    def address(self, name: str) -> str:
        text = self.text(name)
        try:
            return str(ipaddress.ip_address(text)) if text else ""
        except ValueError:
            self.refuse(name, "must be an IP address")
            return ""

    def count(self, name: str) -> int:
        value = self.document.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_SAMPLES:
            self.refuse(name, f"must be a whole number of 1…{_MAX_SAMPLES}")
            return 0
        return value

    def number(self, name: str, *, most: float, needed: bool = True) -> float | None:
        value = self.document.get(name)
        if value is None and not needed:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or not 0 <= value <= most
        ):
            self.refuse(name, f"must be a number of 0…{most:g}")
            return None
        return float(value)


def _problem(path: str, rule: str, *, hint: str = "", value: object = None) -> Problem:
    shown = "" if value is None else repr(value)[:60]
    return Problem(place="heartbeat", path=path, value=shown, rule=rule, hint=hint)


def match(
    heartbeat: ForeignHeartbeat, lines: Iterable[Line], agents: Mapping[VantageId, Locality]
) -> LineId | tuple[LineId, ...]:
    """The one line the heartbeat speaks of; or all that it may mean, for its sender to say which (none: empty).

    A line is meant when its endpoint is the target and the agent may speak for it: the line has no origin, or the origin
    is the agent's zone. `agents` are those known, by the document or by having joined. The `line` key decides by itself,
    among the lines that the agent may speak for; then a target that is a name in the document is no obstacle.
    """
    locality = agents.get(heartbeat.agent, Locality())
    own = [line for line in lines if line.origin in {"", locality.zone}]
    if heartbeat.line is not None:
        named = tuple(line.id for line in own if line.id == heartbeat.line and _may_be(line, heartbeat.target))
        return named[0] if named else ()
    found = tuple(line.id for line in own if _address(line.endpoint.host) == heartbeat.target)
    return found[0] if len(found) == 1 else found


def _may_be(line: Line, target: str) -> bool:
    """Whether a line may have this target: its address, or a name that only a resolver could tell."""
    address = _address(line.endpoint.host)
    return address in {"", target}


def _address(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


def reading(heartbeat: ForeignHeartbeat) -> Reading:
    """The heartbeat as evidence: rates times samples, rounded; rounds, jitter and what came since the last one unknown.

    `avg_rtt_ms` is the EWMA, which the source document itself calls avg. Rates of loss have the sample count as their
    denominator, for want of one of their own.
    """
    late = _of(heartbeat.timeouts, heartbeat.samples)
    answered = heartbeat.samples - late
    return Reading(
        kind=heartbeat.kind,
        counts=Counts(ok=answered, late=late),
        sent=heartbeat.samples,
        lost=_of(heartbeat.loss, heartbeat.samples),
        answered=answered,
        ewma_us=_us(heartbeat.average_ms),
        p95_us=_us(heartbeat.p95_ms),
        quality=1,
    )


def _of(rate: float, samples: int) -> int:
    """Half up, so that the same figure gives the same count everywhere."""
    return min(samples, math.floor(rate * samples + 0.5))


def _us(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * 1_000)
