"""The kernel's table of TCP connections, read piece by piece on the loop. Linux only; knows no line and no verdict.

One request walks the kernel's whole hash table before its first answer (2 to 6 ms for 262 144 places and each family), in one
piece: that is the price of a look, and why there is one for all lines. What was found comes in datagrams, one a turn of the
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from reachline.errors import RemoteProtocolError
from reachline.model import Seconds
from reachline.net.kernel import words_of
from reachline.wire.sockdiag import Done, Refused, Sock, Wanted, messages, request

__all__ = ["MARKS_REFUSED", "Looked", "SockDiag"]

_NETLINK_SOCK_DIAG: Final = 4
_RECEIVE: Final = 1 << 16
"""Bytes: the kernel fills 32 KiB at most."""
_LONGEST: Final[Seconds] = 10.0
"""For one look: a hundred thousand connections take a second or two."""
_FAMILIES: Final = (4, 6)
"""IPv6 sockets carry IPv4 too: many programs open nothing else."""
MARKS_REFUSED: Final = "to look at marks takes CAP_NET_ADMIN"
"""The error of a look whose filter names a mark, where we may not see any."""
_WORDS: Final = {
    errno.EPERM: "we may not ask the kernel for its connections",
    errno.ENOENT: "this kernel has no tcp_diag",
    errno.EPROTONOSUPPORT: "this system does not tell of its connections (Linux does)",
    errno.ENOBUFS: "the kernel's answer overran the buffer",
}


class Looked(NamedTuple):
    """What one look found: connections of other processes, or why there is nothing to be found."""

    socks: tuple[Sock, ...] = ()
    sure: frozenset[int] = frozenset()
    """Cookies of those that are not ours for certain: what was seen for the first time may be a probe that is gone by now."""
    whole: bool = True
    """False: the table changed while it was read, so that one that is missing need not be gone."""
    error: str = ""


class SockDiag:
    """One netlink socket on one loop. Our own connections are left out. Written by the one task that looks."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._sequence = 0
        self._found: list[Sock] = []
        self._is_first = True
        self._sure = self._own = self._trial = frozenset[int]()
        """Cookies of the last look's connections: not ours for certain, ours, and those that only the next look can tell."""
        self._over: asyncio.Future[bool] | None = None

    async def look(self, wanted: Sequence[Wanted]) -> Looked:
        """All connections of other processes that any of `wanted` describes."""
        self._found = []
        try:
            async with asyncio.timeout(_LONGEST):
                whole = [await self._dump(family, wanted) for family in _FAMILIES]
        except asyncio.CancelledError:
            self.close()
            raise
        except TimeoutError:
            return self._broken(f"the kernel's answer was not complete within {_LONGEST:g} s")
        except RemoteProtocolError as error:
            return self._broken(str(error))
        except OSError as error:
            code = error.errno or 0
            is_of_marks = any(one.mark is not None for one in wanted)
            words = MARKS_REFUSED if code == errno.EPERM and is_of_marks else _WORDS.get(code)
            return self._broken(words or words_of(code))
        found = {sock.cookie: sock for sock in self._found}
        self._tell_apart(found)
        theirs = tuple(sock for cookie, sock in found.items() if cookie in self._sure or cookie in self._trial)
        return Looked(theirs, self._sure, all(whole))

    def _tell_apart(self, found: Mapping[int, Sock]) -> None:
        """Whose each connection is. What is in two looks was open when we asked ourselves between them: then it is not ours.

        A closed connection has no inode and could be a probe of ours: it counts where it did before it was closed.
        """
        passed = {cookie for cookie in self._trial if cookie in found and found[cookie].inode}
        sure, own = self._sure & found.keys() | passed, self._own & found.keys()
        new = [sock for cookie, sock in found.items() if cookie not in sure and cookie not in own]
        ours = _own_sockets() if new else frozenset()
        self._own = own | {sock.cookie for sock in new if not sock.inode or sock.inode in ours}
        theirs = frozenset(sock.cookie for sock in new) - self._own
        # What was there before the first look is told to whoever keeps books as it is: it counts from here on.
        self._sure, self._trial = (theirs, frozenset()) if self._is_first else (sure, theirs)
        self._is_first = False

    def close(self) -> None:
        """Nothing is asked any more."""
        if self._socket is not None:
            with contextlib.suppress(RuntimeError):  # the loop is gone, and its readers with it
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    async def _dump(self, family: int, wanted: Sequence[Wanted]) -> bool:
        """All of one family into `_found`; whether the table stood still meanwhile."""
        loop = asyncio.get_running_loop()
        self._sequence += 1
        if (asked := request(family, wanted, sequence=self._sequence)) is None:
            return True
        if self._socket is None:
            self._socket = _opened()
            loop.add_reader(self._socket.fileno(), self._turn)
        self._over = loop.create_future()
        self._socket.send(asked)
        return await self._over

    def _turn(self) -> None:
        """One datagram."""
        if self._socket is None or self._over is None or self._over.done():
            return
        try:
            self._take(self._socket.recv(_RECEIVE), self._over)
        except BlockingIOError:
            return
        except (OSError, RemoteProtocolError) as error:
            self._over.set_exception(error)

    def _take(self, data: bytes, over: asyncio.Future[bool]) -> None:
        for message in messages(data, sequence=self._sequence):
            match message:
                case Sock():
                    self._found.append(message)
                case Refused():
                    raise OSError(message.code, os.strerror(message.code))
                case Done():
                    over.set_result(message.whole)
                    return

    def _broken(self, error: str) -> Looked:
        """Answers may be left behind: the next look begins with a new socket."""
        self.close()
        return Looked(error=error)


def _opened() -> socket.socket:
    if not sys.platform.startswith("linux"):
        raise OSError(errno.EPROTONOSUPPORT, "only Linux tells of its connections")
    return socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
    )


def _own_sockets() -> frozenset[int]:
    """Inodes of this process' sockets; some microseconds each."""
    found = set()
    with os.scandir("/proc/self/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # a thread that is not ours (gRPC's) closed it meanwhile
                status = os.fstat(int(entry.name))
                if stat.S_ISSOCK(status.st_mode):
                    found.add(status.st_ino)
    return frozenset(found)
