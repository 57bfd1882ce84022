"""The two sides of the mesh, and what each counts. Pure: no socket, no clock, nothing that waits.

The side that is asked counts which numbers arrive and numbers its replies; the side that asks makes exact losses of each way from
that, and the lowest delays. Numbers never wrap: a session ends with the last one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, NamedTuple

from reachline.core.direction import Interval
from reachline.wire.mesh import Drop, Probe, Reply

__all__ = ["LAST", "Answering", "Asking"]

LAST: Final = 2**32 - 1
"""The highest sequence: after it a new session begins, so numbers never wrap."""
_RECENT: Final = 64
"""Sequences behind the highest that may still arrive: at 50 a second more than a second of reordering."""


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

    def heard(self, reply: Reply, at_us: int, *, is_timed: bool = True) -> bool:
        """A reply arrived; False where it is no news: seen before, of a count that is over, or one that cannot be true.

        Not `is_timed`: nobody knows when it came, so it is counted and no more.
        """
        if reply.session != self.session or reply.birth in self._over or not self._is_possible(reply, at_us):
            return False
        if reply.birth != self._birth:
            self._reborn(reply.birth)
        is_newest = reply.replies > self._seen.highest
        if not self._seen.is_new(reply.replies):
            return False
        self._back += 1
        self._newest = reply if is_newest else self._newest
        if is_timed:
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
