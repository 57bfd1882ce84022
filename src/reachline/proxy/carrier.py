"""One connection to an endpoint by HTTP/2, for many exchanges at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from reachline.doors.envoy.chain import Upstream
from reachline.model import Seconds
from reachline.proxy import flags
from reachline.proxy.carried import EndpointStream
from reachline.proxy.flags import Lost
from reachline.proxy.http2.connection import Connection
from reachline.proxy.http2.events import Event, Gone, Pong, Reset
from reachline.proxy.http2.limits import Code, Limits

if TYPE_CHECKING:
    from reachline.proxy.pool import Place, Pool

__all__ = ["Carrier"]

_PING: Final = b"are you?"


class Carrier(asyncio.BufferedProtocol):
    """Written by its pool, its streams and the loop, in one thread. What streams say leaves together, once a turn of the loop."""

    __slots__ = (
        "_heard_at", "_is_full", "_is_leaving", "_is_stirred", "_loop", "_pinged_at", "_streams", "_transport", "_upstream", "asking", "idle_since",
        "is_open", "place", "pool", "since", "uses",
    )  # fmt: skip

    def __init__(self, pool: Pool, place: Place, upstream: Upstream, counts: Counter[str]) -> None:
        """`counts`: the cluster's, as Envoy names them behind `http2.`."""
        self.pool: Final = pool
        self.place: Final = place
        self.asking: Final = Connection(_limits(upstream), counts, is_client=True)
        self.is_open = False
        self.uses = 0
        self.since: Seconds = 0.0
        self.idle_since: Seconds = 0.0
        self._upstream: Final = upstream
        self._loop: Final = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._streams: Final[dict[int, EndpointStream]] = {}
        self._is_full = self._is_stirred = self._is_leaving = False
        """Whether the endpoint has yet to take much; whether there is a flush to come; whether no more streams begin."""
        self._pinged_at: Seconds | None = None
        """When the endpoint was asked whether it is there; None: it has answered."""
        self._heard_at: Seconds = self._loop.time()

    # What the pool calls.

    @property
    def is_free(self) -> bool:
        """Whether one more stream may begin."""
        most = self._upstream.max_requests_per_connection
        return self.is_open and not self._is_leaving and not (most and self.uses >= most) and self.asking.can_ask()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._streams

    def begin(self) -> EndpointStream:
        """Room for one exchange, which asks at once."""
        self.uses += 1
        return EndpointStream(self)

    def wind_up(self) -> None:
        """Begin no more streams; end the connection once those under way are over."""
        self._is_leaving = True
        if not self._streams:
            self.close()

    def close(self) -> None:
        """End it, once what was written is sent."""
        self.is_open = False
        if self._transport is not None:
            self.asking.close(Code.NO_ERROR)
            self._flush()
            self._transport.close()

    def sweep(self, now: Seconds) -> None:
        """Ask an endpoint that is silent whether it is there, and leave one that does not answer."""
        every, within = self._upstream.http2.keepalive_interval, self._upstream.http2.keepalive_timeout
        if every is None or within is None or not self.is_open:
            return
        if self._pinged_at is not None:
            if now - self._pinged_at >= within:
                self.asking.counts["keepalive_timeout"] += 1
                self._abort()
        elif now - self._heard_at >= every:
            self._pinged_at = now
            self.asking.ping(_PING)
            self.stir()

    # What streams call.

    def put(self, stream: EndpointStream, number: int) -> None:
        """A stream has begun."""
        self._streams[number] = stream

    def over(self, number: int) -> None:
        """A stream is over, for whoever asked."""
        self._streams.pop(number, None)
        self.stir()
        if not self._streams:
            self.idle_since = self._loop.time()
            most = self._upstream.max_requests_per_connection
            if self._is_leaving or (most and self.uses >= most):
                self.close()
        if self.is_open:
            self.pool.freed(self)

    def stir(self) -> None:
        """Something is to be sent."""
        if not self._is_stirred:
            self._is_stirred = True
            self._loop.call_soon(self._flush)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.is_open = transport, True
        self.stir()

    def get_buffer(self, _: int) -> memoryview:
        return self.pool.room

    def buffer_updated(self, size: int) -> None:
        self._heard_at = self._loop.time()
        self._is_stirred = True
        try:
            self._hear(self.asking.feed(bytes(self.pool.room[:size]), self._heard_at))
        finally:
            self._flush()

    def eof_received(self) -> bool:
        self.is_open = False
        return False

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self.is_open, self._transport = False, None
        self.pool.drop(self)
        for stream in tuple(self._streams.values()):
            stream.lose(flags.PARTIAL if stream.answer.is_begun else flags.TERMINATED)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._flush()

    # Inside.

    def _hear(self, events: list[Event]) -> None:
        """All that came is put where it belongs, before any of it is acted upon: most answers are here whole by then."""
        stirred: dict[EndpointStream, None] = {}
        for event in events:
            if isinstance(event, Pong):
                self._pinged_at = None
            elif not isinstance(event, Gone) and (found := self._streams.get(event.stream)) is not None:
                if isinstance(event, Reset):
                    if found in stirred:
                        del stirred[found]
                        found.serve()
                    found.lose(_lost(event))
                else:
                    found.take(event)
                    stirred[found] = None
        for stream in stirred:
            stream.serve()
        if self.is_open and self.place.waiting:
            self.pool.freed(self)  # the endpoint may take more at once than was known

    def _flush(self) -> None:
        self._is_stirred = False
        transport, asking = self._transport, self.asking
        if transport is None:
            return
        while not self._is_full and (data := asking.take()):
            transport.write(data)
        for number in asking.writable():
            stream = self._streams.get(number)
            if stream is not None:
                stream.writable()
        if asking.is_over and self.is_open:
            self.is_open = False
            transport.close()

    def _abort(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


def _limits(upstream: Upstream) -> Limits:
    """What an endpoint may do."""
    options = upstream.http2
    return Limits(
        streams=options.max_concurrent_streams,
        stream_window=options.stream_window,
        connection_window=options.connection_window,
        head=upstream.max_response_headers_kib << 10,
        headers=upstream.max_headers,
    )


def _lost(event: Reset) -> Lost:
    if event.is_ours:
        return flags.PROTOCOL
    return flags.REFUSED_STREAM if event.code == Code.REFUSED_STREAM else flags.RESET
