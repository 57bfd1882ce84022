"""What a bad network does to packets, as values: for each address and each direction its own delay, jitter, loss, burst loss,
rate, black hole, and black-holed flow buckets. Pure: knows no device and no clock; `reachline.testing.impair` drives it.

Chance is drawn from one generator for each address and direction, so the n-th packet of a line meets the same luck in every
run with the same seed, whatever other lines carry.
"""

from __future__ import annotations

import heapq
import random
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from reachline.model import Ratio, Seconds

__all__ = ["Bottle", "By", "Counted", "Held", "Profile", "Tally", "Ways", "bucket"]

TCP, UDP = 6, 17
"""Protocols with ports; all else is one flow."""
_PORTS: Final = struct.Struct("!HH")
_FLOW: Final = struct.Struct("!BHH")
_SYN: Final = 0x02


class By(StrEnum):
    """What a flow's bucket comes from: CRC-32 over protocol and ports, as routers hash, or our own port alone, modulo."""

    FLOW = "flow"
    PORT = "port"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What packets of one address suffer in one direction. Packets of a line keep their order, whatever their delay."""

    delay: Seconds = 0.0
    jitter: Seconds = 0.0
    """Delay moves by up to this, either way."""
    loss: Ratio = 0.0
    burst: tuple[Ratio, Ratio, Ratio] | None = None
    """Gilbert-Elliott: from good to bad, from bad to good, loss while bad."""
    rate: float = 0.0
    """Bytes a second, with an endless queue; 0: no bound."""
    hole: bool = False
    buckets: int = 0
    """Into how many equal paths flows are hashed; 0: they are not."""
    bad: tuple[int, ...] = ()
    """Buckets that are black holes: all packets of their flows vanish."""
    by: By = By.FLOW

    def __post_init__(self) -> None:
        for name in ("delay", "jitter", "rate", "buckets"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        for share in (self.loss, *(self.burst or ())):
            if not 0 <= share <= 1:
                raise ValueError(f"a loss must be a share, 0…1, not {share}")
        if any(not 0 <= number < self.buckets for number in self.bad):
            raise ValueError(f"bad buckets {self.bad} must be below {self.buckets}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """One address: what its packets suffer on the way there, and on the way back."""

    forward: Profile = Profile()
    reverse: Profile = Profile()


def both(profile: Profile | Ways) -> Ways:
    """A profile alone is meant for both directions."""
    return profile if isinstance(profile, Ways) else Ways(forward=profile, reverse=profile)


class Tally(NamedTuple):
    """What one direction of one address carried: all packets that came, those of them that were dropped; handshakes apart."""

    packets: int = 0
    dropped: int = 0
    size: int = 0
    """Bytes of all packets that came, IP headers included."""
    syns: int = 0
    """SYNs on the way there, SYN-ACKs on the way back, repetitions included…"""
    syns_dropped: int = 0
    """…and those of them that were dropped."""


class Counted(NamedTuple):
    """The truth about one address since the box began."""

    forward: Tally = Tally()
    reverse: Tally = Tally()
    hurt: frozenset[int] = frozenset()
    """Our ports of TCP connects that lost a SYN, or every SYN-ACK so far: they had to ask again. What is lost once we have been
    answered (a repetition, as the peer does not know that yet) hurts no connect.
    """


class Flow(NamedTuple):
    """What the bottle reads of a packet: ports are ours and theirs, in either direction."""

    number: int
    protocol: int
    near_port: int
    far_port: int
    is_syn: bool


def bucket(protocol: int, near_port: int, far_port: int, buckets: int, by: By = By.FLOW) -> int:
    """The path of `buckets` equal ones that a flow takes, the same both ways."""
    if by is By.PORT:
        return near_port % buckets
    return zlib.crc32(_FLOW.pack(protocol, near_port, far_port)) % buckets


@dataclass(slots=True)
class _Way:
    """One address, one direction. Written by the bottle."""

    profile: Profile
    rng: random.Random
    bad: bool = False
    free: float = 0.0
    last: float = 0.0
    packets: int = 0
    dropped: int = 0
    size: int = 0
    syns: int = 0
    syns_dropped: int = 0

    def tally(self) -> Tally:
        return Tally(self.packets, self.dropped, self.size, self.syns, self.syns_dropped)


@dataclass(slots=True)
class _Line:
    forward: _Way
    reverse: _Way
    hurt: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    """Ports of ours that a SYN-ACK was let through to, after their newest SYN."""

    def lost(self, flow: Flow, *, near: bool) -> None:
        """A SYN or SYN-ACK was dropped."""
        if not near or flow.near_port not in self.answered:
            self.hurt.add(flow.near_port)

    def passed(self, flow: Flow, *, near: bool) -> None:
        """A SYN or SYN-ACK was let through."""
        if near:
            self.answered.add(flow.near_port)
        else:
            self.answered.discard(flow.near_port)


class Held(NamedTuple):
    """A packet on its way: due, in order of arrival, to the near side or not."""

    due: Seconds
    order: int
    near: bool
    packet: bytes


class Bottle:
    """Packets in, packets out later or never. Written by whoever owns the devices."""

    def __init__(self, profiles: Mapping[int, Profile | Ways], default: Profile | Ways, seed: int) -> None:
        self._lines = [_line(number, both(profiles.get(number, default)), seed) for number in range(256)]
        self._held: list[Held] = []
        self._count = 0

    def change(self, number: int, profile: Profile | Ways) -> None:
        """From now on; packets under way keep their time."""
        line, ways = self._lines[number], both(profile)
        line.forward.profile, line.reverse.profile = ways.forward, ways.reverse

    def counted(self, number: int) -> Counted:
        """What this address carried so far."""
        line = self._lines[number]
        return Counted(line.forward.tally(), line.reverse.tally(), frozenset(line.hurt))

    def take(self, packet: bytes, *, near: bool, now: Seconds) -> None:
        """A packet for the near side (else the far one) came out of a device; what is no packet of a line is left alone."""
        if (flow := _flow(packet, near=near)) is None:
            return
        line = self._lines[flow.number]
        way = line.reverse if near else line.forward
        way.packets += 1
        way.size += len(packet)
        way.syns += flow.is_syn
        if _is_lost(way, flow):
            self._drop(line, way, flow, near=near)
            return
        if flow.is_syn:
            line.passed(flow, near=near)
        self._count += 1
        heapq.heappush(self._held, Held(_due(way, len(packet), now), self._count, near, packet))

    def spilled(self, held: Held) -> None:
        """A packet that was let through found no room in its device: it is dropped all the same."""
        if flow := _flow(held.packet, near=held.near):
            line = self._lines[flow.number]
            self._drop(line, line.reverse if held.near else line.forward, flow, near=held.near)

    def _drop(self, line: _Line, way: _Way, flow: Flow, *, near: bool) -> None:
        way.dropped += 1
        if flow.is_syn:
            way.syns_dropped += 1
            line.lost(flow, near=near)

    def next_due(self) -> Seconds | None:
        """When the next packet leaves."""
        return self._held[0].due if self._held else None

    def release(self, now: Seconds) -> Iterator[Held]:
        """Packets that are due, in order."""
        while self._held and self._held[0].due <= now:
            yield heapq.heappop(self._held)


def _line(number: int, ways: Ways, seed: int) -> _Line:
    return _Line(
        _Way(ways.forward, random.Random(f"{seed}/{number}/forward")),
        _Way(ways.reverse, random.Random(f"{seed}/{number}/reverse")),
    )


def _flow(packet: bytes, *, near: bool) -> Flow | None:
    """The flow of an IPv4 or IPv6 packet; None for all else, and for what interfaces say to their neighbours."""
    size = len(packet)
    if size >= 20 and packet[0] >> 4 == 4:
        number, protocol, begin = packet[15 if near else 19], packet[9], (packet[0] & 15) * 4
        if packet[16] >= 224:
            return None  # multicast and broadcast
    elif size >= 40 and packet[0] >> 4 == 6:
        number, protocol, begin = packet[23 if near else 39], packet[6], 40
        if packet[8] == 0xFE or packet[24] >= 0xFE:
            return None  # link-local and multicast: router and group discovery
    else:
        return None
    if protocol not in (TCP, UDP) or size < begin + 8:
        return Flow(number, protocol, 0, 0, False)
    source, target = _PORTS.unpack_from(packet, begin)
    is_syn = protocol == TCP and size > begin + 13 and bool(packet[begin + 13] & _SYN)
    return Flow(number, protocol, target, source, is_syn) if near else Flow(number, protocol, source, target, is_syn)


def _is_lost(way: _Way, flow: Flow) -> bool:
    profile = way.profile
    if profile.hole or (profile.loss and way.rng.random() < profile.loss):
        return True
    if profile.bad and bucket(*flow[1:4], profile.buckets, profile.by) in profile.bad:
        return True
    if profile.burst is None:
        return False
    worsen, mend, loss = profile.burst
    way.bad = way.rng.random() >= mend if way.bad else way.rng.random() < worsen
    return way.bad and way.rng.random() < loss


def _due(way: _Way, size: int, now: Seconds) -> Seconds:
    profile = way.profile
    if profile.rate:
        now = way.free = max(now, way.free) + size / profile.rate
    due = now + profile.delay
    if profile.jitter:
        due += profile.jitter * way.rng.uniform(-1.0, 1.0)
    way.last = max(due, way.last)
    return way.last
