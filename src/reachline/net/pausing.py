"""A transport that is not read from for a while."""

from __future__ import annotations

import asyncio

__all__ = ["hold"]


def hold(transport: asyncio.Transport | None, is_held: bool) -> None:
    """Stop reading, or go on; one that is not there or is closing is let be."""
    if transport is None or transport.is_closing():
        return
    if is_held:
        transport.pause_reading()
    else:
        transport.resume_reading()
