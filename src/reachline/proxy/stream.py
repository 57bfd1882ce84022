"""One request of a client's HTTP/2 connection, as its exchange knows it: the counterpart of `downstream` for HTTP/1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reachline.errors import LocalProtocolError
from reachline.proxy import flags
from reachline.proxy.arrival import Peer
from reachline.proxy.exchange import Exchange
from reachline.proxy.flags import LocalReply
from reachline.proxy.heads import described
from reachline.proxy.http2.events import Asked
from reachline.proxy.http2.limits import Code
from reachline.proxy.message import Answer, Headers, Request

if TYPE_CHECKING:
    from reachline.proxy.front import Front
    from reachline.proxy.multiplexed import Multiplexed

__all__ = ["Stream"]

_MUCH: Final = 1 << 16
"""Bytes of an answer that wait for the client before no more of it is read: as much as one read brings."""
_SWITCHING: Final = 101
_OK: Final = 200
_CONTINUE: Final = 100


class Stream:
    """Written by its connection and its exchange, in one thread."""

    __slots__ = (
        "_ahead", "_connection", "_front", "_is_begun", "_is_full", "_is_gone", "_is_heard", "_is_held", "_is_sent", "exchange",
        "number", "peer",
    )  # fmt: skip

    def __init__(self, connection: Multiplexed, front: Front, asked: Asked) -> None:
        self._connection: Final = connection
        self._front: Final = front
        self.number: Final = asked.stream
        self.peer: Final[Peer] = connection.peer
        self._is_begun = self._is_gone = self._is_held = self._is_full = False
        """Whether its exchange began; whether nothing can be said any more; whether it is heard no further; whether too much waits."""
        self._is_heard = self._is_sent = False
        """Whether the client, and whether we, have said all."""
        self._ahead: list[bytes] = []
        """Of another protocol, before anybody agreed to it."""
        self.exchange: Final = Exchange(front, self, _request(asked, front.now()))

    @property
    def requests(self) -> int:
        """Of its connection so far."""
        return self._connection.requests

    # What the connection calls.

    def take(self, data: bytes) -> None:
        """More of the body."""
        request = self.exchange.request
        if request.upgrade:
            self._ahead.append(data)
        else:
            request.chunks.append(data)
            request.size += len(data)

    def end(self, trailers: Headers) -> None:
        """There is no more."""
        self._is_heard, request = True, self.exchange.request
        request.trailers = trailers
        if not self._is_begun and request.is_chunked and not request.chunks and not trailers:
            request.length = None
        request.is_complete = True

    def serve(self) -> None:
        """The exchange gets what came."""
        exchange = self.exchange
        if exchange.is_over:
            return
        if not self._is_begun:
            self._is_begun = True
            if b"#" in exchange.request.path:
                exchange.reply(flags.BAD_PATH)
            else:
                exchange.begin()
        elif exchange.is_raw:
            self._pass_on()
        elif exchange.request.upgrade:
            self.hold(True)  # nobody has agreed yet
        elif exchange.sent_at is None:
            exchange.more()

    def gone(self, details: str, *, is_ours: bool = False) -> None:
        """The client wants no more of it, or is no longer there; `is_ours`: it broke the protocol."""
        self._is_gone = True
        self.exchange.gone(details, "DPE" if is_ours else "DC")

    def writable(self) -> None:
        """What waited is sent."""
        if self._is_full:
            self._is_full = False
            if not self.exchange.is_over:
                self.exchange.client_writable(True)

    # What the exchange calls.

    def go_ahead(self) -> None:
        """The body may come."""
        self._connection.served.answer(self.number, _CONTINUE, [], end=False)
        self._connection.stir()

    def answer(self, _exchange: Exchange, answer: Answer, headers: Headers | None, chunks: list[bytes]) -> None:
        """Send what came of an answer: its head where there are `headers`, these pieces of its body, and its end."""
        served, trailers, is_whole = self._connection.served, answer.trailers, answer.is_complete
        is_last = is_whole and not trailers
        if headers is not None:
            status = _OK if answer.status == _SWITCHING else answer.status
            self._begin(status, headers, end=is_last and not chunks)
        if chunks or (is_last and headers is None):
            self._fill(served.body(self.number, b"".join(chunks), end=is_last))
        if is_whole and trailers:
            served.trailers(self.number, trailers)
        self._is_sent = is_whole
        self._connection.stir()

    def reply(self, exchange: Exchange, reply: LocalReply, headers: Headers, *, closes: bool) -> None:  # noqa: ARG002
        """Send an answer of our own; whether the connection goes on is not one request's affair here."""
        body = b"" if exchange.request.method == b"HEAD" else reply.body
        self._begin(reply.status, described(reply, headers), end=not body)
        if body:
            self._connection.served.body(self.number, body, end=True)
        self._is_sent = True
        self._connection.stir()

    def hold(self, is_held: bool) -> None:
        """Let the client send no more than it may already, or go on."""
        if is_held is self._is_held or self._is_gone:
            return
        self._is_held = is_held
        served = self._connection.served
        (served.hold if is_held else served.go_on)(self.number)
        self._connection.stir()

    def cut(self) -> None:
        """The answer cannot be ended well."""
        self._reset(Code.INTERNAL_ERROR)

    def ended(self, *, keep: bool) -> None:  # noqa: ARG002
        """The exchange is over; what of its answer is not sent yet goes on its way."""
        if not self._is_sent:
            self._reset(Code.NO_ERROR)
        self._connection.over(self)

    def no_upgrade(self) -> bool:
        """Extended CONNECT is for nothing else."""
        return False

    def switch(self, _: Exchange) -> bytes:
        """From now on bytes are the exchange's; those that came ahead."""
        self.hold(False)
        ahead, self._ahead = b"".join(self._ahead), []
        if self._is_heard:
            self._front.loop.call_soon(self.serve)
        return ahead

    def write_raw(self, data: bytes) -> None:
        """Send bytes of another protocol; empty: the other end sends no more."""
        if not self._is_gone:
            self._is_sent = not data
            self._fill(self._connection.served.body(self.number, data, end=not data))
            self._connection.stir()

    # Inside.

    def _begin(self, status: int, headers: Headers, *, end: bool) -> None:
        front, connection = self._front, self._connection
        most = front.manager.max_requests_per_connection
        try:
            connection.served.answer(self.number, status, front.signed(headers), end=end)
        except LocalProtocolError:  # a header of the endpoint's that HTTP/2 has no words for
            self._reset(Code.INTERNAL_ERROR)
        if front.is_draining or (most and connection.requests >= most):
            connection.wind_up()

    def _fill(self, pending: int) -> None:
        if pending > _MUCH and not self._is_full:
            self._is_full = True
            self.exchange.client_writable(False)

    def _reset(self, code: Code) -> None:
        if not self._is_gone:
            self._is_gone = True
            self._connection.served.reset(self.number, code)
            self._connection.stir()

    def _pass_on(self) -> None:
        ahead, self._ahead = b"".join(self._ahead), []
        if ahead:
            self.exchange.raw_from_client(ahead)
        if self._is_heard and not self.exchange.is_over:
            self.exchange.raw_from_client(b"")


def _request(asked: Asked, now: float) -> Request:
    request = Request(now)
    request.version, request.scheme = "2", asked.scheme
    request.method, request.authority = asked.method, asked.authority
    request.target = request.path = asked.path
    request.headers = asked.headers
    request.length = -1 if asked.length is None else asked.length
    if asked.protocol:
        request.method, request.upgrade, request.length, request.is_complete = (
            b"GET",
            asked.protocol.lower(),
            None,
            True,
        )
    elif any(name == b"expect" for name, _ in asked.headers):
        expected = [value.strip().lower() for name, value in asked.headers if name == b"expect"]
        request.expects = b"100-continue" in expected
        request.headers = [each for each in asked.headers if each[0] != b"expect"]
    return request
