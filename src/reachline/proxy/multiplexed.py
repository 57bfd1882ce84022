"""A client's connection by HTTP/2: many requests at once, each a stream with its exchange."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from reachline.doors.envoy.chain import HttpManager
from reachline.model import Seconds
from reachline.proxy.arrival import Peer
from reachline.proxy.ends import UNKNOWN, half_close, peer_of, unread
from reachline.proxy.http2.connection import Connection
from reachline.proxy.http2.events import Asked, Body, Ended, Event, Pong, Reset
from reachline.proxy.http2.limits import Code, Limits
from reachline.proxy.stream import Stream

if TYPE_CHECKING:
    from reachline.proxy.exchange import Exchange
    from reachline.proxy.front import Front

__all__ = ["Multiplexed", "limits_of"]

_PING: Final = b"are you?"


class Multiplexed(asyncio.BufferedProtocol):
    """Written by the loop and by its streams, in one thread. What streams say leaves together, once a turn of the loop."""

    __slots__ = (
        "_drained_at", "_flushing", "_front", "_is_full", "_is_leaving", "_is_pinging", "_is_stirred", "_pinged_at", "_transport", "idle_since",
        "peer", "requests", "served", "since", "streams",
    )  # fmt: skip

    def __init__(self, front: Front, limits: Limits) -> None:
        self._front: Final[Front] = front
        self.served: Final = Connection(limits, front.http2)
        self._transport: asyncio.Transport | None = None
        self._is_full = self._is_leaving = self._is_stirred = False
        """Whether the client has yet to take much; whether nothing more is heard; whether there is a flush to come."""
        self._drained_at: Seconds | None = None
        """When the client was told that this connection ends."""
        self._pinged_at: Seconds = front.now()
        self._is_pinging = False
        """Whether the client has yet to answer."""
        self._flushing: dict[int, Seconds] = {}
        """Streams whose exchange is over and whose answer is yet to be taken, since when."""
        self.streams: Final[dict[int, Stream]] = {}
        """Those with an exchange."""
        self.peer: Peer = UNKNOWN
        self.requests = 0
        self.since: Seconds = front.now()
        self.idle_since: Seconds = self.since

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = peer_of(transport)
        self._front.came(self)
        self._front.counts["downstream_cx_http2_total"] += 1
        self._flush()

    def get_buffer(self, _: int) -> memoryview:
        return self._front.room

    def buffer_updated(self, size: int) -> None:
        front = self._front
        front.counts["downstream_cx_rx_bytes_total"] += size
        if self._is_leaving:
            return
        self._is_stirred = True
        try:
            self._hear(self.served.feed(bytes(front.room[:size]), front.now()))
        finally:
            self._flush()

    def eof_received(self) -> bool:
        return False  # who sends no more acknowledges nothing either: the connection ends

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._front.leaving.forget(self._transport)
            self._transport = None
        self._front.went(self, is_reset=error is not None)
        for stream in list(self.streams.values()):
            stream.gone("downstream_remote_disconnect")

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._flush()

    # What streams call.

    def stir(self) -> None:
        """Something is to be sent."""
        if not self._is_stirred:
            self._is_stirred = True
            self._front.loop.call_soon(self._flush)

    def over(self, stream: Stream) -> None:
        """Its exchange is."""
        self.streams.pop(stream.number, None)
        if self.served.pending(stream.number):
            self._flushing[stream.number] = self._front.now()
        if not self.streams:
            self.idle_since = self._front.now()

    # What the front calls.

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Those under way."""
        return tuple(each.exchange for each in self.streams.values())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self.streams and not self._is_leaving

    @property
    def has_asked(self) -> bool:
        """Whether bytes of it wait to be read, as soon as the loop comes to it."""
        return self._transport is not None and unread(self._transport) > 0

    @property
    def is_amid_head(self) -> bool:
        """Whether a request has begun that is no request yet."""
        return self.is_idle and self.served.is_amid_head

    def refuse(self) -> None:
        """End the connection: what began never became a request."""
        self._part(Code.NO_ERROR)

    def wind_up(self) -> None:
        """Take no more requests than those under way, of which some may not be here yet."""
        if self._drained_at is None:
            self._drained_at = self._front.now()
            self.served.drain()
            self.stir()

    def close(self) -> None:
        """End it: by word, so that no request on its way is lost; where the client does not answer to that, without."""
        if self._drained_at is None:
            self.wind_up()
        elif self.served.is_over:
            self._flush()
        elif self._front.now() - self._drained_at >= self._front.manager.drain_timeout:
            self._part(Code.NO_ERROR)

    def abort(self) -> None:
        """End it now, whatever is not sent yet."""
        if self._transport is not None:
            self._transport.abort()

    def sweep(self, now: Seconds) -> None:
        """Give up answers that nobody takes, and a client that answers neither a warning nor a ping."""
        manager = self._front.manager
        if self._drained_at is not None and now - self._drained_at >= manager.drain_timeout:
            self.served.drain()  # a client that does not answer to the warning has had its time
            self.stir()
        for number, since in list(self._flushing.items()):
            if not self.served.pending(number):
                del self._flushing[number]
            elif manager.stream_idle_timeout and now - since >= manager.stream_idle_timeout:
                del self._flushing[number]
                self.served.counts["tx_flush_timeout"] += 1
                self.served.reset(number, Code.NO_ERROR)
                self.stir()
        self._keep_alive(manager, now)

    # Inside.

    def _hear(self, events: list[Event]) -> None:
        """All that came is put where it belongs, before any of it is acted upon: most requests are here whole by then."""
        streams, front, before = self.streams, self._front, self.requests
        stirred: dict[Stream, None] = {}
        for event in events:
            match event:
                case Asked():
                    self.requests += 1
                    stream = streams[event.stream] = Stream(self, front, event)
                    stirred[stream] = None
                case Body(number, data) if (found := streams.get(number)) is not None:
                    found.take(data)
                    stirred[found] = None
                case Ended(number, trailers) if (found := streams.get(number)) is not None:
                    found.end(trailers)
                    stirred[found] = None
                case Reset(number, _, is_ours) if (found := streams.get(number)) is not None:
                    stirred.pop(found, None)
                    found.gone(
                        "http2.violation.of.messaging.rule" if is_ours else "http2.remote_reset", is_ours=is_ours
                    )
                case Pong(data) if data == _PING:
                    self._is_pinging = False
                case _:
                    pass
        front.counts["downstream_rq_http2_total"] += self.requests - before
        for stream in stirred:
            stream.serve()

    def _flush(self) -> None:
        self._is_stirred = False
        transport, served = self._transport, self.served
        if transport is None:
            return
        while not self._is_full and (data := served.take()):
            self._front.counts["downstream_cx_tx_bytes_total"] += len(data)
            transport.write(data)
        for number in served.writable():
            stream = self.streams.get(number)
            if stream is not None:
                stream.writable()
        if served.is_over and not self._is_leaving:
            if served.broken:
                self._front.counts["downstream_cx_protocol_error"] += 1
            self._leave()

    def _part(self, code: Code) -> None:
        self._drained_at = self._drained_at or self._front.now()
        self.served.close(code)
        self._flush()
        self._leave()

    def _leave(self) -> None:
        """Once what was written is taken, for which the client has a moment."""
        transport = self._transport
        if transport is None or self._is_leaving:
            return
        self._is_leaving = True
        for stream in list(self.streams.values()):
            stream.gone("downstream_local_disconnect")
        if not self._front.manager.delayed_close_timeout:
            transport.close()
            return
        self._front.leaving.watch(transport)
        half_close(transport)  # a reset, for what the client sends yet, would take away what it has not read yet

    def _keep_alive(self, manager: HttpManager, now: Seconds) -> None:
        every, within = manager.http2.keepalive_interval, manager.http2.keepalive_timeout
        if every is None or within is None or self._is_leaving:
            return
        if self._is_pinging and now - self._pinged_at >= within:
            self.served.counts["keepalive_timeout"] += 1
            self._part(Code.NO_ERROR)
        elif not self._is_pinging and now - self._pinged_at >= every:
            self._pinged_at = now
            self._is_pinging = True
            self.served.ping(_PING)
            self.stir()


def limits_of(manager: HttpManager) -> Limits:
    """What a client may do."""
    options = manager.http2
    return Limits(
        streams=options.max_concurrent_streams,
        stream_window=options.stream_window,
        connection_window=options.connection_window,
        allow_connect=options.allow_connect,
        is_stream_error=manager.stream_error_on_invalid_message,
        head=manager.max_request_headers_kib << 10,
        headers=manager.max_headers,
    )
