"""Bytes of a client to requests, by httptools, and refusals where they break the protocol. Pure; refuses to know routes.

Stricter than HTTP/1.1 asks: what two parsers could understand differently is no request at all (RFC 9112, 11.2).
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httptools

from reachline.proxy import flags
from reachline.proxy.flags import LocalReply
from reachline.proxy.message import Request

__all__ = ["Limits", "RequestReader"]

_AUTHORITY: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:@%\[\]-]*")
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
    underscores: str = "ALLOW"
    """ALLOW, REJECT_REQUEST or DROP_HEADER."""


class RequestReader:
    """One connection's bytes. Requests whose head is whole are in `inbox`; once `refusal` is set, nothing more is read."""

    __slots__ = ("_count", "_head", "_hosts", "_in_head", "_limits", "_nominated", "_now", "_parser", "_request", "inbox", "refusal", "rest")  # fmt: skip

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
            self.rest = data[error.args[0] :]
        except httptools.HttpParserCallbackError:
            if self.refusal is None:
                raise
        except httptools.HttpParserError:
            if self.refusal is None:
                self.refusal = flags.bad_request()
        if self._in_head and self.refusal is None:
            # Of a header that is not over nothing is told yet.
            self._head += len(data)
            if self._head > 2 * self._limits.head:
                self.refusal = flags.TOO_LARGE

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
            request.trailers.append((name, value))
        elif name not in _SPECIAL:
            request.headers.append((name, value))
        else:
            self._take(request, name, value)

    def on_headers_complete(self) -> None:
        parser, request = self._parser, self._request
        self._in_head, self._count = False, 0
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
            request.length = int(value)
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
        parts = urlsplit(target)
        if not self._limits.allow_absolute_url or parts.scheme not in {b"http", b"https"} or not parts.netloc:
            self._refuse(flags.bad_request())
        if _AUTHORITY.fullmatch(parts.netloc) is None or b"@" in parts.netloc:
            self._refuse(flags.bad_request())
        # RFC 9112, 3.2.2: it takes the place of the Host header.
        request.authority = parts.netloc
        request.path = target.split(b"://", 1)[1][len(parts.netloc) :] or b"/"
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


class _RefusedError(Exception):
    """Out of the parser; `refusal` says why."""


_SPECIAL: Final = _HOP | {b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"expect", b"te"}
_KEPT: Final = frozenset({b"close", b"keep-alive", b"upgrade", b"te", b"content-length", b"host"})
