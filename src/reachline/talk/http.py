"""HTTP: one request on a new connection, one response judged by status and body. Redirects are answers, not followed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from reachline.errors import LocalProtocolError, RemoteProtocolError
from reachline.model import Endpoint, Failure
from reachline.talk.literal import literal
from reachline.talk.options import Options, listed
from reachline.talk.secure import Secure
from reachline.talk.way import Way, needs_port
from reachline.wire import http1
from reachline.wire.request import Request

if TYPE_CHECKING:
    from reachline.talk.http2 import Http2Talk

__all__ = ["HttpProbe", "HttpTalk", "authority", "header_lines", "host_name", "is_secure", "ranges"]

BODY_LIMIT: Final = 64 << 10
"""Bytes of the body read by default: a health page is a few; more is not needed to know that it is served."""
_MAX_BODY: Final = 16 << 20
_NO_HEADERS: Final[tuple[tuple[str, str], ...]] = ()
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests say how long their body is, also where there is none."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(r"[!-~]+")
_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpProbe:
    """Options: version, method, path, host, headers, data, expect, body, limit, tls; with TLS also sni, alpn, expect_alpn, verify,
    ca, min_tls.
    """

    way: ClassVar[Way] = Way.STREAM
    secure: Secure | None
    asked: Request = field(repr=False)
    request: bytes = field(repr=False)
    """The same as bytes of HTTP/1.1."""
    is_second: bool
    """HTTP/2: agreed on by ALPN, or by prior knowledge where there is no TLS."""
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
        is_second = options.parsed("version", "1.1", _version) == "2"
        secure = _secure(endpoint, options, is_second=is_second) if is_secure(endpoint, options) else None
        asked = _asked(endpoint, options, is_secure=bool(secure))
        if is_second:
            _check_second(asked, options)
        return cls(
            secure=secure,
            asked=asked,
            request=http1.request(asked.method, asked.path, asked.authority, asked.headers) + asked.body,
            is_second=is_second,
            to_head=asked.method == "HEAD",
            expect=options.parsed("expect", ((200, 399),), ranges),
            body=options.parsed("body", b"", str.encode),
            limit=options.number("limit", BODY_LIMIT, low=0, high=_MAX_BODY),
        )

    def where(self, endpoint: Endpoint) -> Endpoint:
        return endpoint

    def talk(self, endpoint: Endpoint, nonce: int) -> HttpTalk | Http2Talk:
        del endpoint, nonce
        if not self.is_second:
            return HttpTalk(self)
        from reachline.talk.http2 import Http2Talk  # noqa: PLC0415  (only probes that ask for it pay for the library)

        return Http2Talk(self)

    def unexpected(self, status: int, *, found: bool) -> str:
        """What is wrong with a whole answer, in words; empty where it is as expected."""
        if not any(low <= status <= high for low, high in self.expect):
            return f"status {status}"
        return "" if found else "the body does not contain what is expected"


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
        self.note = self._probe.unexpected(self._response.status, found=self._found)
        return Failure.STATUS if self.note else None


def ranges(text: str) -> tuple[tuple[int, int], ...]:
    """`200-299,404` as ((200, 299), (404, 404)); ValueError says the rule."""
    found = []
    for part in listed(text):
        match = re.fullmatch(r"([1-5][0-9]{2})(?:\s*-\s*([1-5][0-9]{2}))?|([1-5])xx", part)
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


def is_secure(endpoint: Endpoint, options: Options) -> bool:
    """By scheme; for a target that does not say (tcp://), by its port."""
    by_default = endpoint.scheme in {"https", "tls", "grpcs"} or (endpoint.scheme == "tcp" and endpoint.port == 443)
    return options.flag("tls", by_default)


def _secure(endpoint: Endpoint, options: Options, *, is_second: bool) -> Secure:
    if is_second:
        return Secure.read(endpoint, options, alpn="h2", must="h2")
    return Secure.read(endpoint, options, alpn="http/1.1")


def _asked(endpoint: Endpoint, options: Options, *, is_secure: bool) -> Request:
    method = options.parsed("method", "GET", _method)
    data = options.parsed("data", b"", literal)
    headers = options.parsed("headers", _NO_HEADERS, header_lines)
    if data or method in _WITH_BODY:
        headers = (*headers, ("Content-Length", str(len(data))))
    given = {name.lower() for name, _ in headers}
    headers = (*(field for field in http1.USUAL if field[0].lower() not in given), *headers)
    at_home = endpoint.path if endpoint.scheme in {"http", "https"} else ""
    return Request(
        method=method,
        scheme="https" if is_secure else "http",
        authority=options.parsed("host", authority(endpoint, is_secure=is_secure), host_name),
        path=options.parsed("path", at_home or "/", _path),
        headers=headers,
        body=data,
    )


def _check_second(asked: Request, options: Options) -> None:
    """Problems of a request that HTTP/2 cannot carry, or where the library is missing."""
    try:
        from reachline.wire import http2  # noqa: PLC0415  (only probes that ask for it pay for the library)
    except ImportError:
        options.refuse("version", "2 needs the package h2", "pip install 'reachline[cli]'")
        return
    try:
        http2.check(asked)
    except LocalProtocolError as error:
        options.refuse("headers", str(error))


def _version(text: str) -> str:
    if text not in {"1.1", "2"}:
        raise ValueError("must be 1.1 or 2")
    return text


def authority(endpoint: Endpoint, *, is_secure: bool) -> str:
    """The Host header of a target: without the port that its scheme means anyway."""
    name = endpoint.host.partition("%")[0]
    name = f"[{name}]" if ":" in name else name
    return name if endpoint.port == (443 if is_secure else 80) else f"{name}:{endpoint.port}"


def _method(text: str) -> str:
    if not _TOKEN.fullmatch(text) or text.upper() == "CONNECT":
        raise ValueError("must be an HTTP method, e.g. GET or HEAD")
    return text.upper()


def _path(text: str) -> str:
    if not text.startswith("/") or not _TARGET.fullmatch(text):
        raise ValueError("must be a path that begins with /, without spaces")
    return text


def host_name(text: str) -> str:
    """A host as headers name it; ValueError says the rule."""
    if not _TARGET.fullmatch(text):
        raise ValueError("must be a host name, e.g. api.example")
    return text


def header_lines(text: str) -> tuple[tuple[str, str], ...]:
    """Lines of `Name: value`; ValueError says the rule."""
    found = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value.strip()):
            raise ValueError("must be lines of `Name: value`")
        if name.lower() in {"host", "content-length", "transfer-encoding"}:
            raise ValueError(f"must not set {name}: the probe does")
        found.append((name, value.strip()))
    return tuple(found)
