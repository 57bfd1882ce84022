"""A client's connection by HTTP/1.1: its requests one after the other, in the order they came, each with its exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from reachline.model import Seconds
from reachline.proxy import flags
from reachline.proxy.arrival import Peer
from reachline.proxy.ends import UNKNOWN, half_close, peer_of, unread
from reachline.proxy.exchange import Exchange
from reachline.proxy.flags import LocalReply
from reachline.proxy.heads import CONTINUE, answer_head, framed, last, local_head
from reachline.proxy.http2.frames import PREFACE
from reachline.proxy.message import Answer, Headers, Request
from reachline.proxy.requests import RequestReader

if TYPE_CHECKING:
    from reachline.proxy.front import Front
    from reachline.proxy.multiplexed import Multiplexed

__all__ = ["Downstream", "Other"]

_ALPN: Final = "h2"


class Other(NamedTuple):
    """HTTP/2 on connections that agree on it by ALPN, or begin by its preface, or always."""

    made: Callable[[], Multiplexed]
    always: bool = False


class Downstream(asyncio.BufferedProtocol):
    """Written by the loop and by the exchange of now. What clients send ahead of their turn is read no further than one piece."""

    __slots__ = (
        "_begun", "_front", "_held", "_is_chunked", "_is_full", "_is_heard", "_is_lingering", "_is_sent", "_other", "_reader", "_transport", "exchange", "idle_since",
        "peer", "requests", "since",
    )  # fmt: skip

    def __init__(self, front: Front, other: Other | None = None) -> None:
        """`other`: who takes over where HTTP/2 is spoken; None: nobody does."""
        self._front: Final[Front] = front
        self._other = other
        self._begun = b""
        """What came while it is not known whether that is HTTP/2."""
        self._reader: Final = RequestReader(front.limits)
        self._transport: asyncio.Transport | None = None
        self._held = self._is_full = False
        """Whether it is read no further; whether it has yet to take so much that it gets no more."""
        self._is_chunked = False
        """Whether the answer of now goes out in chunks."""
        self._is_lingering = self._is_heard = self._is_sent = False
        """Whether nothing more is answered; after an upgrade, whether the client, and whether we, send no more."""
        self.exchange: Exchange | None = None
        self.peer: Peer = UNKNOWN
        self.requests = 0
        self.since: Seconds = front.now()
        self.idle_since: Seconds = self.since
        """Since when nothing is under way; of a head that comes slowly, since it began."""

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._other is not None and (self._other.always or _agreed(transport) == _ALPN):
            self._hand_over(self._other, transport, b"")
            return
        self.peer = peer_of(transport)
        self._front.came(self)

    def get_buffer(self, _: int) -> memoryview:
        return self._front.room

    def buffer_updated(self, size: int) -> None:
        if self._is_lingering:
            return
        front, exchange = self._front, self.exchange
        data = bytes(front.room[:size])
        if self._other is not None:
            data = self._begun + data
            if self._is_other(self._other, data):
                return
        front.counts["downstream_cx_rx_bytes_total"] += len(data)
        if exchange is not None and exchange.is_raw:
            exchange.raw_from_client(data)
            return
        reader = self._reader
        if reader.refusal is not None:
            return
        if reader.rest is not None:
            reader.rest += data  # another protocol was asked for, and nobody has agreed yet
            self.hold(True)
            return
        reader.feed(data, front.now())
        self._serve()

    def eof_received(self) -> bool:
        exchange = self.exchange
        if exchange is not None and exchange.is_raw:
            self._is_heard = True
            exchange.raw_from_client(b"")
            return not self._is_sent and not self.peer.is_tls
        if exchange is not None:
            exchange.gone()  # as in Envoy: who sends no more waits for no answer either
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._front.leaving.forget(self._transport)
            self._transport = None
        self._front.went(self, is_reset=error is not None)
        if self.exchange is not None:
            self.exchange.gone()

    def pause_writing(self) -> None:
        self._is_full = True
        if self.exchange is not None:
            self.exchange.client_writable(False)

    def resume_writing(self) -> None:
        self._is_full = False
        if self.exchange is not None:
            self.exchange.client_writable(True)
        elif not self._is_lingering:
            self._go_on()

    # What exchanges call.

    def go_ahead(self) -> None:
        """The body may come."""
        self._write(CONTINUE)

    def answer(self, exchange: Exchange, answer: Answer, headers: Headers | None, chunks: list[bytes]) -> None:
        """Send what came of an answer: its head where there are `headers`, these pieces of its body, and its end."""
        out: list[bytes] = []
        if headers is not None:
            out, self._is_chunked = self._head(exchange.request, answer, headers)
        if chunks:
            out += framed(chunks, chunked=True) if self._is_chunked else chunks
        if answer.is_complete and self._is_chunked:
            out.append(last(answer.trailers if self._front.manager.enable_trailers else []))
        if out:
            self._write(b"".join(out))

    def reply(self, exchange: Exchange, reply: LocalReply, headers: Headers, *, closes: bool) -> None:
        """Send an answer of our own."""
        front, head_only = self._front, exchange.request.method == b"HEAD"
        server = front.server_line(headers)
        out = local_head(reply, headers, date=front.date(), server=server, closes=closes, head_only=head_only)
        self._write(b"".join(out))

    def hold(self, is_held: bool) -> None:
        """Stop reading, or go on."""
        transport = self._transport
        if transport is None or is_held is self._held or transport.is_closing():
            return
        self._held = is_held
        if is_held:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def ended(self, *, keep: bool) -> None:
        """The exchange of now is over; `keep`: the next request may follow."""
        self.exchange = None
        if not keep or self._transport is None:
            self._linger()
            return
        self.idle_since = self._front.now()
        if self._reader.rest is not None:
            self._reader.resume()  # the endpoint did not care for the other protocol
        self._go_on()

    def cut(self) -> None:
        """The answer cannot be ended well: neither a last chunk nor all of its length, so that the client sees it."""
        self.close()

    def no_upgrade(self) -> bool:
        """No other protocol: what follows are requests, as they may here."""
        if self._reader.rest is not None:
            self._reader.resume()
            self.hold(False)
        return True

    def switch(self, exchange: Exchange) -> bytes:
        """From now on bytes are the exchange's; those that came ahead."""
        self.exchange = exchange
        rest, self._reader.rest = self._reader.rest or b"", None
        self.hold(False)
        return rest

    def write_raw(self, data: bytes) -> None:
        """Send bytes of another protocol; empty: the other end sends no more."""
        if data:
            self._write(data)
            return
        self._is_sent = True
        if self._transport is None:
            return
        if self._is_heard:
            self.close()
        else:
            half_close(self._transport)

    # What the front calls.

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self.exchange is None and not self._is_lingering

    @property
    def has_asked(self) -> bool:
        """Whether bytes of it wait to be read, as soon as the loop comes to it."""
        return self._transport is not None and not self._held and unread(self._transport) > 0

    @property
    def is_amid_head(self) -> bool:
        """Whether a request has begun that is no request yet."""
        return self.is_idle and (self._reader.is_amid_head or bool(self._begun))

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Those under way."""
        return () if self.exchange is None else (self.exchange,)

    def refuse(self, reply: LocalReply = flags.HEADER_TIMEOUT) -> None:
        """End the connection with an answer to what never became a request."""
        request = Request(self._front.now())
        request.is_complete = True
        self.exchange = exchange = Exchange(self._front, self, request)
        exchange.reply(reply._replace(closes=True))

    def close(self) -> None:
        """End it now, without a word: once what was written is taken, for which the client has a moment."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._is_lingering = True
        transport.close()
        self._front.leaving.watch(transport)

    def abort(self) -> None:
        """End it now, whatever is not sent yet."""
        if self._transport is not None:
            self._transport.abort()

    # Inside.

    def _is_other(self, other: Other, data: bytes) -> bool:
        """Whether these first bytes are not for HTTP/1."""
        if data[: len(PREFACE)] == PREFACE[: len(data)]:
            if len(data) < len(PREFACE):
                self._begun = data
                return True
            assert self._transport is not None
            self._front.left(self)
            self._hand_over(other, self._transport, data)
            return True
        self._other, self._begun = None, b""
        return False

    def _hand_over(self, other: Other, transport: asyncio.Transport, data: bytes) -> None:
        self._transport = None
        made = other.made()
        transport.set_protocol(made)
        made.connection_made(transport)
        if data:
            self._front.room[: len(data)] = data
            made.buffer_updated(len(data))

    def _head(self, request: Request, answer: Answer, headers: Headers) -> tuple[list[bytes], bool]:
        front = self._front
        if request.version == "1.0" and (answer.length is None or answer.length < 0):
            request.keeps = False  # it knows no chunks: where the answer ends, the connection does
        return answer_head(
            answer,
            headers,
            date=front.date(),
            server=front.server_line(headers),
            version=request.version,
            head_only=request.method == b"HEAD",
            closes=not front.keeps(self, request),
            keeps_explicitly=request.version == "1.0",
        )

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._front.counts["downstream_cx_tx_bytes_total"] += len(data)
            self._transport.write(data)

    def _serve(self) -> None:
        """The exchange of now gets what came for it; without one, the next request begins."""
        reader = self._reader
        exchange = self.exchange
        if exchange is None:
            if self._transport is None or self._is_lingering or self._is_full:
                return
            if not reader.inbox:
                if reader.refusal is not None:
                    self._front.counts["downstream_cx_protocol_error"] += 1
                    self.refuse(reader.refusal)
                return
            request = reader.inbox.popleft()
            if self._held:
                request.began = self._front.now()  # it waited for its turn, which is nobody's fault
            self.requests += 1
            self.exchange = exchange = Exchange(self._front, self, request)
            exchange.begin()
        elif exchange.sent_at is None and (exchange.request.chunks or exchange.request.is_complete):
            exchange.more()
        if self.exchange is not exchange:
            return
        if reader.inbox:
            self.hold(True)  # its turn comes later
        elif reader.refusal is not None and not exchange.request.is_complete:
            self._front.counts["downstream_cx_protocol_error"] += 1
            exchange.over(reader.refusal)

    def _go_on(self) -> None:
        """Nothing is under way: what is next."""
        if self._is_full:
            self.hold(True)  # who takes no answers gets no more of them
        elif self._reader.inbox or self._reader.refusal is not None:
            self.hold(True)
            # Not from here: a thousand requests sent at once would be a thousand calls deep.
            self._front.loop.call_soon(self._serve)
        else:
            self.hold(False)

    def _linger(self) -> None:
        """Say that there is no more, and wait a moment: a reset would take the answer away from a client that still sends."""
        transport = self._transport
        if transport is None or self._is_lingering or transport.is_closing():
            return
        self._is_lingering = True
        self.hold(False)
        if not self._front.manager.delayed_close_timeout:
            transport.close()
            return
        self._front.leaving.watch(transport)
        half_close(transport)


def _agreed(transport: asyncio.Transport) -> str | None:
    """What ALPN came to."""
    shaken = transport.get_extra_info("ssl_object")
    return None if shaken is None else shaken.selected_alpn_protocol()
