"""One request and its answer over TCP, without TLS: plain HTTP, where the answer is whole in its first piece, as is each proxy's yes.

It does what `stream` and `speech` do for the one course in which the first SYN is answered, all that is said leaves at once and
the first piece of each answer is all of it and ok; whatever else happens is handed over to them at the step it has reached.
Nothing is said before what was said last is answered, so Nagle holds nothing back.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from select import EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT
from socket import IPPROTO_TCP, SOL_SOCKET, TCP_INFO
from typing import Final

from reachline.model import Clock
from reachline.net.attempt import Attempt
from reachline.net.hops import resumed
from reachline.net.kernel import CONNECTED, INFO, INFO_SIZE, SO_TIMESTAMPNS, SYN_AGAIN_US, stamp
from reachline.net.lean import Due, Lane, Lean, connect
from reachline.net.result import Phases
from reachline.net.speech import Speech
from reachline.talk.glance import DOUBT

__all__ = ["PLAIN", "say"]

_BROKEN: Final = EPOLLERR | EPOLLHUP
_CHANGES: Final = EPOLLIN | EPOLLOUT | EPOLLET
"""Told of once each: connected, then answered. Asking for one after the other would be a call more."""
_PIECE: Final = 4096
"""Bytes of the first piece; an answer that is longer is for the ordinary machine."""
_ANCILLARY: Final = 64
_AGAIN: Final = frozenset((errno.EAGAIN, errno.EINTR))
_KERNEL: Final = Clock.RX_STAMP
_unpack: Final = INFO.unpack


class _Plain:
    """The time of connect, us, is the number that is remembered, once the request is said."""

    __slots__ = ()

    def begin(self, lane: Lane, dues: Sequence[Due], /) -> list[Due]:
        return connect(lane, self, dues, _CHANGES)

    def heard(self, lane: Lane, fd: int, events: int, lean: Lean, /) -> None:
        """Connected, or the answer has come."""
        _, route, sock, late_us, began, mono, wall, connect_us, passed = lean
        if not mono:
            # A peer that speaks first is not told of again: the ordinary machine asks what is there.
            if events & (_BROKEN | EPOLLIN) or not _is_connected(lane, fd, lean):
                _reconsidered(lane, fd, lean).ready(events)
            return
        glance = route.glance
        assert glance is not None
        try:
            data, ancillary, _, _ = sock.recvmsg(_PIECE, _ANCILLARY)
        except OSError as error:
            if error.errno not in _AGAIN:
                _resumed(lane, fd, lean).hear(error, None)
            return
        at = stamp(ancillary)
        rtt = lane.clocks.stamped(mono, wall, at)
        if rtt is not None and (step := len(passed)) < len(route.passing):
            if route.passing[step].is_yes(data):
                on = lane.live[fd] = (self, route, sock, late_us, began, mono, wall, connect_us, (*passed, rtt))
                lane.saying.append((fd, on))
                return
        elif rtt is not None and (status := glance.read(data)) != DOUBT:
            by_proxy = sum(passed)
            total, pure = (mono - began) // 1_000 + rtt, connect_us + by_proxy + rtt
            phases = Phases(0, connect_us, by_proxy if passed else None, None, rtt, total, pure)
            lane.arrived(fd, lean, rtt, _KERNEL, pure, status, phases)
            return
        _resumed(lane, fd, lean).hear(data, at)

    def over(self, lane: Lane, fd: int, lean: Lean, /) -> Attempt:
        attempt = _reconsidered(lane, fd, lean)
        if lean[5]:
            _resume(lane, attempt, lean)
        return attempt


def _is_connected(lane: Lane, fd: int, lean: Lean) -> bool:
    """Whether it is, by the first SYN; then its request goes with all others of this turn."""
    state, rtt, again = _unpack(lean[2].getsockopt(IPPROTO_TCP, TCP_INFO, INFO_SIZE))
    if again or state not in CONNECTED or rtt >= SYN_AGAIN_US:
        return False
    connected = lane.live[fd] = (*lean[:7], rtt, ())
    lane.saying.append((fd, connected))
    return True


def say(lane: Lane, saying: Sequence[tuple[int, Lean]]) -> None:
    """Send what is to be said next, but not of those that were cancelled meanwhile."""
    clocks, live = lane.clocks, lane.live
    for fd, lean in saying:
        if live.get(fd) is not lean:
            continue
        course, route, sock, lateness_us, began, before, _, connect_us, passed = lean
        step, passing, glance = len(passed), route.passing, route.glance
        assert glance is not None
        request = passing[step].request if step < len(passing) else glance.request
        if not before:
            sock.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)
        mono = clocks.ns()
        said = live[fd] = (course, route, sock, lateness_us, began, mono, mono + clocks.offset, connect_us, passed)
        try:
            sent = sock.send(request)
        except OSError:
            if before:
                _resumed(lane, fd, said, request)
            else:
                _reconsidered(lane, fd, said).ready(EPOLLOUT)
            continue
        if sent < len(request):
            _resumed(lane, fd, said, request[sent:])


def _reconsidered(lane: Lane, fd: int, lean: Lean) -> Attempt:
    """The ordinary attempt, still connecting."""
    attempt, job = lane.promoted(fd, lean), lean[1].job
    attempt.talk = job.probe.talk(job.endpoint, lane.nonce())
    lane.epoll.modify(fd, EPOLLOUT)
    return attempt


def _resumed(lane: Lane, fd: int, lean: Lean, rest: bytes = b"") -> Speech:
    """The ordinary conversation, its request said but for the rest."""
    return _resume(lane, _reconsidered(lane, fd, lean), lean, rest)


def _resume(lane: Lane, attempt: Attempt, lean: Lean, rest: bytes = b"") -> Speech:
    attempt.sent = 1
    attempt.speech = speech = Speech(lane.home, attempt)
    speech.resume((lean[7], *lean[8]), lean[5], lean[6], rest, resumed(lean[1], len(lean[8])))
    return speech


PLAIN: Final = _Plain()
