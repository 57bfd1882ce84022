"""What the connections of others tell of a line: differences between two looks at the kernel's table. Pure.

Segments sent and sent again have their own counts, whole; of how the connections fare a fair few are told each time, as
attempts: a connection whose data was confirmed is ok with its smoothed round trip, one that has waited in vain longer than
the timeout is late. Nothing sent is nothing said.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Iterable, Sequence
from statistics import median
from typing import Final, NamedTuple

from reachline.model import Seconds
from reachline.wire.frame import Connections
from reachline.wire.sockdiag import CONNECTING, Sock

__all__ = ["SPREAD", "Flows", "Heard", "Packets"]

SPREAD: Final = 20
"""Connections told each time as attempts: a window of 200 then holds ten looks however many there are."""
_ENOUGH: Final = 2_000
"""Segments that tell a loss of 1 % to a quarter of it: older ones are left out once the newer are as many…"""
_ABANDONED: Final[Seconds] = 10.0
"""A connection that has waited this long while another of its line got on has lost its peer, not its way: the kernel goes on
for a quarter of an hour, and would have one dead server behind a balancer condemn the line."""
_FIRST_WAIT: Final[Seconds] = 1.0
"""Before a SYN is sent again (RFC 6298), at least."""
_SPAN: Final[Seconds] = 20.0
"""…and lie this far apart, so that one look does not stand for all: two default heartbeats."""


class Heard(NamedTuple):
    """What came of a line's connections since the look before."""

    sent: int = 0
    lost: int = 0
    ends: tuple[int | None, ...] = ()
    """Attempts: the round trip of a connection whose data was confirmed, None of one that waits in vain."""
    connections: Connections = Connections(count=0)


_NOTHING: Final = Heard()


class _Flow:
    """One connection as it was last seen."""

    __slots__ = ("acked", "look", "lost", "sent", "since", "tried")

    def __init__(self, sent: int, lost: int, acked: int) -> None:
        self.sent, self.lost, self.acked = sent, lost, acked
        self.since: Seconds | None = None
        """From when on it was seen to wait in vain."""
        self.look = 0
        """The newest look it was in."""
        self.tried: Seconds = 0.0
        """For how long at least it has been waiting for its first answer."""


class Flows:
    """A line's connections by their cookie: `take` for each piece of a look, then `heard`. One writer."""

    def __init__(self, timeout: Seconds) -> None:
        self._timeout = timeout
        self._flows: dict[int, _Flow] = {}
        self._looks = self._sent = self._lost = 0
        self._knows_all = False
        """Whether all that the line has was seen at the look before: then what is new began since."""
        self._moved: Seconds = -math.inf
        """When one of them last got on."""
        self._ends: list[int | None] = []
        self._figures: list[tuple[int, int, int]] = []
        self._count = 0

    def take(self, socks: Iterable[Sock], now: Seconds, *, sure: Container[int]) -> None:
        """Some of a look's connections. One that was not there at the look before began in between, so all of it is new; at
        the first look, and after `widened`, nobody knows when it did. What is not in `sure` yet is only remembered.
        """
        for sock in socks:
            flow = self._known(sock)
            flow.look = self._looks
            flow.tried = sock.pending * _FIRST_WAIT if sock.state == CONNECTING and sock.cookie in sure else 0.0
            if sock.cookie not in sure:
                continue
            sent, lost = _totals(sock)
            more, missing = max(0, sent - flow.sent), max(0, lost - flow.lost)
            flow.sent, flow.lost = flow.sent + more, flow.lost + missing
            end = self._end(flow, sock, now)
            self._count += 1
            if not self._is_abandoned(flow, now):
                self._sent, self._lost = self._sent + more, self._lost + missing
                self._ends += end
            if sock.rtt_us:
                self._figures.append((sock.deviation_us, sock.lowest_us, sock.delivery))

    def heard(self, *, whole: bool = True) -> Heard:
        """What the look brought; it is over with this. `whole` False: what is missing in it need not be gone."""
        if not self._flows:
            # Of ten thousand lines most have no connections.
            self._looks, self._knows_all = self._looks + 1, True
            return _NOTHING
        if whole:
            gone = [cookie for cookie, flow in self._flows.items() if flow.look != self._looks]
            # Whoever gave up before it was answered waited in vain: programs of little patience are never seen to wait for long.
            self._ends += [None for cookie in gone if self._flows.pop(cookie).tried >= self._timeout]
        found = Heard(self._sent, min(self._lost, self._sent), _few(self._ends, self._looks), self._connections())
        self._looks, self._knows_all = self._looks + 1, True
        self._sent = self._lost = self._count = 0
        self._ends, self._figures = [], []
        return found

    def widened(self) -> None:
        """From the next look on other connections are the line's too."""
        self._knows_all = False

    def _connections(self) -> Connections:
        if not self._figures:
            return Connections(count=self._count)
        deviations, lowest, delivery = zip(*self._figures, strict=True)
        return Connections(
            count=self._count,
            deviation_us=round(median(deviations)),
            lowest_us=round(median(lowest)),
            delivery=max(delivery),
        )

    def _known(self, sock: Sock) -> _Flow:
        flow = self._flows.get(sock.cookie)
        if flow is None:
            flow = _Flow(0, 0, 0) if self._knows_all else _Flow(*_totals(sock), sock.acked)
            self._flows[sock.cookie] = flow
        return flow

    def _end(self, flow: _Flow, sock: Sock, now: Seconds) -> tuple[int | None, ...]:
        """Its round trip where it got on, None where it waits in vain too long; nothing where it has nothing to tell."""
        moved, flow.acked = sock.acked > flow.acked, max(sock.acked, flow.acked)
        if moved:
            flow.since, self._moved = None, now
            return (sock.rtt_us,) if sock.rtt_us else ()
        if not (sock.pending and (sock.unacked or sock.state == CONNECTING)):
            flow.since = None
            return ()
        flow.since = now if flow.since is None else flow.since
        return (None,) if now - flow.since >= self._timeout else ()

    def _is_abandoned(self, flow: _Flow, now: Seconds) -> bool:
        return flow.since is not None and now - flow.since >= _ABANDONED and self._moved > flow.since


def _totals(sock: Sock) -> tuple[int, int]:
    """Segments sent and lost since it was opened: its SYN and its data; what was sent again counts as lost. A SYN that nobody
    has answered yet is neither sent nor lost: a dead line would be heard of all the time, and lose nothing.

    Where a path is seen to change the order, segments are sent again that had only been overtaken; the peer then says that
    it got them twice, and those are taken off.
    """
    lost = sock.retransmitted - (sock.duplicates if sock.reordered else 0)
    lost = max(0, lost)
    return lost if sock.state == CONNECTING else 1 + max(sock.segments, lost), lost


def _few(ends: Sequence[int | None], turn: int) -> tuple[int | None, ...]:
    """At most `SPREAD` of them, evenly, others each turn."""
    step = -(-len(ends) // SPREAD) or 1
    return tuple(ends[turn % step :: step])


class Packets:
    """Segments of the newest looks: enough of them, over long enough, none older than `age`. One writer."""

    def __init__(self, age: Seconds) -> None:
        self._age = age
        self._looks: deque[tuple[Seconds, int, int]] = deque()
        self.sent = self.lost = 0

    def add(self, now: Seconds, sent: int, lost: int) -> None:
        """What one look found."""
        if sent:
            self._looks.append((now, sent, lost))
            self.sent, self.lost = self.sent + sent, self.lost + lost
        self.age_out(now)

    def age_out(self, now: Seconds) -> None:
        """Drop what is too old, or no longer needed."""
        while self._looks and self._is_past(*self._looks[0], now):
            _, sent, lost = self._looks.popleft()
            self.sent, self.lost = self.sent - sent, self.lost - lost

    def drop_since(self, since: Seconds) -> None:
        """Take back what came after `since`."""
        while self._looks and self._looks[-1][0] > since:
            _, sent, lost = self._looks.pop()
            self.sent, self.lost = self.sent - sent, self.lost - lost

    def _is_past(self, at: Seconds, sent: int, _: int, now: Seconds) -> bool:
        return now - at > self._age or (now - at > _SPAN and self.sent - sent >= _ENOUGH)
