"""Ending one direction of a connection, whatever has become of the other."""

from __future__ import annotations

import asyncio

__all__ = ["half_close"]


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
