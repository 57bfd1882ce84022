"""What connections of either side have in common: where bytes are read into, and how one direction ends."""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["half_close", "reading_room"]

_ROOM: Final = 1 << 16
"""Bytes of one read. Asyncio's own way makes 256 KiB anew for each, of which the kernel must find the pages: 18 us a read."""


def reading_room() -> memoryview:
    """Where all connections of one thread read into, one after the other: what came is taken out at once."""
    return memoryview(bytearray(_ROOM))


def half_close(transport: asyncio.Transport) -> None:
    """Say that nothing more is sent. Where that cannot be said alone (TLS), or nobody is there any more, the connection ends."""
    if transport.is_closing():
        return
    if not transport.can_write_eof():
        transport.close()
        return
    try:
        transport.write_eof()
    except OSError:  # the other end was faster
        transport.abort()
