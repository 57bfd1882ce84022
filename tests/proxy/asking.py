"""A client of HTTP/2 for tests, by the h2 library: many requests on one connection, and what came of each."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError
from tests.proxy.world import WITHIN

Fields = list[tuple[bytes, bytes]]
GRPC: Final[Fields] = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]


@dataclass
class Came:
    """What came on one stream."""

    interim: list[bytes] = field(default_factory=list)
    status: bytes = b""
    headers: Fields = field(default_factory=list)
    pieces: bytearray = field(default_factory=bytearray)
    trailers: Fields = field(default_factory=list)
    is_whole: bool = False
    reset: int | None = None

    @property
    def body(self) -> bytes:
        return bytes(self.pieces)

    @property
    def is_over(self) -> bool:
        return self.is_whole or self.reset is not None

    def get(self, name: bytes) -> bytes | None:
        return dict(self.headers).get(name)


def head(
    path: str,
    *,
    method: str = "GET",
    more: Iterable[tuple[bytes, bytes]] = (),
    authority: str = "a.example",
    scheme: str = "http",
) -> Fields:
    """A request's headers."""
    return [
        (b":method", method.encode()), (b":scheme", scheme.encode()), (b":authority", authority.encode()), (b":path", path.encode()), *more,
    ]  # fmt: skip


class Client:
    """One connection. What it reads it acknowledges, unless `takes` is turned off."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        made = socket.create_connection(("127.0.0.1", port), timeout=WITHIN)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = made if tls is None else tls.wrap_socket(made, server_hostname="localhost")
        config = H2Configuration(
            client_side=True, header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.connection = H2Connection(config)
        self.streams: dict[int, Came] = {}
        self.gone: list[tuple[int, int]] = []
        """(error, last stream) of each GOAWAY."""
        self.takes = True
        self.is_closed = False
        self.connection.initiate_connection()
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self) -> None:
        self.socket.sendall(self.connection.data_to_send())

    def ask(
        self, headers: Fields, body: bytes | None = None, trailers: Fields | None = None, *, end: bool = True
    ) -> int:
        """Send a request, or as much of it; its stream."""
        connection = self.connection
        stream = connection.get_next_available_stream_id()
        self.streams[stream] = Came()
        connection.send_headers(stream, headers, end_stream=end and body is None and trailers is None)
        if body is not None:
            connection.send_data(stream, body, end_stream=end and trailers is None)
        if trailers is not None:
            connection.send_headers(stream, trailers, end_stream=True)
        self.flush()
        return stream

    def came(self, stream: int) -> Came:
        """What came on it, once it is over."""
        self.read_until(lambda: self.streams[stream].is_over)
        return self.streams[stream]

    def answer(
        self, headers: Fields, body: bytes | None = None, trailers: Fields | None = None, *, end: bool = True
    ) -> Came:
        """Ask, and wait for what comes of it."""
        return self.came(self.ask(headers, body, trailers, end=end))

    def read_until(self, is_so: Callable[[], bool]) -> None:
        """AssertionError where the connection ends before."""
        while not is_so():
            assert not self.is_closed, (self.gone, self.streams)
            self.read()

    def read(self) -> None:
        """What there is, once there is something."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        self.is_closed = not data
        try:
            events = self.connection.receive_data(data)
        except ProtocolError:  # the library takes nothing behind a GOAWAY, which may be a warning
            return
        for event in events:
            self._take(event)
        if not self.is_closed:
            self.flush()

    def _take(self, event: Event) -> None:
        match event:
            case InformationalResponseReceived(stream_id=int(stream), headers=headers):
                self.streams[stream].interim.append(dict(headers or [])[b":status"])
            case ResponseReceived(stream_id=int(stream), headers=headers):
                fields = list(headers or [])
                self.streams[stream].status = fields[0][1]
                self.streams[stream].headers = fields[1:]
            case DataReceived(stream_id=int(stream)):
                self.streams[stream].pieces += event.data or b""
                if self.takes:
                    self.connection.acknowledge_received_data(event.flow_controlled_length or 0, stream)
            case TrailersReceived(stream_id=int(stream), headers=headers):
                self.streams[stream].trailers = list(headers or [])
            case StreamEnded(stream_id=int(stream)):
                self.streams[stream].is_whole = True
            case StreamReset(stream_id=int(stream)):
                self.streams[stream].reset = int(event.error_code or 0)
            case ConnectionTerminated():
                self.gone.append((int(event.error_code or 0), event.last_stream_id or 0))
            case _:
                pass
