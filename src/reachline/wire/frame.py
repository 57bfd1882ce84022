"""Frames between agent and center: msgpack of tagged structs, versioned by `Hello`. Refuses to know what they mean.

Unknown fields are skipped (a newer minor), another major is refused by name, a malformed frame is `RemoteProtocolError`.
The first frame each way is a Hello (agent) and a Welcome (center).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from reachline.errors import RemoteProtocolError
from reachline.model import Kind, Reading
from reachline.wire.figures import wrong, wrong_doubt
from reachline.wire.size import MAX_FRAME

__all__ = [
    "MAX_FRAME",
    "MOST_TEXT",
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
    "Mesh",
    "MeshReport",
    "Pacing",
    "Peer",
    "Phases",
    "Plan",
    "Ports",
    "ProbePlan",
    "Report",
    "Vital",
    "Welcome",
    "decode",
    "encode",
    "features_of",
    "kinds_in",
]

PROTOCOL: Final = (1, 0)
_UNSAID: Final = (1, 0)
"""What a Hello or a Welcome speaks that does not say: a default is not written, so this one stays as it is for ever."""
MOST_TEXT: Final = 300
"""Characters of any text in a frame but a target's or an option's: a center ends the stream of who sends more."""
SLICE: Final = 100
"""Lines a heartbeat part carries: no part holds a loop for more than a millisecond."""


class Hello(msgspec.Struct, tag="hello", frozen=True, kw_only=True, omit_defaults=True):
    """An agent introduces itself. `boot` is new at each start: sequences begin again with it."""

    protocol: tuple[int, int] = _UNSAID
    release: str
    features: tuple[str, ...] = ()
    agent: str
    boot: str
    tenant: str = "default"
    locality: tuple[str, str, str] = ("", "", "")
    sources: tuple[str, ...] = ()
    token: str = ""
    mesh: str = ""
    """Where it answers other agents, `host:port` as bound; empty: nowhere yet."""


class Welcome(msgspec.Struct, tag="welcome", frozen=True, kw_only=True, omit_defaults=True):
    """The center accepts. `refused` set: it does not, and says why; the stream ends.

    `final`: no waiting mends that. Else the agent comes again, as it does to a center that is away.
    """

    protocol: tuple[int, int] = _UNSAID
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
    slow_us: int = 0
    """An answer above this counts as slow (the line's degraded RTT limit)…"""
    crawl_us: int = 0
    """…and above this as crawling (its failed one); 0: nothing does, as for a center that says none."""


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
    sources: tuple[str, ...] = ()
    """Own addresses of the agent, or a word (`doors.addresses`), where its own options say none."""


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


class Ports(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was found by connects from source ports drawn evenly: which of the equal paths behind a line is dead."""

    dead: int
    """Ports that lead nowhere…"""
    tried: int
    """…of so many."""
    parts: int = 0
    """One path of so many is dead; 0: not known, or not yet."""
    bucket: int | None = None
    """Dead are ports p with (p >> shift) % parts == bucket; None: they show no pattern."""
    shift: int = 0


class Peer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Another agent to measure the way to: where it answers, and the key to ask it by."""

    agent: str
    address: str
    key: bytes


class Mesh(msgspec.Struct, tag="mesh", frozen=True, kw_only=True, omit_defaults=True):
    """The agent's part in the mesh; replaces the last one whole. Said only to agents whose features name `mesh`."""

    key: bytes = b""
    """By which it answers; empty: it answers nobody."""
    listen: str = ""
    """Where the document says that it is reached; empty: it answers where its own options said, or not at all."""
    interval_ms: int = 200
    peers: tuple[Peer, ...] = ()


class Phases(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the time of one attempt went; absent: it did not get there. They do not overlap; the rest of `total_us` is what
    followed the first byte, and the agent's own overhead.
    """

    resolve_us: int | None = None
    connect_us: int | None = None
    proxy_us: int | None = None
    """From the first proxy to the last one's word that the target is reached."""
    tls_us: int | None = None
    first_us: int | None = None
    """Request -> first byte of the answer."""
    total_us: int | None = None


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
    interval_ms: int = 0
    """Of rounds now, by what is known of the line and of the agent's rate; 0: not told."""
    ports: Ports | None = None
    """Where a dead path among equal ones shows."""
    phases: Phases | None = None
    """Of the newest attempt, where its kind has any."""


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line, one probe kind: the judge's reading and people's detail."""

    line: str
    reading: Reading
    detail: Detail = Detail()
    more: tuple[int, ...] = ()
    """On the way only: what a reading holds beyond the first release's fields. A center of that release passes over it, where a
    longer reading would cost it the whole frame; who knows fewer of them than were sent takes those it knows.
    """


class MeshReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent found out about the ways to one other and back, over some minutes. Never evidence for the judge."""

    peer: str
    silent_ms: int | None = None
    """Since its last answer; None: it never answered."""
    asked_ms: int | None = None
    """Since its last question came here; None: none came. What arrives although no answer does tells which way is dead."""
    error: str = ""
    """Why nothing can be sent to it, in words."""
    sent: int = 0
    forward_lost: int = 0
    replied: int = 0
    reverse_lost: int = 0
    rtt_us: int | None = None
    forward_rise_us: int | None = None
    reverse_rise_us: int | None = None
    loss: int = 0
    """Which way it is certain of (`core.direction.Way`): 0 none, 1 forward, 2 reverse, 3 both…"""
    delay: int = 0
    """…and the same of delay."""
    drift_ppb: int | None = None
    stepped: bool = False


class Vital(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing out of the ordinary on the agent's host, by a name of `core.vitals`. Advice for people, never evidence."""

    name: str
    where: str = ""
    """The interface or processor."""
    value: int
    whole: int = 0
    """Of how many, where that is known."""
    over_ms: int = 0
    """The time it was counted over; 0: it is so now."""


class Pacing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an agent kept its own limits; what it left out was its own doing, not a line's."""

    rate_milli: int
    """Attempts in 1000 s that all its lines ask for now, as stretched."""
    stretch_milli: int = 1_000
    """By how much all intervals are stretched, in 1/1000."""
    skipped: dict[str, int] = {}
    """Rounds left out since it began, by cause (`late`, `overlap`, `network`, `source`, `ports`)."""
    shed: int = 0
    """Attempts left out since it began, for too many were under way."""
    limit: str = ""
    """The bucket that kept most rounds back since the last heartbeat, in words."""


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
    mesh: tuple[MeshReport, ...] = ()
    """Of all others it measures the way to, in the first part of a round; no news where it is empty."""
    doubts: tuple[str, ...] = ()
    """Why the agent doubts itself, in words."""
    vitals: tuple[Vital, ...] = ()
    """Of its host, in the first part of a round: what was out of the ordinary since the last."""
    pacing: Pacing | None = None
    """In the first part of a round."""


class Ack(msgspec.Struct, tag="ack", frozen=True, kw_only=True):
    """Every part up to `sequence` of this boot is in the journal."""

    sequence: int


class Bye(msgspec.Struct, tag="bye", frozen=True, kw_only=True, omit_defaults=True):
    """A clean end, with its reason."""

    reason: str = ""


Frame = Hello | Welcome | Plan | Hint | Mesh | Heartbeat | Ack | Bye

_FIRST_KINDS: Final = frozenset({Kind.TCP, Kind.HTTP, Kind.TLS, Kind.DNS, Kind.ICMP})
"""What an agent knows that does not say: kinds became features with the sixth."""
_KIND: Final = "kind."


def features_of(kinds: Iterable[Kind]) -> tuple[str, ...]:
    """Features of a Hello that say which kinds the agent can probe: no others may stand in its plan."""
    return tuple(f"{_KIND}{kind.value}" for kind in kinds)


def kinds_in(features: Iterable[str]) -> frozenset[Kind]:
    """The kinds that `features` name, as far as they are known here."""
    said = {feature.removeprefix(_KIND) for feature in features if feature.startswith(_KIND)}
    return frozenset(kind for kind in Kind if kind.value in said) if said else _FIRST_KINDS


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Frame)


_FIRST_FIELDS: Final = 18
"""Fields of a reading in the first release: an array on the wire, which must not get longer."""


def encode(frame: Frame) -> bytes:
    """The frame as bytes."""
    if isinstance(frame, Heartbeat) and frame.reports:
        frame = msgspec.structs.replace(frame, reports=tuple(map(_parted, frame.reports)))
    return _ENCODER.encode(frame)


def _parted(report: Report) -> Report:
    """As it travels."""
    first: Any = report.reading[:_FIRST_FIELDS]
    more: Any = report.reading[_FIRST_FIELDS:]
    return Report(line=report.line, reading=first, detail=report.detail, more=more if any(more) else ())


def _joined(report: Report) -> Report:
    """As it is."""
    if not report.more:
        return report
    known: Any = (*report.reading[:_FIRST_FIELDS], *report.more)
    reading = Reading(*known[: len(Reading._fields)])
    return Report(line=report.line, reading=reading, detail=report.detail)


def decode(data: bytes) -> Frame:
    """The frame in `data`; RemoteProtocolError names the field that is wrong."""
    if len(data) > MAX_FRAME:
        raise RemoteProtocolError(f"frame of {len(data)} bytes, at most {MAX_FRAME} are taken")
    try:
        found = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"malformed frame: {error}") from error
    if isinstance(found, Heartbeat):
        if any(report.more for report in found.reports):
            found = msgspec.structs.replace(found, reports=tuple(map(_joined, found.reports)))
        _check(found)
    return found


def _check(found: Heartbeat) -> None:
    if problem := wrong_doubt(found.doubt):
        raise RemoteProtocolError(f"malformed frame: {problem}")
    for report in found.reports:
        if problem := wrong(report.reading):
            raise RemoteProtocolError(f"malformed frame: {report.line[:MOST_TEXT]}: {problem}")
