"""One exchange on an endpoint's HTTP/2 connection: the counterpart of `channel` for HTTP/1.1."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from reachline.errors import LocalProtocolError
from reachline.proxy import flags
from reachline.proxy.flags import Lost
from reachline.proxy.http2.events import Answered, Asked, Body, Ended
from reachline.proxy.http2.limits import Code
from reachline.proxy.message import Answer, Headers, Request, first

if TYPE_CHECKING:
    from reachline.proxy.carrier import Carrier
    from reachline.proxy.channel import Caller

__all__ = ["EndpointStream"]

_SWITCHING: Final = 101
_OK: Final = 200
_BODILESS: Final = frozenset({204, 304})
_MUCH: Final = 1 << 16
"""Bytes of a request that wait for the endpoint before the client is asked to wait: as much as one read brings."""
_SCHEMES: Final = frozenset({b"http", b"https"})


class EndpointStream:
    """One exchange on a carrier. Written by both, in one thread."""

    __slots__ = (
        "_carrier",
        "_head_only",
        "_is_full",
        "_is_http_1",
        "_is_over",
        "_is_raw",
        "_is_told",
        "_number",
        "_upgrade",
        "answer",
        "caller",
    )

    def __init__(self, carrier: Carrier) -> None:
        self._carrier: Final = carrier
        self._number = 0
        self._is_told = False
        """Whether the exchange has heard of the answer's head."""
        self._is_full = self._is_over = self._is_raw = self._is_http_1 = self._head_only = False
        """Whether too much waits for the endpoint; whether nobody listens any more; whether another protocol is spoken; whether the
        client speaks HTTP/1; whether it asked for the head alone."""
        self._upgrade = b""
        self.answer: Final = Answer()
        self.caller: Caller | None = None

    # What the exchange calls.

    def ask(self, caller: Caller, request: Request, headers: Headers, body: list[bytes]) -> Answer:
        """Send a request with these headers, and what there is of its body; what comes back fills the answer."""
        self.caller, asking = caller, self._carrier.asking
        self._is_http_1, self._head_only, self._upgrade = (
            request.version != "2",
            request.method == b"HEAD",
            request.upgrade,
        )
        has_body = bool(body or request.trailers)
        is_whole = request.is_complete and not request.upgrade
        try:
            self._number = asking.ask(_fields(caller, request, headers), is_whole and not has_body)
        except LocalProtocolError:  # a header that HTTP/2 has no words for
            self._fail_soon()
            return self.answer
        self._carrier.put(self, self._number)
        if request.upgrade and not asking.takes_connect:
            asking.reset(self._number, Code.CANCEL)
            self._fail_soon()
        elif has_body:
            self.more(request, body)
        self._carrier.stir()
        return self.answer

    def more(self, request: Request, body: list[bytes]) -> None:
        """Send more of the request's body, and its end where it is here whole."""
        asking = self._carrier.asking
        is_whole = request.is_complete and not request.upgrade
        is_last = is_whole and not request.trailers
        if body or is_last:
            self._fill(asking.body(self._number, b"".join(body), is_last))
        if is_whole and request.trailers:
            try:
                asking.trailers(self._number, request.trailers)
            except LocalProtocolError:
                asking.body(self._number, b"", end=True)
        self._carrier.stir()

    def write_raw(self, data: bytes) -> None:
        """Send bytes of another protocol; empty: there are no more."""
        self._fill(self._carrier.asking.body(self._number, data, not data))
        self._carrier.stir()

    def hold(self, is_held: bool) -> None:
        """Take no more than the endpoint may send already, or go on."""
        asking = self._carrier.asking
        (asking.hold if is_held else asking.go_on)(self._number)
        self._carrier.stir()

    def release(self) -> None:
        """The answer is here whole."""
        self._leave()

    def abort(self) -> None:
        """End it at once; nobody is told."""
        if not self._is_over:
            self._carrier.asking.reset(self._number, Code.CANCEL)
            self._leave()

    # What the carrier calls.

    def take(self, event: Asked | Answered | Body | Ended) -> None:
        """More of the answer."""
        match event:
            case Answered() if event.status >= _OK:
                self._begin(event)
            case Body():
                self.answer.chunks.append(event.data)
            case Ended():
                self._end(event.trailers)
            case _:
                pass  # an interim answer, which nobody waits for

    def serve(self) -> None:
        """Tell of what came."""
        caller, answer = self.caller, self.answer
        if caller is None or not answer.is_begun:
            return
        self._is_told = True
        if not self._is_raw:
            if answer.status != _SWITCHING:
                caller.heard()
                return
            ahead, answer.chunks, is_whole, answer.is_complete = answer.chunks, [], answer.is_complete, False
            self._is_raw = True
            caller.heard()
            answer.chunks, answer.is_complete = ahead, is_whole
        data, answer.chunks = b"".join(answer.chunks), []
        if data and self.caller is caller:
            caller.raw(data)
        if answer.is_complete and self.caller is caller:
            caller.raw(b"")

    def lose(self, lost: Lost) -> None:
        """There will be no whole answer."""
        caller = self.caller
        if self.answer.is_complete:
            return  # the rest of the request is not wanted; whoever asked knows by the answer
        self._leave()
        if caller is not None:
            caller.lost(lost)

    def writable(self) -> None:
        """What waited is sent."""
        if self._is_full:
            self._is_full = False
            if self.caller is not None:
                self.caller.endpoint_writable(True)

    # Inside.

    def _begin(self, said: Answered) -> None:
        answer = self.answer
        is_switched = bool(self._upgrade) and said.status == _OK
        answer.status = _SWITCHING if is_switched else said.status
        answer.headers = said.headers
        answer.length = -1 if said.length is None else said.length
        answer.is_begun = True

    def _end(self, trailers: Headers) -> None:
        answer = self.answer
        answer.trailers, answer.is_complete = trailers, True
        bare = answer.length == -1 and not answer.chunks and not trailers and not self._head_only
        if bare and self._is_http_1 and not self._is_raw and not self._is_told and answer.status not in _BODILESS:
            # Said of HTTP/1 alone: by HTTP/2 an end is an end.
            answer.length = 0
            answer.headers = [*answer.headers, (b"content-length", b"0")]

    def _fill(self, pending: int) -> None:
        if pending > _MUCH and not self._is_full and self.caller is not None:
            self._is_full = True
            self.caller.endpoint_writable(False)

    def _fail_soon(self) -> None:
        """Not from within the call that asks: who asks has no answer yet that could fail."""
        asyncio.get_running_loop().call_soon(self.lose, flags.PROTOCOL)

    def _leave(self) -> None:
        self.caller = None
        if not self._is_over:
            self._is_over = True
            self._carrier.over(self._number)


def _fields(caller: Caller, request: Request, headers: Headers) -> Headers:
    """A request's header list, pseudo-headers first."""
    assert caller.way is not None
    scheme = request.scheme or first(headers, b"x-forwarded-proto") or b""
    pseudo = [
        (b":method", b"CONNECT" if request.upgrade else request.method),
        (b":scheme", scheme if scheme in _SCHEMES else b"http"),
        (b":authority", caller.host),
        (b":path", caller.way.path),
    ]
    if request.upgrade:
        pseudo.insert(1, (b":protocol", request.upgrade))
    return [*pseudo, *headers]
