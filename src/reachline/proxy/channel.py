"""One kept connection to an endpoint, for one exchange at a time. Knows bytes and answers, not why they are asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from reachline.model import Seconds
from reachline.proxy import flags
from reachline.proxy.answers import AnswerReader
from reachline.proxy.ends import half_close
from reachline.proxy.flags import Lost
from reachline.proxy.heads import framed, last, request_head
from reachline.proxy.message import Answer, Headers, Request
from reachline.proxy.way import Way

if TYPE_CHECKING:
    from reachline.proxy.pool import Place, Pool

__all__ = ["Caller", "EndpointChannel"]

_NOTHING_MORE: Final = b""


class Caller(Protocol):
    """Whose answer is awaited."""

    way: Way | None
    host: bytes
    """As the endpoint is told."""

    def heard(self) -> None:
        """There is more of the answer."""

    def lost(self, lost: Lost) -> None:
        """The connection ended before the answer did; it is closed already."""

    def raw(self, data: bytes) -> None:
        """Bytes of another protocol, after an upgrade; empty: the endpoint sends no more."""

    def endpoint_writable(self, is_so: bool, /) -> None:
        """Whether the endpoint takes more for now."""


class EndpointChannel(asyncio.BufferedProtocol):
    """Written by its pool and by the exchange that holds it, in one thread."""

    __slots__ = (
        "_has_trailers",
        "_is_heard",
        "_is_raw",
        "_is_sent",
        "_reader",
        "_transport",
        "caller",
        "idle_since",
        "is_open",
        "place",
        "pool",
        "since",
        "uses",
    )

    def __init__(self, pool: Pool, place: Place, *, most_headers: int, most_bytes: int, trailers: bool = False) -> None:
        """`trailers`: whether they are passed on, either way."""
        self.pool: Final = pool
        self.place: Final = place
        self.caller: Caller | None = None
        self.is_open = False
        self.uses = 0
        self.since: Seconds = 0.0
        self.idle_since: Seconds = 0.0
        self._has_trailers: Final = trailers
        self._reader: Final = AnswerReader(most_headers=most_headers, most_bytes=most_bytes, trailers=trailers)
        self._transport: asyncio.Transport | None = None
        self._is_raw = self._is_heard = self._is_sent = False
        """Whether another protocol is spoken; whether the endpoint, and whether we, send no more of it."""

    def ask(self, caller: Caller, request: Request, headers: Headers, body: list[bytes]) -> Answer:
        """Send a request with these headers, and what there is of its body; what comes back fills the answer."""
        assert self._transport is not None
        assert caller.way is not None
        self.caller = caller
        self.uses += 1
        out = request_head(request, caller.way.path, caller.host, headers)
        if body or request.length is not None:
            self._add_body(out, request, body)
        answer = self._reader.expect(head_only=request.method == b"HEAD")
        self._transport.write(b"".join(out))
        return answer

    def more(self, request: Request, body: list[bytes]) -> None:
        """Send more of the request's body, and its end where it is here whole."""
        out: list[bytes] = []
        self._add_body(out, request, body)
        if out:
            self.write(b"".join(out))

    def write(self, data: bytes) -> None:
        """Send more of the request."""
        if self._transport is not None:
            self._transport.write(data)

    def write_raw(self, data: bytes) -> None:
        """Send bytes of another protocol; empty: there are no more."""
        if data:
            self.write(data)
            return
        self._is_sent = True
        if self._transport is None:
            return
        if self._is_heard:
            self._transport.close()
        else:
            half_close(self._transport)

    def release(self) -> None:
        """The answer is here whole: the next request may come."""
        self.caller = None
        self.hold(False)  # the client of this answer may take no more of it; the next one is another's
        self.pool.give(self)

    def abort(self) -> None:
        """End it at once; nobody is told."""
        self.caller, self.is_open = None, False
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End it, once what was written is sent."""
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def hold(self, is_held: bool) -> None:
        """Stop reading, or go on: the client takes no more for now."""
        if self._transport is None or self._transport.is_closing():
            return
        if is_held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.is_open = transport, True

    def get_buffer(self, _: int) -> memoryview:
        return self.pool.room

    def buffer_updated(self, size: int) -> None:
        data, caller = bytes(self.pool.room[:size]), self.caller
        if self._is_raw and caller is not None:
            caller.raw(data)
            return
        reader = self._reader
        reader.feed(data)
        if caller is None:
            self.abort()  # an endpoint that speaks unasked: nothing it says later can be believed
            return
        if reader.broken:
            answer = reader.answer
            if answer is not None and answer.is_complete:
                # What came is whole; the bytes after it are nobody's.
                answer.keeps = False
                caller.heard()
                return
            self._lose(flags.PROTOCOL)
            return
        if reader.rest is not None and not self._is_raw:
            self._is_raw = True
            rest, reader.rest = reader.rest, None
            caller.heard()
            if rest and self.caller is not None:
                self.caller.raw(rest)
            return
        caller.heard()

    def eof_received(self) -> bool:
        caller = self.caller
        if self._is_raw and caller is not None:
            self._is_heard = True
            caller.raw(_NOTHING_MORE)
            return not self._is_sent and self._transport is not None and self._transport.can_write_eof()
        self.is_open = (
            False  # already now: the loop tells of the end a turn later, and a request of this turn would be lost
        )
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self.pool.drop(self)
        caller = self.caller
        if caller is None:
            return
        if error is None and not self._is_raw and self._reader.ended():
            caller.heard()
            return
        is_partial = self._reader.answer is not None and self._reader.answer.is_begun
        self.caller = None
        caller.lost(flags.PARTIAL if is_partial else flags.TERMINATED)

    def pause_writing(self) -> None:
        if self.caller is not None:
            self.caller.endpoint_writable(False)

    def resume_writing(self) -> None:
        if self.caller is not None:
            self.caller.endpoint_writable(True)

    def _lose(self, lost: Lost) -> None:
        caller, self.caller = self.caller, None
        self.abort()
        if caller is not None:
            caller.lost(lost)

    def _add_body(self, out: list[bytes], request: Request, body: list[bytes]) -> None:
        if body:
            out += framed(body, chunked=True) if request.is_chunked else body
        if request.is_complete and request.is_chunked:
            out.append(last(request.trailers if self._has_trailers else []))
