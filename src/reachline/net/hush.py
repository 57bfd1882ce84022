"""The end of a listener that loses nobody: whom it had accepted just then is served, or closed, like all others."""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["hush"]

_TURNS: Final = 4
"""Of the loop, in which a socket that was accepted just now becomes a task, a transport and a protocol's connection: each of
these may be queued behind who hushes, one turn later."""


async def hush(server: asyncio.Server) -> None:
    """Listen no more. All that were accepted are connections of their protocol when this returns. Idempotent.

    `Server.close` alone leaves those whose task had not begun to nobody: no protocol hears of them, nothing closes them.
    """
    if not server.sockets:
        return
    for sock in server.sockets:
        server.get_loop().remove_reader(sock.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    server.close()
