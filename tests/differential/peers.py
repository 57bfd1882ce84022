"""Scripted endpoints on loopback: what each answers by the number of the request, and when it was asked. A thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reachline.testing.serving import Service

CHECK: Final = "/check"
"""Paths that begin so are checks; all others are calls."""


class Reply(NamedTuple):
    """What one request comes to. `how`: `answer`, `reset` (the connection ends without a word) or `hang` (nothing, ever)."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    how: str = "answer"


OK: Final = Reply()
RESET: Final = Reply(how="reset")
HANG: Final = Reply(how="hang")
Script = Callable[[int], Reply]
"""By the number of the request, from 0."""


def always(reply: Reply = OK) -> Script:
    return lambda _: reply


def listed(*replies: Reply | int, then: Reply | int = 200) -> Script:
    """One after the other, then the same for ever."""
    made = [each if isinstance(each, Reply) else Reply(each) for each in (*replies, then)]
    return lambda number: made[min(number, len(made) - 1)]


@dataclass(slots=True)
class Peer:
    """One endpoint. `raw` answers bytes on a connection that is no HTTP: None closes it."""

    calls: Script = always()
    checks: Script = always()
    raw: Callable[[int, bytes], bytes | None] | None = None
    port: int = 0
    called: list[float] = field(default_factory=list)
    checked: list[float] = field(default_factory=list)
    held: threading.Event | None = None
    """Calls wait until it is set."""


class Peers:
    """All endpoints of a test's run. `last` is the port that was called last."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._services: list[Service] = []
        self.last = 0

    def add(self, peer: Peer | None = None, **script: Script) -> Peer:
        """An endpoint that listens from now on."""
        peer = peer or Peer(**script)  # type: ignore[arg-type]
        asyncio.run_coroutine_threadsafe(self._listen(peer), self._loop).result(10)
        return peer

    async def _listen(self, peer: Peer) -> None:
        service = await Service(lambda reader, writer: self._serve(peer, reader, writer)).listen()
        self._services.append(service)
        peer.port = service.port

    async def _serve(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if peer.raw is not None:
            await self._raw(peer, reader, writer)
        else:
            while await self._request(peer, reader, writer):
                pass

    async def _raw(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert peer.raw is not None
        while data := await reader.read(4_096):
            peer.checked.append(time.monotonic())
            answer = peer.raw(len(peer.checked) - 1, data)
            if answer is None:
                return
            writer.write(answer)

    async def _request(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; False: the connection is over."""
        head = await reader.readuntil(b"\r\n\r\n")
        is_check = head.split(b" ")[1].startswith(CHECK.encode())
        times, script = (peer.checked, peer.checks) if is_check else (peer.called, peer.calls)
        reply = script(len(times))
        times.append(time.monotonic())
        if not is_check:
            self.last = peer.port
            held = peer.held
            while held is not None and not held.is_set():
                await asyncio.sleep(0.01)
        if reply.how == "reset":
            return False
        if reply.how == "hang":
            await reader.read()
            return False
        fields = (("x-port", str(peer.port)), ("content-length", str(len(reply.body))), *reply.headers)
        said = "".join(f"{name}: {value}\r\n" for name, value in fields)
        writer.write(f"HTTP/1.1 {reply.status} X\r\n{said}\r\n".encode() + reply.body)
        return True

    async def end(self) -> None:
        """Close everything."""
        for service in self._services:
            await service.close()


@contextlib.contextmanager
def serving() -> Iterator[Peers]:
    """Endpoints, until the end."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    peers = Peers(loop)
    try:
        yield peers
    finally:
        asyncio.run_coroutine_threadsafe(peers.end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@contextlib.contextmanager
def refusing() -> Iterator[int]:
    """A port where nobody listens and nobody else will."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
