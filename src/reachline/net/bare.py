"""The hot path: a TCP connect with nothing to say, which nine probes of ten are."""

from __future__ import annotations

from collections.abc import Sequence
from select import EPOLLERR, EPOLLHUP, EPOLLOUT
from socket import IPPROTO_TCP, TCP_INFO
from typing import Final

from reachline.model import Clock
from reachline.net.attempt import Attempt
from reachline.net.kernel import CONNECTED, INFO, INFO_SIZE, SYN_AGAIN_US
from reachline.net.lean import Due, Lane, Lean, connect

__all__ = ["BARE"]

_BROKEN: Final = EPOLLERR | EPOLLHUP
_KERNEL: Final = Clock.TCP_INFO
_unpack: Final = INFO.unpack


class _Bare:
    """Connected at the first SYN: the kernel's RTT is the result."""

    __slots__ = ()

    def begin(self, lane: Lane, dues: Sequence[Due], /) -> list[Due]:
        return connect(lane, self, dues, EPOLLOUT)

    def heard(self, lane: Lane, fd: int, events: int, lean: Lean, /) -> None:
        if not events & _BROKEN:
            state, rtt, again = _unpack(lean[2].getsockopt(IPPROTO_TCP, TCP_INFO, INFO_SIZE))
            if state in CONNECTED and not again and rtt < SYN_AGAIN_US:
                lane.arrived(fd, lean, rtt, _KERNEL, rtt, 0, None)
                return
        lane.promoted(fd, lean).ready(events)

    def over(self, lane: Lane, fd: int, lean: Lean, /) -> Attempt:
        return lane.promoted(fd, lean)


BARE: Final = _Bare()
