"""HTTP: one request on a new connection, one response judged by status and body. Redirects are answers, not followed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from reachline.errors import RemoteProtocolError
from reachline.model import Endpoint, Failure
from reachline.talk.options import Options, listed
from reachline.talk.secure import Secure
from reachline.talk.way import Way, needs_port
from reachline.wire import http1

__all__ = ["HttpProbe", "HttpTalk", "ranges"]

BODY_LIMIT: Final = 64 << 10
"""Bytes of the body read by default: a health page is a few; more is not needed to know that it is served."""
_MAX_BODY: Final = 16 << 20
_NO_HEADERS: Final[tuple[tuple[str, str], ...]] = ()
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(r"[!-~]+")
_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpProbe:
    """Options: method, path, host, headers, expect, body, limit, tls; with TLS also sni, alpn, expect_alpn, verify, ca, min_tls."""

    way: ClassVar[Way] = Way.STREAM
    secure: Secure | None
    request: bytes
    to_head: bool
    expect: tuple[tuple[int, int], ...]
    """Status ranges that are ok, both ends included."""
    body: bytes
    """What the body must contain; empty: anything."""
    limit: int
    """Bytes of the body that are read, then the connection is closed."""

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options) -> HttpProbe:
        needs_port(endpoint, options)
        secure = Secure.read(endpoint, options, alpn="http/1.1") if _is_secure(endpoint, options) else None
        method = options.parsed("method", "GET", _method)
        path = options.parsed("path", endpoint.path or "/", _path)
        host = options.parsed("host", _host(endpoint, bool(secure)), _host_header)
        headers = options.parsed("headers", _NO_HEADERS, _headers)
        return cls(
            secure=secure,
            request=http1.request(method, path, host, headers),
            to_head=method == "HEAD",
            expect=options.parsed("expect", ((200, 399),), ranges),
            body=options.text("body").encode(),
            limit=options.number("limit", BODY_LIMIT, low=0, high=_MAX_BODY),
        )

    def where(self, endpoint: Endpoint) -> Endpoint:
        return endpoint

    def talk(self, endpoint: Endpoint, nonce: int) -> HttpTalk:
        del endpoint, nonce
        return HttpTalk(self)


class HttpTalk:
    """One request and its response."""

    answered: ClassVar[bool] = True
    __slots__ = ("_broken", "_found", "_probe", "_response", "_searched", "note", "status")

    def __init__(self, probe: HttpProbe) -> None:
        self.status = 0
        self.note = ""
        self._probe = probe
        self._response = http1.Response(to_head=probe.to_head, keep=probe.limit if probe.body else 0)
        self._found = not probe.body
        self._searched = 0
        self._broken = ""

    def begin(self) -> bytes:
        return self._probe.request

    def received(self, data: bytes) -> bytes | None:
        response = self._response
        try:
            response.feed(data)
        except RemoteProtocolError as error:
            self._broken = str(error)
            return None
        self.status = response.status
        if not self._found:
            self._search()
        over = response.done or (response.status and response.size >= self._probe.limit)
        return None if over else b""

    def closed(self) -> Failure | None:
        return self._broken_off() or self._unexpected()

    def _search(self) -> None:
        """Look at what is new of the body; a hit may straddle two reads."""
        needle, kept = self._probe.body, self._response.kept
        self._found = kept.find(needle, max(0, self._searched - len(needle))) >= 0
        self._searched = len(kept)

    def _broken_off(self) -> Failure | None:
        response = self._response
        if not self._broken and not response.started:
            self.note = "closed without an answer"
            return Failure.RESET
        if not self._broken and not (response.status and response.size >= self._probe.limit):
            try:
                response.ended()
            except RemoteProtocolError as error:
                self._broken = str(error)
        self.note = self._broken
        return Failure.PROTOCOL if self._broken else None

    def _unexpected(self) -> Failure | None:
        status = self._response.status
        if not any(low <= status <= high for low, high in self._probe.expect):
            self.note = f"status {status}"
            return Failure.STATUS
        if not self._found:
            self.note = "the body does not contain what is expected"
            return Failure.STATUS
        return None


def ranges(text: str) -> tuple[tuple[int, int], ...]:
    """`200-299,404` as ((200, 299), (404, 404)); ValueError says the rule."""
    found = []
    for part in listed(text):
        match = re.fullmatch(r"([1-5]\d\d)(?:\s*-\s*([1-5]\d\d))?|([1-5])xx", part)
        if not match:
            raise ValueError("must be statuses or ranges of them, e.g. 200-299,404 or 2xx")
        low, high, hundreds = match.groups()
        span = (int(hundreds) * 100, int(hundreds) * 100 + 99) if hundreds else (int(low), int(high or low))
        if span[0] > span[1]:
            raise ValueError("must be ranges that go up, e.g. 200-299")
        found.append(span)
    if not found:
        raise ValueError("must name at least one status")
    return tuple(found)


def _is_secure(endpoint: Endpoint, options: Options) -> bool:
    """By scheme; for a target that does not say (tcp://), by its port."""
    by_default = endpoint.scheme in {"https", "tls"} or (endpoint.scheme != "http" and endpoint.port == 443)
    return options.flag("tls", by_default)


def _host(endpoint: Endpoint, secure: bool) -> str:
    name = endpoint.host.partition("%")[0]
    name = f"[{name}]" if ":" in name else name
    return name if endpoint.port == (443 if secure else 80) else f"{name}:{endpoint.port}"


def _method(text: str) -> str:
    if not _TOKEN.fullmatch(text) or text.upper() == "CONNECT":
        raise ValueError("must be an HTTP method, e.g. GET or HEAD")
    return text.upper()


def _path(text: str) -> str:
    if not text.startswith("/") or not _TARGET.fullmatch(text):
        raise ValueError("must be a path that begins with /, without spaces")
    return text


def _host_header(text: str) -> str:
    if not _TARGET.fullmatch(text):
        raise ValueError("must be a host name, e.g. api.example")
    return text


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value.strip()):
            raise ValueError("must be lines of `Name: value`")
        if name.lower() in {"host", "content-length", "transfer-encoding"}:
            raise ValueError(f"must not set {name}: the probe does")
        found.append((name, value.strip()))
    return tuple(found)
