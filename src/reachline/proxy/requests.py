"""Bytes of a client to requests, by httptools, and refusals where they break the protocol. Pure; refuses to know routes.

Stricter than HTTP/1.1 asks: what two parsers could understand differently is no request at all (RFC 9112, 11.2).
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, NamedTuple

import httptools

from reachline.proxy import flags
from reachline.proxy.flags import LocalReply
from reachline.proxy.message import Request

__all__ = ["Limits", "RequestReader"]

_AUTHORITY: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:@%\[\]-]*")
_ABSOLUTE: Final = re.compile(rb"(?:http|https)://(\[[^/?\[\]]*\](?::[0-9]*)?|[^/?\[\]]+)(/.*|\?.*|)", re.IGNORECASE)
_DIGITS: Final = 19
"""Of a length at most, zeros before it too: one more is beyond 64 bits."""
_HOP: Final = frozenset({b"keep-alive", b"proxy-connection"})
"""Of one connection, without a meaning here."""
_TOKENS: Final = re.compile(rb"[^,\s][^,]*")
_UNSUPPORTED_CODING: Final = LocalReply(501, b"Not Implemented", "DPE", closes=True, details="http1.codec_error")
_UNDERSCORE: Final = LocalReply(400, b"Bad Request", "DPE", closes=True, details="http1.unexpected_underscore")


class Limits(NamedTuple):
    """What of a request is taken."""

    head: int = 60 << 10
    """Bytes of request line and headers."""
    headers: int = 100
    accept_http_10: bool = False
    default_host: bytes = b""
    """Of HTTP/1.0 requests without one."""
    allow_absolute_url: bool = True
    trailers: bool = True
    """Whether they are kept."""
    underscores: str = "ALLOW"
    """ALLOW, REJECT_REQUEST or DROP_HEADER."""


class RequestReader:
    """One connection's bytes. Requests whose head is whole are in `inbox`; once `refusal` is set, nothing more is read."""

    __slots__ = (
        "_count", "_head", "_hosts", "_in_head", "_limits", "_nominated", "_now", "_parser", "_request", "_seen", "_stalled",
        "inbox", "refusal", "rest",
    )  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self.inbox: deque[Request] = deque()
        self.refusal: LocalReply | None = None
        self.rest: bytes | None = None
        """What follows a request that asks for another protocol; until `resume`, nothing more is read."""
        self._limits: Final = limits
        self._parser = httptools.HttpRequestParser(self)
        self._now = 0.0
        self._request = Request(0.0)
        self._in_head = False
        self._head = self._count = 0
        self._seen = self._stalled = 0
        """Bytes of a body so far, -1: its head began with the last that came; and how many came since without one of its own."""
        self._hosts = 0
        self._nominated: list[bytes] = []

    @property
    def is_amid_head(self) -> bool:
        """Whether a request has begun whose headers are not here yet."""
        return self._in_head

    def feed(self, data: bytes, now: float) -> None:
        """Take what arrived."""
        self._now = now
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            self._leave_off(data[error.args[0] :])
        except httptools.HttpParserCallbackError:
            if self.refusal is None:
                raise
        except httptools.HttpParserError:
            if self.refusal is None:
                self.refusal = flags.bad_request()
        if not self._request.is_complete and self.refusal is None:
            self._bound(len(data))

    def resume(self) -> None:
        """The other protocol is not spoken: what follows are requests as before."""
        rest, self.rest = self.rest or b"", None
        self._parser = httptools.HttpRequestParser(self)
        if rest:
            self.feed(rest, self._now)

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._request = Request(self._now)
        self._in_head, self._head, self._count, self._hosts = True, 0, 0, 0
        self._seen, self._stalled = -1, 0
        self._nominated = []

    def on_url(self, url: bytes) -> None:
        self._request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        self._head += len(name) + len(value)
        if self._count > self._limits.headers or self._head > self._limits.head:
            self._refuse(flags.TOO_LARGE)
        name = name.lower()
        request = self._request
        if not self._in_head:
            if self._limits.trailers:
                request.trailers.append((name, value))
        elif name not in _SPECIAL:
            request.headers.append((name, value))
        else:
            self._take(request, name, value)

    def on_headers_complete(self) -> None:
        parser, request = self._parser, self._request
        self._in_head, self._count, self._seen, self._stalled = False, 0, 0, 0
        request.method, request.version = parser.get_method(), parser.get_http_version()
        request.keeps = parser.should_keep_alive()
        if request.version != "1.1":
            self._check_version(request)
        target = request.target
        if target[:1] != b"/":
            self._other_form(request)
        else:
            request.path = target
        if len(target) > self._limits.head:
            self._refuse(flags.TOO_LARGE)
        if b"#" in target:
            self._refuse(flags.BAD_PATH)
        if self._hosts != 1 and (self._hosts or not request.authority):
            self._refuse(flags.bad_request() if self._hosts else flags.NO_HOST)
        if self._nominated:
            self._drop_nominated(request)
        elif request.upgrade:
            request.upgrade = b""  # RFC 9110, 7.8: only with `Connection` it is a wish of this connection's
        if self._limits.underscores != "ALLOW":
            self._look_at_underscores(request)
        self.inbox.append(request)

    def on_body(self, data: bytes) -> None:
        request = self._request
        request.chunks.append(data)
        request.size += len(data)

    def on_message_complete(self) -> None:
        self._request.is_complete = True

    # Inside.

    def _bound(self, size: int) -> None:
        """Of a header that is not over nothing is told yet, nor of a trailer or what else stands between the chunks of a body."""
        if self._request.size > self._seen:
            # There is progress; of a head that has just begun most bytes may be those of requests before it.
            self._seen, self._stalled = self._request.size, 0
            return
        self._stalled += size
        if self._stalled > 2 * self._limits.head:
            self.refusal = flags.TOO_LARGE

    def _leave_off(self, rest: bytes) -> None:
        """The parser stopped behind a head that asks for another protocol, with a body of it unread, if there is one.

        That body is the request's: who sends one asks for no other protocol, and what follows it are requests.
        """
        request = self._request
        if not request.length or request.method == b"CONNECT":
            self.rest = rest
            return
        request.upgrade, request.is_complete = b"", False
        resumed = _Resumed(self)
        self._parser = httptools.HttpRequestParser(resumed)
        framing = b"transfer-encoding: chunked" if request.is_chunked else b"content-length: %d" % request.length
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")
        resumed.is_told = True
        if rest:
            self.feed(rest, self._now)

    def _refuse(self, reply: LocalReply) -> None:
        """Nothing more of this connection is read."""
        self.refusal = reply
        raise _RefusedError

    def _take(self, request: Request, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
            if _AUTHORITY.fullmatch(value) is None:
                self._refuse(flags.bad_request())
            request.authority = value
        elif name == b"content-length":
            request.length = self._number(value)
            request.headers.append((name, value))
        elif name == b"transfer-encoding":
            if value.strip().lower() != b"chunked":
                self._refuse(_UNSUPPORTED_CODING)
            request.length = -1
        elif name == b"connection":
            self._nominated += (each.strip().lower() for each in _TOKENS.findall(value))
        elif name == b"upgrade":
            request.upgrade = value.strip().lower()
        elif name == b"expect":
            request.expects = value.strip().lower() == b"100-continue"
        elif name == b"te" and b"trailers" in (each.strip().lower() for each in _TOKENS.findall(value)):
            request.headers.append((name, b"trailers"))

    def _number(self, value: bytes) -> int:
        if len(value) > _DIGITS:
            self._refuse(flags.bad_request())
        return int(value)

    def _check_version(self, request: Request) -> None:
        if request.version != "1.0":
            self._refuse(flags.bad_request())
        if not self._limits.accept_http_10:
            self._refuse(flags.UPGRADE_REQUIRED)
        if request.is_chunked:
            self._refuse(flags.bad_request())
        if not self._hosts:
            request.authority = self._limits.default_host
        request.expects = False

    def _other_form(self, request: Request) -> None:
        """Absolute form, authority form (CONNECT) or `*`."""
        target = request.target
        if request.method == b"CONNECT":
            request.authority, request.path = target, b""
            return
        if target == b"*":
            request.path = b"*"
            return
        parts = _ABSOLUTE.fullmatch(target)
        if not self._limits.allow_absolute_url or parts is None:
            self._refuse(flags.bad_request())
            return
        if _AUTHORITY.fullmatch(parts[1]) is None or b"@" in parts[1]:
            self._refuse(flags.bad_request())
        # RFC 9112, 3.2.2: it takes the place of the Host header.
        request.authority, request.path = parts[1], parts[2] or b"/"
        if request.path[:1] != b"/":
            request.path = b"/" + request.path

    def _drop_nominated(self, request: Request) -> None:
        """Headers that `Connection` names are this connection's; nothing can be done without some of them."""
        names = self._nominated
        if b"upgrade" not in names:
            request.upgrade = b""
        dropped = {name for name in names if name not in _KEPT}
        if dropped:
            request.headers = [each for each in request.headers if each[0] not in dropped]

    def _look_at_underscores(self, request: Request) -> None:
        sound = [each for each in request.headers if b"_" not in each[0]]
        if len(sound) < len(request.headers):
            if self._limits.underscores == "REJECT_REQUEST":
                self._refuse(_UNDERSCORE)
            request.headers = sound


class _Resumed:
    """Callbacks of a parser that goes on within a body: the head that brings it there is nobody's."""

    __slots__ = ("_reader", "is_told")

    def __init__(self, reader: RequestReader) -> None:
        self._reader: Final = reader
        self.is_told = False

    def on_message_begin(self) -> None:
        if self.is_told:
            self._reader.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self.is_told:
            self._reader.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_told:
            self._reader.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.is_told:
            self._reader.on_headers_complete()

    def on_body(self, data: bytes) -> None:
        self._reader.on_body(data)

    def on_message_complete(self) -> None:
        self._reader.on_message_complete()


class _RefusedError(Exception):
    """Out of the parser; `refusal` says why."""


_SPECIAL: Final = _HOP | {b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect", b"te"}
_KEPT: Final = frozenset({b"close", b"keep-alive", b"upgrade", b"te", b"content-length", b"host"})
