"""Frames between agent and center: msgpack of tagged structs, versioned by `Hello`. Refuses to know what they mean.

Unknown fields are skipped (a newer minor), another major is refused by name, a malformed frame is `RemoteProtocolError`.
The first frame each way is a Hello (agent) and a Welcome (center).
"""

from __future__ import annotations

from typing import Final

import msgspec

from reachline.errors import RemoteProtocolError
from reachline.model import Kind, Reading

__all__ = [
    "MAX_FRAME",
    "PROTOCOL",
    "SLICE",
    "Ack",
    "Bye",
    "Connections",
    "Detail",
    "Frame",
    "Heartbeat",
    "Hello",
    "Hint",
    "LinePlan",
    "Plan",
    "ProbePlan",
    "Report",
    "Welcome",
    "decode",
    "encode",
]

PROTOCOL: Final = (1, 0)
MAX_FRAME: Final = 4 << 20
"""Bytes. A slice of 100 lines with all nine kinds and histograms is below 2 MiB; four leave room."""
SLICE: Final = 100
"""Lines a heartbeat part carries: no part holds a loop for more than a millisecond."""


class Hello(msgspec.Struct, tag="hello", frozen=True, kw_only=True, omit_defaults=True):
    """An agent introduces itself. `boot` is new at each start: sequences begin again with it."""

    protocol: tuple[int, int] = PROTOCOL
    release: str
    features: tuple[str, ...] = ()
    agent: str
    boot: str
    tenant: str = "default"
    locality: tuple[str, str, str] = ("", "", "")
    sources: tuple[str, ...] = ()
    token: str = ""


class Welcome(msgspec.Struct, tag="welcome", frozen=True, kw_only=True, omit_defaults=True):
    """The center accepts. `refused` set: it does not, and says why; the stream ends.

    `final`: no waiting mends that. Else the agent comes again, as it does to a center that is away.
    """

    protocol: tuple[int, int] = PROTOCOL
    release: str
    features: tuple[str, ...] = ()
    epoch: int
    refused: str = ""
    final: bool = False


class ProbePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One probe kind of one line. `options` are the kind's own (path, expect, server, name, verify…), by their setting's name."""

    kind: Kind
    interval_ms: int
    suspect_interval_ms: int
    timeout_ms: int = 1_000
    patience_ms: int = 3_000
    """How long to wait beyond the timeout, so that the tail is seen: a late answer is late, not lost."""
    burst: int = 1
    window: int = 200
    max_age_ms: int = 120_000
    options: dict[str, str | int | bool] = {}


class LinePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line to watch. `target` is a URL (`model.Endpoint` as text), `via` an outbound URL or `direct`."""

    line: str
    target: str
    via: str = "direct"
    source: str = ""
    interface: str = ""
    family: int = 0
    alpha_milli: int = 300
    probes: tuple[ProbePlan, ...] = ()
    groups: tuple[str, ...] = ()
    """What the line shares with others (provider, fibre, building): lines of one group may fail together."""
    mark: int = 0
    """SO_MARK that others' connections of this line carry; 0: none is known."""


class Plan(msgspec.Struct, tag="plan", frozen=True, kw_only=True, omit_defaults=True):
    """All that an agent must do; replaces the last plan whole. Windows of lines that stay are kept."""

    number: int
    heartbeat_ms: int = 10_000
    lines: tuple[LinePlan, ...] = ()


class Hint(msgspec.Struct, tag="hint", frozen=True, kw_only=True, omit_defaults=True):
    """Lines the center holds for not healthy: probed at the suspect interval. Replaces the last hint whole."""

    suspects: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    """Lines whose breaker is open: out of traffic, probed at their usual interval, and judged anew once they answer."""


class Connections(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the kernel tells of others' connections over a line, beside their loss and round trip: medians over all of them."""

    count: int
    deviation_us: int | None = None
    """Of the round trip, as the kernel smooths it (rttvar)…"""
    lowest_us: int | None = None
    """…and the shortest of the last minutes."""
    delivery: int | None = None
    """Bytes a second that arrived, the fastest connection's."""


class Detail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """For people and reports, never for the judge. `codes` counts 1xx…5xx, `histogram` is `core.histogram` bytes."""

    p95_answered_us: int | None = None
    last_us: int | None = None
    clock: int = 2
    codes: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    histogram: bytes = b""
    handshake_lost: int = 0
    address: str = ""
    error: str = ""
    """The newest failure in words, e.g. `name does not resolve`."""
    skipped: int = 0
    lateness_us: int = 0
    certificate_days: int | None = None
    connections: Connections | None = None
    """Of kind passive only."""


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line, one probe kind: the judge's reading and people's detail."""

    line: str
    reading: Reading
    detail: Detail = Detail()


class Heartbeat(msgspec.Struct, tag="heartbeat", frozen=True, kw_only=True, omit_defaults=True):
    """Part `part[0]` of `part[1]` of one round of reports. `urgent`: sent for a change, not because it was time."""

    agent: str
    boot: str
    sequence: int
    part: tuple[int, int] = (1, 1)
    sent_ms: int = 0
    """The agent's monotonic clock, ms since its start: for order and intervals, never compared with ours."""
    doubt: int = 0
    urgent: bool = False
    replayed: bool = False
    """From the backlog of a time without a center: history, no evidence for now."""
    reports: tuple[Report, ...] = ()


class Ack(msgspec.Struct, tag="ack", frozen=True, kw_only=True):
    """Every part up to `sequence` of this boot is in the journal."""

    sequence: int


class Bye(msgspec.Struct, tag="bye", frozen=True, kw_only=True, omit_defaults=True):
    """A clean end, with its reason."""

    reason: str = ""


Frame = Hello | Welcome | Plan | Hint | Heartbeat | Ack | Bye

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """The frame as bytes."""
    return _ENCODER.encode(frame)


def decode(data: bytes) -> Frame:
    """The frame in `data`; RemoteProtocolError names the field that is wrong."""
    if len(data) > MAX_FRAME:
        raise RemoteProtocolError(f"frame of {len(data)} bytes, at most {MAX_FRAME} are taken")
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"malformed frame: {error}") from error
