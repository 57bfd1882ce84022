"""Everything as it changes: WebSocket for the console, server-sent events for curl and the CLI, the same messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, Response, WebSocket
from starlette.websockets import WebSocketDisconnect

from reachline.center.api.desk import Desk
from reachline.center.api.serving import streaming
from reachline.center.live import messages

__all__ = ["routes"]


def routes(desk: Desk) -> APIRouter:
    """`/stream` and `/ws`."""
    router = APIRouter()

    @router.get("/stream")
    async def stream() -> Response:
        """Server-sent events: a snapshot, then deltas and a tick each second."""
        return streaming(_events(desk))

    @router.websocket("/ws")
    async def socket(socket: WebSocket) -> None:
        """A snapshot, then deltas by revision and a tick each second; what the client says is ignored."""
        await socket.accept()
        async with asyncio.TaskGroup() as tasks:
            saying = tasks.create_task(_say(desk, socket))
            hearing = tasks.create_task(_hear(socket))
            await asyncio.wait((saying, hearing), return_when=asyncio.FIRST_COMPLETED)
            saying.cancel()
            hearing.cancel()

    return router


async def _events(desk: Desk) -> AsyncIterator[bytes]:
    async for message in messages(desk.stream.readers, desk.stream.snapshot):
        yield b"data: %s\n\n" % message


async def _say(desk: Desk, socket: WebSocket) -> None:
    try:
        async for message in messages(desk.stream.readers, desk.stream.snapshot):
            await socket.send_text(message.decode())
        await socket.close(1001, "the center stops")
    except WebSocketDisconnect:
        return


async def _hear(socket: WebSocket) -> None:
    """Until the client goes."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
