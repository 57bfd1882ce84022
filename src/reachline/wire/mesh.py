"""Mesh datagrams between two agents, and what each side counts. Pure: no socket, no clock, nothing that waits.

A probe and its reply are of one size, so nothing is amplified. Both carry a keyed digest: the center gives each agent its own key,
and each other agent the key that is derived from that one and its own name; so an agent can speak for itself alone. What is not
exactly as it should be is dropped without an answer, and the reason is counted.

    0  "RLM" version kind ...  16 bytes of head: magic, version, kind (1 probe, 2 reply), nothing, sender
   16  session sequence sent   who asks when, by the asking agent's clock (us)
   36  received replied        by the answering agent's clock (us)
   52  birth span got replies  since when it counts, and how many: numbers seen, distinct arrivals, replies that left
   72  digest                  blake2b of all before

Known gap: a datagram that is caught, held back and let go is a delay, to us as to everybody.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import OrderedDict, deque
from enum import StrEnum
from typing import Final, NamedTuple

from reachline.core.direction import Interval

__all__ = [
    "KEY",
    "LAST",
    "SIZE",
    "VERSION",
    "Answering",
    "Asking",
    "Drop",
    "Probe",
    "Reply",
    "identity",
    "key_of",
    "pack_probe",
    "pack_reply",
    "pair_key",
    "read_probe",
    "read_reply",
    "reply_session",
]

VERSION: Final = 1
_MAGIC: Final = b"RLM"
_PROBE, _REPLY = 1, 2
_BODY: Final = struct.Struct("!3sBB3xQQIQqqQIII")
_DIGEST: Final = 16
SIZE: Final = _BODY.size + _DIGEST
"""Bytes of every datagram, either way."""
KEY: Final = 32
"""Bytes of a key."""
LAST: Final = 2**32 - 1
"""The highest sequence: after it a new session begins, so numbers never wrap."""
_RECENT: Final = 64
"""Sequences behind the highest that may still arrive: at 50 a second more than a second of reordering."""


class Drop(StrEnum):
    """Why a datagram got no answer."""

    MALFORMED = "malformed"
    VERSION = "version"
    FORGED = "forged"
    REPLAYED = "replayed"
    """Seen before, or of a session that is over."""
    FLOOD = "flood"
    """More than an honest agent sends."""


class Probe(NamedTuple):
    """A question. `sender` is `identity` of the asking agent's name; sessions of one agent rise."""

    sender: int
    session: int
    sequence: int
    sent_us: int


class Reply(NamedTuple):
    """An answer: the question, when it came and left by the answering agent's clock, and that agent's counts."""

    sender: int
    session: int
    sequence: int
    sent_us: int
    received_us: int
    replied_us: int
    birth: int
    """Names one count: another birth, other numbers."""
    span: int
    """Sequences from the first that arrived to the highest."""
    got: int
    """Distinct ones of them that arrived."""
    replies: int
    """Replies that left, this one included: its number."""


def identity(agent: str) -> int:
    """An agent's name in eight bytes."""
    return int.from_bytes(hashlib.blake2b(agent.encode(), digest_size=8).digest())


def key_of(secret: bytes, agent: str) -> bytes:
    """The key an agent answers by, from the center's secret."""
    return hashlib.blake2b(agent.encode(), key=secret, digest_size=KEY).digest()


def pair_key(key: bytes, sender: int) -> bytes:
    """The key by which one sender may ask the agent that answers by `key`."""
    return hashlib.blake2b(sender.to_bytes(8), key=key, digest_size=KEY).digest()


def pack_probe(probe: Probe, key: bytes) -> bytes:
    """The datagram, as long as its reply."""
    return _sealed(_BODY.pack(_MAGIC, VERSION, _PROBE, *probe, 0, 0, 0, 0, 0, 0), key)


def pack_reply(reply: Reply, key: bytes) -> bytes:
    """The datagram."""
    return _sealed(_BODY.pack(_MAGIC, VERSION, _REPLY, *reply), key)


def _sealed(body: bytes, key: bytes) -> bytes:
    return body + hashlib.blake2b(body, key=key, digest_size=_DIGEST).digest()


def _is_sealed(data: bytes, key: bytes) -> bool:
    body = data[: _BODY.size]
    return hmac.compare_digest(hashlib.blake2b(body, key=key, digest_size=_DIGEST).digest(), data[_BODY.size :])


def _checked(data: bytes, kind: int) -> Drop | None:
    """What is wrong with it at first sight."""
    if len(data) != SIZE or data[:3] != _MAGIC:
        return Drop.MALFORMED
    if data[3] != VERSION:
        return Drop.VERSION
    return None if data[4] == kind else Drop.MALFORMED


def reply_session(data: bytes) -> int | Drop:
    """The session that a datagram claims to be a reply in: whose key to try."""
    if wrong := _checked(data, _REPLY):
        return wrong
    session: int = _BODY.unpack_from(data)[4]
    return session


def read_reply(data: bytes, key: bytes) -> Reply | Drop:
    """The reply in a datagram."""
    if wrong := _checked(data, _REPLY):
        return wrong
    return Reply(*_BODY.unpack_from(data)[3:]) if _is_sealed(data, key) else Drop.FORGED


def read_probe(data: bytes, key: bytes) -> Probe | Drop:
    """The probe in a datagram; `key` is that of the agent that answers."""
    if wrong := _checked(data, _PROBE):
        return wrong
    probe = Probe(*_BODY.unpack_from(data)[3:7])
    return probe if _is_sealed(data, pair_key(key, probe.sender)) else Drop.FORGED


class _Seen:
    """Which of rising numbers came already: the highest, and the 64 before it. Older ones count as seen."""

    __slots__ = ("_bits", "highest")

    def __init__(self) -> None:
        self.highest = 0
        self._bits = 0

    def is_new(self, number: int) -> bool:
        """Whether it comes for the first time, which is remembered."""
        ahead = number - self.highest
        if ahead > 0:
            self._bits = ((self._bits << min(ahead, _RECENT)) | 1) & (2**_RECENT - 1)
            self.highest = number
            return True
        if -ahead >= _RECENT or self._bits >> -ahead & 1:
            return False
        self._bits |= 1 << -ahead
        return True


_SENDERS: Final = 1_024
"""Agents counted for at once: four times as many as a plan names."""
_IDLE_US: Final = 60_000_000
"""A sender silent for so long may begin with a lower session: its wall clock, which sessions begin from, was set back."""
_RATE: Final = 100
"""Probes a second of one sender: twice the shortest interval of a plan…"""
_BURST: Final = 500
"""…and as many at once as a network that held them for five seconds lets go."""


class _Counted:
    """What one sender's session came to so far."""

    __slots__ = ("birth", "first", "full_us", "got", "last_us", "replies", "seen", "session")

    def __init__(self, session: int, first: int, birth: int) -> None:
        self.session, self.first, self.birth = session, first, birth
        self.seen = _Seen()
        self.got = self.replies = 0
        self.full_us = self.last_us = 0
        """When its allowance is full again, by the rate; and when it was last heard."""


class Answering:
    """The side that is asked. Written by its responder."""

    def __init__(self) -> None:
        self._senders: OrderedDict[int, _Counted] = OrderedDict()
        self._birth = 0

    def __len__(self) -> int:
        return len(self._senders)

    def answer(self, probe: Probe, at_us: int, now_us: int) -> Reply | Drop:
        """The reply to a probe that arrived at `at_us`, its `replied_us` still 0."""
        counted = self._counted(probe, now_us)
        if counted is None or probe.sequence < counted.first:
            return Drop.REPLAYED
        full = max(counted.full_us, now_us) + 1_000_000 // _RATE
        if full > now_us + _BURST * 1_000_000 // _RATE:
            return Drop.FLOOD
        if not counted.seen.is_new(probe.sequence):
            return Drop.REPLAYED
        counted.full_us, counted.last_us = full, now_us
        counted.got += 1
        counted.replies += 1
        span = counted.seen.highest - counted.first + 1
        return Reply(*probe, at_us, 0, counted.birth, span, counted.got, counted.replies)

    def asked_us(self, sender: int, now_us: int) -> int | None:
        """Since a sender's last probe, or None where none came."""
        known = self._senders.get(sender)
        return None if known is None else max(now_us - known.last_us, 0)

    def forget(self, sender: int | None = None) -> None:
        """Datagrams (of one sender) were lost here, not on the way: counts begin anew, and nobody takes that for loss."""
        if sender is None:
            self._senders.clear()
        else:
            self._senders.pop(sender, None)

    def _counted(self, probe: Probe, now_us: int) -> _Counted | None:
        """The session the probe belongs to, begun where it is a newer one; None where it is over."""
        known = self._senders.get(probe.sender)
        if known is not None and known.session == probe.session:
            self._senders.move_to_end(probe.sender)
            return known
        if known is not None and probe.session < known.session and now_us - known.last_us < _IDLE_US:
            return None
        # One after another, and no two the same: also where a clock stands still between two.
        self._birth = max(self._birth + 1, now_us)
        counted = self._senders[probe.sender] = _Counted(probe.session, probe.sequence, self._birth)
        self._senders.move_to_end(probe.sender)
        if len(self._senders) > _SENDERS:
            self._senders.popitem(last=False)
        return counted


class _Totals(NamedTuple):
    """Sums since the birth of the other side's count."""

    sent: int = 0
    forward_lost: int = 0
    replied: int = 0
    reverse_lost: int = 0

    def minus(self, other: _Totals) -> _Totals:
        return _Totals(*(one - two for one, two in zip(self, other, strict=True)))

    def plus(self, other: _Totals) -> _Totals:
        return _Totals(*(one + two for one, two in zip(self, other, strict=True)))


_BIRTHS: Final = 4
"""Counts of the other side that are over: a reply of one that comes late is dropped."""
_LATEST: Final = 2**52
"""Microseconds: a clock that ran for 140 years."""
_BLUR_US: Final = 2_000
"""The other agent cannot have held a probe for longer than we waited, but for stamps that are a clock's step off."""
_MOST: Final = 1_000
"""Round trips kept for an interval's median."""


_NONE: Final = Reply(*(0,) * len(Reply._fields))


class Asking:
    """The side that asks: one session with one agent. Written by its prober."""

    __slots__ = (
        "_back",
        "_before",
        "_birth",
        "_closed",
        "_forward",
        "_newest",
        "_over",
        "_reverse",
        "_round_trips",
        "_seen",
        "_sender",
        "sequence",
        "session",
    )

    def __init__(self, sender: int, session: int) -> None:
        self._sender, self.session = sender, session
        self.sequence = 0
        self._over: deque[int] = deque(maxlen=_BIRTHS)
        self._before = _Totals()
        """Of the births that ended within this interval."""
        self._forward: int | None = None
        self._reverse: int | None = None
        self._round_trips: list[int] = []
        self._birth = 0
        self._seen = _Seen()
        self._back = 0
        """Distinct replies of this birth that came back."""
        self._newest = _NONE
        self._closed = _Totals()
        """What it came to when the last interval ended."""

    def probe(self, now_us: int) -> Probe:
        """The next question. Where it could not be sent at all, `unsent` takes it back."""
        self.sequence += 1
        return Probe(self._sender, self.session, self.sequence, now_us)

    def unsent(self) -> None:
        """The last question never left."""
        self.sequence -= 1

    @property
    def is_over(self) -> bool:
        """Whether the session has no number left."""
        return self.sequence >= LAST

    def heard(self, reply: Reply, at_us: int) -> bool:
        """A reply arrived; False where it is no news: seen before, of a count that is over, or one that cannot be true."""
        if reply.session != self.session or reply.birth in self._over or not self._is_possible(reply, at_us):
            return False
        if reply.birth != self._birth:
            self._reborn(reply.birth)
        is_newest = reply.replies > self._seen.highest
        if not self._seen.is_new(reply.replies):
            return False
        self._back += 1
        self._newest = reply if is_newest else self._newest
        self._time(reply, at_us)
        return True

    def close(self, at_ms: int, *, void: bool = False) -> Interval:
        """The interval until now; another begins."""
        totals = self._totals()
        sums = self._before.plus(totals.minus(self._closed))
        rtt = sorted(self._round_trips)[len(self._round_trips) // 2] if self._round_trips else None
        closed = Interval(at_ms, *sums, self._forward, self._reverse, rtt, void)
        self._closed, self._before = totals, _Totals()
        self._forward = self._reverse = None
        self._round_trips = []
        return closed

    def _is_possible(self, reply: Reply, at_us: int) -> bool:
        """What holds of every true reply, so that a peer that lies spoils no more than its own figures."""
        counts = 0 < reply.replies <= reply.got <= reply.span <= self.sequence and 0 < reply.sequence <= self.sequence
        times = 0 <= reply.received_us <= reply.replied_us <= _LATEST and reply.sent_us <= at_us
        held = reply.replied_us - reply.received_us
        return counts and times and reply.birth > 0 and held <= at_us - reply.sent_us + _BLUR_US

    def _totals(self) -> _Totals:
        newest = self._newest
        return _Totals(newest.span, newest.span - newest.got, newest.replies, newest.replies - self._back)

    def _time(self, reply: Reply, at_us: int) -> None:
        forward, reverse = reply.received_us - reply.sent_us, at_us - reply.replied_us
        self._forward = forward if self._forward is None else min(self._forward, forward)
        self._reverse = reverse if self._reverse is None else min(self._reverse, reverse)
        if len(self._round_trips) < _MOST:
            self._round_trips.append(max(forward + reverse, 0))

    def _reborn(self, birth: int) -> None:
        """The other side counts anew: what it counted before stands, what came after that is not known."""
        self._before = self._before.plus(self._totals().minus(self._closed))
        self._over.append(self._birth)
        self._begin(birth)

    def _begin(self, birth: int) -> None:
        self._birth = birth
        self._seen = _Seen()
        self._back = 0
        self._newest = _NONE
        self._closed = _Totals()
