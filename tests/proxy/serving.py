"""An endpoint of HTTP/2 for tests, by the h2 library: answers by the path's first part, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import dataclass, field
from typing import Any, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings
from tests.proxy.world import Loop

from reachline.testing.serving import Service

__all__ = ["Asked", "Endpoint2"]

_LARGE: Final = 4 << 20
Fields = list[tuple[bytes, bytes]]


@dataclass
class Asked:
    """One request, on which connection it came, and what came of it."""

    connection: int
    headers: Fields
    pieces: bytearray = field(default_factory=bytearray)
    trailers: Fields = field(default_factory=list)
    is_whole: bool = False
    reset: int | None = None

    @property
    def body(self) -> bytes:
        return bytes(self.pieces)

    def get(self, name: bytes) -> bytes | None:
        return dict(self.headers).get(name)


class Endpoint2:
    """`streams`: how many at once it takes on a connection; `connects`: whether it takes extended CONNECT."""

    def __init__(
        self, loop: Loop, name: bytes = b"one", *, streams: int = 100, connects: bool = False, ssl: Any = None
    ) -> None:
        self.name = name
        self.asked: list[Asked] = []
        self.connections = 0
        self.open = 0
        self.gate = threading.Event()
        """`/held` waits for it."""
        self.takes = True
        """Whether room for bodies is given back."""
        self._loop, self._streams, self._connects = loop, streams, connects
        self._service: Service = loop.do(Service(self._serve).listen(tls=ssl))
        self.port = self._service.port

    def close(self) -> None:
        self.gate.set()
        self._loop.do(self._service.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            async with asyncio.TaskGroup() as group:
                await _Serving(self, writer, group, self.connections).run(reader, self._streams, self._connects)
        finally:
            self.open -= 1


class _Serving:
    """One connection."""

    def __init__(
        self, endpoint: Endpoint2, writer: asyncio.StreamWriter, group: asyncio.TaskGroup, number: int
    ) -> None:
        self._endpoint, self._writer, self._group, self._number = endpoint, writer, group, number
        self._connection = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._asked: dict[int, Asked] = {}
        self._opened = asyncio.Event()
        """The window of some stream."""

    async def run(self, reader: asyncio.StreamReader, streams: int, connects: bool) -> None:
        settings = {SettingCodes.MAX_CONCURRENT_STREAMS: streams, SettingCodes.ENABLE_CONNECT_PROTOCOL: int(connects)}
        self._connection.local_settings = Settings(client=False, initial_values=settings)
        self._connection.initiate_connection()
        self._flush()
        while data := await reader.read(1 << 16):
            for event in self._connection.receive_data(data):
                self._take(event)
            self._flush()
        self._opened.set()
        for task in tuple(self._group._tasks):
            task.cancel()

    def _flush(self) -> None:
        self._writer.write(self._connection.data_to_send())

    def _take(self, event: Event) -> None:  # noqa: C901, PLR0912
        match event:
            case RequestReceived(stream_id=int(stream), headers=headers):
                asked = self._asked[stream] = Asked(self._number, list(headers or []))
                self._endpoint.asked.append(asked)
                path = asked.get(b":path") or b""
                if path.startswith((b"/early", b"/reset", b"/refused", b"/leave", b"/slurp")) or asked.get(
                    b":protocol"
                ):
                    self._group.create_task(self._answer(stream, asked))
            case DataReceived(stream_id=int(stream)):
                self._asked[stream].pieces += event.data or b""
                if self._endpoint.takes:
                    self._connection.acknowledge_received_data(event.flow_controlled_length or 0, stream)
                if self._asked[stream].get(b":protocol"):
                    self._connection.send_data(stream, (event.data or b"").upper())
            case TrailersReceived(stream_id=int(stream), headers=headers):
                self._asked[stream].trailers = list(headers or [])
            case StreamEnded(stream_id=int(stream)):
                asked = self._asked[stream]
                asked.is_whole = True
                if asked.get(b":protocol"):
                    self._connection.end_stream(stream)
                elif not (asked.get(b":path") or b"").startswith(
                    (b"/early", b"/reset", b"/refused", b"/leave", b"/slurp")
                ):
                    self._group.create_task(self._answer(stream, asked))
            case StreamReset(stream_id=int(stream)):
                if stream in self._asked:
                    self._asked[stream].reset = int(event.error_code or 0)
                self._opened.set()
            case WindowUpdated() | ConnectionTerminated():
                self._opened.set()
            case _:
                pass

    async def _answer(self, stream: int, asked: Asked) -> None:
        try:
            await self._answer_by_path(stream, asked)
            self._flush()
        except (StreamClosedError, ProtocolError):
            pass

    async def _answer_by_path(self, stream: int, asked: Asked) -> None:  # noqa: C901, PLR0912
        connection, endpoint = self._connection, self._endpoint
        word = re.split(rb"[/?]", (asked.get(b":path") or b"/") + b"/")[1]
        ok: Fields = [(b":status", b"200"), (b"x-foo", b"bar")]
        match word:
            case b"reset":
                connection.reset_stream(stream, 2)
            case b"refused":
                connection.reset_stream(stream, 7)
            case b"partial":
                connection.send_headers(stream, [*ok, (b"content-length", b"10")])
                connection.send_data(stream, b"abc")
                self._flush()
                connection.reset_stream(stream, 2)
            case b"close":
                self._writer.transport.abort()
            case b"garbage":
                self._writer.write(b"garbage, garbage, garbage")
            case b"malformed":
                self._writer.write(b"\0\0\1\1\5" + stream.to_bytes(4, "big") + b"\x40")
            case b"leave":
                self._writer.write(b"\0\0\x08\7\0\0\0\0\0" + stream.to_bytes(4, "big") + b"\0\0\0\0")
                connection.send_headers(stream, ok)
                connection.send_data(stream, b"last", end_stream=True)
            case b"held":
                while not endpoint.gate.is_set():
                    await asyncio.sleep(0.01)
                connection.send_headers(stream, [*ok, (b"content-length", b"4")])
                connection.send_data(stream, b"held", end_stream=True)
            case b"hang" | b"slurp":
                pass
            case b"trailers":
                connection.send_headers(stream, ok)
                connection.send_data(stream, endpoint.name)
                connection.send_headers(stream, [(b"grpc-status", b"0"), (b"t", b"v")], end_stream=True)
            case b"interim":
                connection.send_headers(stream, [(b":status", b"103"), (b"link", b"a")])
                connection.send_headers(stream, [*ok, (b"content-length", b"0")], end_stream=True)
            case b"nothing" | b"early":
                connection.send_headers(stream, ok, end_stream=True)
            case b"echo":
                connection.send_headers(stream, ok)
                await self._say(stream, asked.body)
            case b"large":
                connection.send_headers(stream, [*ok, (b"content-length", b"%d" % _LARGE)])
                await self._say(stream, b"x" * _LARGE)
            case _ if asked.get(b":protocol"):
                connection.send_headers(stream, ok)
            case b"204":
                connection.send_headers(stream, [(b":status", b"204"), (b"x-foo", b"bar")], end_stream=True)
            case _ if word.isdigit():
                connection.send_headers(stream, [(b":status", word), (b"content-length", b"2")])
                connection.send_data(stream, b"no", end_stream=True)
            case _:
                is_head = asked.get(b":method") == b"HEAD"
                connection.send_headers(
                    stream, [*ok, (b"content-length", b"%d" % len(endpoint.name))], end_stream=is_head
                )
                if not is_head:
                    connection.send_data(stream, endpoint.name, end_stream=True)

    async def _say(self, stream: int, body: bytes) -> None:
        connection, at = self._connection, 0
        while at < len(body):
            size = min(connection.local_flow_control_window(stream), connection.max_outbound_frame_size, len(body) - at)
            if not size:
                self._flush()
                self._opened.clear()
                await self._opened.wait()
                continue
            connection.send_data(stream, body[at : at + size])
            at += size
            self._flush()
            await self._writer.drain()
        connection.end_stream(stream)
