"""Many datagrams in one call: sendmmsg and recvmmsg over buffers that are made once and written in place.

Knows what a batch looks like in memory, not what its datagrams say. Where the C library has no such calls, or pointers are
not of 64 bits, `AVAILABLE` is False and nothing here is to be used.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Final

__all__ = ["AVAILABLE", "CONTROL", "Incoming", "Outgoing"]

# PyDLL, not CDLL: as in `kernel`, giving the GIL away for microseconds invites another thread to keep it.
_LIBC: Final = ctypes.PyDLL(None, use_errno=True)
AVAILABLE: Final = struct.calcsize("P") == 8 and hasattr(_LIBC, "sendmmsg") and hasattr(_LIBC, "recvmmsg")
if AVAILABLE:
    _sendmmsg: Final[Callable[[int, int, int, int], int]] = _LIBC.sendmmsg
    _recvmmsg: Final[Callable[[int, int, int, int, None], int]] = _LIBC.recvmmsg
    _LIBC.sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)
    _LIBC.recvmmsg.argtypes = (*_LIBC.sendmmsg.argtypes, ctypes.c_void_p)

_MESSAGE: Final = struct.Struct("@PIPNPNi0PI0P")
"""struct mmsghdr: address and its length, iovecs and their number, control and its length, flags; then the length moved."""
_IOVEC: Final = struct.Struct("@PN")
CONTROL: Final = 32
"""Bytes of control data a message: a stamp with its header."""
_MOST_ZEROS: Final = 65_536


def _address_of(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class Outgoing:
    """Room for `most` datagrams: each an address and a head of its own, then zeros.

    A slot of `slots` is the address as the kernel takes it (`address` bytes) and the head (`head` bytes). One writer.
    """

    __slots__ = ("_heads", "_iovecs", "_nothing", "_sizes", "_start", "_zeros", "head", "slots", "width")

    def __init__(self, most: int, *, address: int, head: int) -> None:
        self.width, self.head = address + head, head
        self.slots = bytearray(most * self.width)
        self._iovecs = bytearray(2 * _IOVEC.size * most)
        self._heads = bytearray(_MESSAGE.size * most)
        self._zeros = bytearray(_MOST_ZEROS)
        self._nothing = _address_of(self._zeros)
        slots, iovecs = _address_of(self.slots), _address_of(self._iovecs)
        for at in range(most):
            where, pair = slots + at * self.width, 2 * _IOVEC.size * at
            _IOVEC.pack_into(self._iovecs, pair, where + address, head)
            _IOVEC.pack_into(self._iovecs, pair + _IOVEC.size, self._nothing, 0)
            _MESSAGE.pack_into(self._heads, _MESSAGE.size * at, where, address, iovecs + pair, 2, 0, 0, 0, 0)
        self._start = _address_of(self._heads)
        self._sizes = [head] * most

    def resize(self, count: int, size: int) -> None:
        """The first `count` datagrams have `size` bytes each."""
        for at in range(count):
            if self._sizes[at] != size:
                self._sizes[at] = size
                _IOVEC.pack_into(self._iovecs, _IOVEC.size * (2 * at + 1), self._nothing, size - self.head)

    def send(self, fd: int, count: int) -> int:
        """How many of the first `count` went; OSError where the first one did not."""
        went = _sendmmsg(fd, self._start, count, 0)
        if went < 0:
            raise _error()
        return went


class Incoming:
    """Room for `most` datagrams of which the first `data` bytes are kept. A slot is control data, `gap` bytes, then data.

    What a slot held before is gone at each `receive`; the gap holds `fill` for good. One writer.
    """

    __slots__ = ("_blank", "_blank_heads", "_heads", "_most", "_start", "_used", "slots", "width")

    def __init__(self, most: int, *, data: int, fill: bytes = b"") -> None:
        self._most = most
        self.width = CONTROL + len(fill) + data
        self._blank = (bytes(CONTROL) + fill + bytes(data)) * most
        self.slots = bytearray(self._blank)
        iovecs = bytearray(_IOVEC.size * most)
        self._heads = bytearray(_MESSAGE.size * most)
        slots, vectors = _address_of(self.slots), _address_of(iovecs)
        for at in range(most):
            where = slots + at * self.width
            _IOVEC.pack_into(iovecs, _IOVEC.size * at, where + CONTROL + len(fill), data)
            vector = vectors + _IOVEC.size * at
            _MESSAGE.pack_into(self._heads, _MESSAGE.size * at, 0, 0, vector, 1, where, CONTROL, 0, 0)
        # The iovecs are kept with the heads that point to them.
        self._blank_heads = (bytes(self._heads), iovecs)
        self._start = _address_of(self._heads)
        self._used = 0

    def receive(self, fd: int) -> int:
        """How many datagrams are in the slots now, one at least; OSError where none wait or the socket has one to tell."""
        if used := self._used:
            self.slots[: used * self.width] = self._blank[: used * self.width]
            self._heads[: used * _MESSAGE.size] = self._blank_heads[0][: used * _MESSAGE.size]
            self._used = 0
        came = _recvmmsg(fd, self._start, self._most, 0, None)
        if came < 0:
            raise _error()
        self._used = came
        return came


def _error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
