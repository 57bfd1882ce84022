"""What Linux knows and how to ask it: timerfd, TCP_INFO, receive stamps, errno. Refuses to know probes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from reachline.model import Failure
from reachline.net.wheel import NEVER

__all__ = [
    "CONNECTED",
    "INFO",
    "INFO_SIZE",
    "RECVERR",
    "RESERVE",
    "RST_ON_CLOSE",
    "SO_TIMESTAMPNS",
    "SYN_AGAIN_US",
    "Timer",
    "bind",
    "budget",
    "drops",
    "failure_of",
    "file_limit",
    "handshake",
    "keep_stamps",
    "raise_file_limit",
    "retransmits",
    "stamp",
    "words_of",
]

SO_TIMESTAMPNS: Final = 35
"""asm-generic/socket.h; the ancillary message has the same number and holds a struct timespec of CLOCK_REALTIME."""
RECVERR: Final[Mapping[int, tuple[int, int]]] = {
    socket.AF_INET: (socket.IPPROTO_IP, 11),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 25),
}
"""IP_RECVERR, IPV6_RECVERR by family: ICMP errors reach the socket that caused them (linux/in.h, linux/in6.h)."""
RST_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""struct linger: on, no time."""

RESERVE: Final = 256
"""Descriptors left to everything else in the process: uplink, API, journal."""
_IP_BIND_ADDRESS_NO_PORT: Final = 24
"""linux/in.h: the port is chosen at connect, so one source address serves 28k connections to *each* target."""
CONNECTED: Final = (1, 8)
"""tcpi_state of a connection that is made: ESTABLISHED, or CLOSE_WAIT where the peer ended it at once."""
INFO: Final = struct.Struct("=B67xI28xI")
"""struct tcp_info: tcpi_state at 0, tcpi_rtt (us) at 68, tcpi_total_retrans at 100."""
INFO_SIZE: Final = INFO.size
SYN_AGAIN_US: Final = 1_000_000
"""A SYN or SYN-ACK is repeated after a second at the earliest (RFC 6298)."""
_SO_MEMINFO: Final = 55
"""asm-generic/socket.h; nine words (linux/sock_diag.h)…"""
_MEMINFO: Final = struct.Struct("=32xI")
"""…the last of which is SK_MEMINFO_DROPS."""
_TIMESPEC: Final = struct.Struct("=qq")
_TIMESPEC_SIZE: Final = _TIMESPEC.size
_unpack_timespec: Final = _TIMESPEC.unpack
_SOL_SOCKET: Final = socket.SOL_SOCKET
_NS: Final = 1_000_000_000

_UNREACHABLE: Final = frozenset(
    (
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.ENETDOWN,
        errno.ENONET,
        errno.ENOPROTOOPT,  # how the kernel reports ICMP "protocol unreachable"
    )
)
_RESET: Final = frozenset((errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED))
_WORDS: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network unreachable",
    errno.ETIMEDOUT: "no answer",
    errno.EMFILE: "too many open files in this process",
    errno.ENFILE: "too many open files on this machine",
    errno.EADDRNOTAVAIL: "the source address is not ours, or all its ports are in use",
    errno.ENODEV: "no such interface",
    errno.ENOBUFS: "the local send queue is full",
    errno.EPERM: "not permitted here",
    errno.EACCES: "not permitted here",
}


def failure_of(code: int) -> Failure:
    """What an errno of connect, send or receive says about the path; AGENT where it says something about us."""
    if code == errno.ECONNREFUSED:
        return Failure.REFUSED
    if code in _RESET:
        return Failure.RESET
    if code in _UNREACHABLE:
        return Failure.UNREACHABLE
    if code == errno.ETIMEDOUT:
        return Failure.TIMEOUT
    return Failure.AGENT


def words_of(code: int) -> str:
    """An errno for people, stable across C libraries."""
    return _WORDS.get(code) or os.strerror(code).lower()


def handshake(info: Callable[[int, int, int], bytes]) -> tuple[int, int] | None:
    """(RTT in us, retransmits) of a connection just made, from its `getsockopt`; None while it is not made.

    With retransmits > 0 the RTT is ambiguous (it may count from the lost SYN) and must not be used. A handshake of
    `SYN_AGAIN_US` or more without any counts as one: a lost SYN-ACK is repeated by the peer after a second too, at times a
    little before our own timer has fired, and then no counter of ours knows.
    """
    state, rtt, retransmits = INFO.unpack(info(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_SIZE))
    return (rtt, retransmits or int(rtt >= SYN_AGAIN_US)) if state in CONNECTED else None


def retransmits(info: Callable[[int, int, int], bytes]) -> int:
    """SYNs sent again so far, whatever became of the connection."""
    raw = info(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_SIZE)
    return int(INFO.unpack(raw)[2]) if len(raw) == INFO_SIZE else 0


def stamp(ancillary: Sequence[tuple[int, int, bytes]]) -> int | None:
    """When the kernel received it, ns of CLOCK_REALTIME, from the ancillary data of `recvmsg`; None without one."""
    for level, kind, raw in ancillary:
        if kind == SO_TIMESTAMPNS and level == _SOL_SOCKET and len(raw) == _TIMESPEC_SIZE:
            seconds, nanos = _unpack_timespec(raw)
            at: int = seconds * _NS + nanos
            return at
    return None


def drops(sock: socket.SocketType) -> int:
    """Packets that found no room in its receive buffer since it was opened; 0 where the kernel does not tell."""
    try:
        counted: int = _MEMINFO.unpack(sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[0]
    except (OSError, struct.error):  # told since Linux 4.12
        return 0
    return counted


def keep_stamps() -> socket.socket:
    """A socket that makes the kernel stamp all that arrives, while it is open.

    The kernel begins to stamp some milliseconds after the first socket asks for it, and stops with the last one: a probe
    that asked for itself alone would find its first answer unstamped, or stamped when it was read.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return sock


def bind(sock: socket.SocketType, family: int, source: str, interface: str, port: int = 0) -> None:
    """Leave from `source` by `interface` (either may be empty); OSError where that cannot be: no probe is to be sent.

    `port` 0: the kernel chooses at connect.
    """
    if interface:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
    if port:
        # Shared with other connects to other targets, and used again while the last one from it is in TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((source, port) if family == socket.AF_INET else (source, port, 0, 0))
    elif source:
        with contextlib.suppress(OSError):  # missing before Linux 4.2: only the port budget is smaller
            sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source, 0) if family == socket.AF_INET else (source, 0, 0, 0))


def file_limit() -> int:
    """Descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else soft


def budget(limit: int | None) -> int:
    """Attempts at once that fit the descriptors of this process, the reserve (at most half) left alone."""
    files = file_limit()
    fits = max(files - min(RESERVE, files // 2), 1)
    return fits if limit is None else max(min(limit, fits), 1)


def raise_file_limit() -> int:
    """Raise the soft limit of descriptors to the hard one; what it is now."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return file_limit()


# PyDLL, not CDLL: these calls take a microsecond, and giving the GIL away for that invites another thread to keep it.
_LIBC: Final = ctypes.PyDLL(None, use_errno=True)
_ABSTIME: Final = 1
_CLOEXEC_NONBLOCK: Final = os.O_CLOEXEC | os.O_NONBLOCK
_CLOCK_MONOTONIC: Final = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def _create_by_libc() -> int:
    fd = int(_LIBC.timerfd_create(_CLOCK_MONOTONIC, _CLOEXEC_NONBLOCK))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd


def _set_by_libc(fd: int, at_ns: int) -> None:
    when = _Itimerspec(_Timespec(0, 0), _Timespec(at_ns // _NS, at_ns % _NS))
    if _LIBC.timerfd_settime(fd, _ABSTIME, ctypes.byref(when), None) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


if sys.version_info >= (3, 13):

    def _create() -> int:
        return os.timerfd_create(_CLOCK_MONOTONIC, flags=os.TFD_CLOEXEC | os.TFD_NONBLOCK)

    def _set(fd: int, at_ns: int) -> None:
        os.timerfd_settime_ns(fd, flags=os.TFD_TIMER_ABSTIME, initial=at_ns)

else:
    _create, _set = _create_by_libc, _set_by_libc


class Timer:
    """A timerfd on CLOCK_MONOTONIC. Setting it also takes back an expiry not yet read, so it is never read."""

    __slots__ = ("_fd", "armed_ns")

    def __init__(self) -> None:
        self._fd = _create()
        self.armed_ns = NEVER
        """What it is set for."""

    def fileno(self) -> int:
        return self._fd

    def arm(self, at_ns: int) -> None:
        """Readable from `at_ns` on (past: at once); NEVER turns it off."""
        _set(self._fd, 0 if at_ns == NEVER else max(at_ns, 1))
        self.armed_ns = at_ns

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
