"""Active checks by HTTP: status, body and headers judged as Envoy judges them, on a connection that may be kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final

from reachline.core.checking import Fault, Verdict
from reachline.errors import ConfigError, Problem, RemoteProtocolError
from reachline.talk.asking import GONE, Ask
from reachline.talk.secure import Secure
from reachline.wire import http1
from reachline.wire.request import Request

if TYPE_CHECKING:
    from reachline.wire.http2 import Exchange

__all__ = ["HttpCheck"]

_DEGRADED: Final = "x-envoy-degraded"
_IMMEDIATE: Final = "x-envoy-immediate-health-check-fail"
_USUAL: Final = ((200, 201),)
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH", "OPTIONS"})
_BODY_MOST: Final = 1 << 20
"""Bytes of a body that are searched where all of it is asked for."""
_OWN: Final = frozenset({"host", "content-length", "transfer-encoding"})
"""Headers that the check sets."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH: Final = re.compile(r"/[\x21-\x7e]*")
_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCheck:
    """`http_health_check`. Statuses are half-open ranges; expected ones win over retriable ones."""

    checker: ClassVar[str] = "HTTP"
    minds_idle_close: ClassVar[bool] = False
    by_connect: ClassVar[bool] = False
    path: str = "/"
    method: str = "GET"
    host: str = ""
    """Empty: the endpoint's hostname, or the cluster's name."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    send: bytes = b""
    expected_statuses: tuple[tuple[int, int], ...] = _USUAL
    retriable_statuses: tuple[tuple[int, int], ...] = ()
    receive: tuple[bytes, ...] = ()
    """Blocks that must be found one after another, with anything between them…"""
    response_buffer_size: int = 1_024
    """…in so many bytes of the body; 0: in all of it, a mebibyte at most."""
    version: str = "1.1"
    """Or `2`, which needs the package h2."""
    secure: Secure | None = None

    def __post_init__(self) -> None:
        """ConfigError names what Envoy, or HTTP, would refuse."""
        problems = [*_bad_ranges("expected_statuses", self.expected_statuses)]
        problems += _bad_ranges("retriable_statuses", self.retriable_statuses)
        if not _PATH.fullmatch(self.path):
            problems.append(_problem("path", self.path, "must begin with / and hold no spaces"))
        if not _TOKEN.fullmatch(self.method) or self.method == "CONNECT":
            problems.append(_problem("method", self.method, "must be an HTTP method other than CONNECT"))
        if self.send and self.method not in _WITH_BODY:
            rule = f"goes only with {', '.join(sorted(_WITH_BODY))}"
            problems.append(_problem("send", f"{len(self.send)} bytes with {self.method}", rule))
        problems += [
            _problem("headers", name, "must be a name and a value of one line")
            for name, value in (*self.headers, ("Host", self.host))
            if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value)
        ]
        problems += [
            _problem("headers", name, "is set by the check") for name, _ in self.headers if name.lower() in _OWN
        ]
        if self.version not in {"1.1", "2"}:
            problems.append(_problem("version", self.version, "must be 1.1 or 2"))
        elif self.version == "2":
            problems += _lack_of_h2()
        if problems:
            raise ConfigError(*problems)

    def ask(self, authority: str) -> Ask:
        host = self.host or authority
        given = {name.lower() for name, _ in self.headers}
        agent = () if "user-agent" in given else (("user-agent", "reachline-check"),)
        sized = (("content-length", str(len(self.send))),) if self.send else ()
        fields = (*agent, *sized, *self.headers)
        if self.version == "1.1":
            return _Http(self, host, fields)
        from reachline.wire.http2 import Exchange  # noqa: PLC0415  (only checks that ask for it pay for the library)

        scheme = "https" if self.secure else "http"
        asked = Request(self.method, scheme, host, self.path, fields, self.send)
        return _Http2(self, Exchange(asked, keep=self.kept))

    @property
    def kept(self) -> int:
        """Bytes of the body that are kept for a look."""
        return (self.response_buffer_size or _BODY_MOST) if self.receive else 0

    def judged(self, status: int, headers: Mapping[str, str], body: bytes) -> Verdict:
        """A whole answer."""
        if not _is_in(status, self.expected_statuses):
            return Verdict(
                Fault.ACTIVE,
                retriable=_is_in(status, self.retriable_statuses),
                excluded=_IMMEDIATE in headers,
                status=status,
                note=f"status {status}",
            )
        if not _holds(body, self.receive):
            return Verdict(Fault.ACTIVE, status=status, note="the body does not hold what is expected")
        return Verdict(degraded=_DEGRADED in headers, status=status)


class _Http:
    """HTTP/1.1: one of many requests on a connection."""

    __slots__ = ("_broken", "_check", "_request", "_response")

    def __init__(self, check: HttpCheck, host: str, fields: Sequence[tuple[str, str]]) -> None:
        lines = [
            f"{check.method} {check.path} HTTP/1.1",
            f"host: {host}",
            *(f"{name}: {value}" for name, value in fields),
        ]
        self._check = check
        self._request = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + check.send
        self._response = http1.Response(to_head=check.method == "HEAD", keep=check.kept)
        self._broken = ""

    @property
    def is_reusable(self) -> bool:
        response = self._response
        ends = response.headers.get("connection", "").lower()
        return response.done and not response.rest and "close" not in ends

    def begin(self) -> bytes:
        return self._request

    def received(self, data: bytes) -> bytes | None:
        try:
            self._response.feed(data)
        except RemoteProtocolError as error:
            self._broken = str(error)
            return None
        return None if self._response.done else b""

    def verdict(self, *, closed: bool = False) -> Verdict:
        response = self._response
        if closed and not self._broken:
            try:
                self._broken = "" if response.ended() else GONE
            except RemoteProtocolError as error:
                self._broken = str(error)
        if self._broken:
            return Verdict(Fault.NETWORK, note=self._broken)
        return self._check.judged(response.status, response.headers, bytes(response.kept))


class _Http2:
    """HTTP/2: a connection for each check."""

    is_reusable: ClassVar[bool] = False
    __slots__ = ("_check", "_exchange")

    def __init__(self, check: HttpCheck, exchange: Exchange) -> None:
        self._check, self._exchange = check, exchange

    def begin(self) -> bytes:
        return self._exchange.begin()

    def received(self, data: bytes) -> bytes | None:
        reply = self._exchange.heard(data)
        return None if self._exchange.done else reply

    def verdict(self, *, closed: bool = False) -> Verdict:
        exchange = self._exchange
        if not exchange.done:
            return Verdict(Fault.NETWORK, note=exchange.broken or (GONE if closed else "no whole answer"))
        return self._check.judged(exchange.status, exchange.headers, bytes(exchange.kept))


def _is_in(status: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= status < end for start, end in ranges)


def _holds(body: bytes, blocks: Sequence[bytes]) -> bool:
    """Whether the blocks follow one another in the body, gaps allowed."""
    at = 0
    for block in blocks:
        found = body.find(block, at)
        if found < 0:
            return False
        at = found + len(block)
    return True


def _bad_ranges(name: str, ranges: Sequence[tuple[int, int]]) -> list[Problem]:
    return [
        _problem(name, f"[{start}, {end})", "must be a range of statuses in [100, 600) that is not empty")
        for start, end in ranges
        if not 100 <= start < end <= 600
    ]


def _lack_of_h2() -> list[Problem]:
    try:
        from reachline.wire import http2  # noqa: F401, PLC0415  (only checks that ask for it pay for the library)
    except ImportError:
        return [replace(_problem("version", "2", "needs the package h2"), hint="pip install 'reachline[cli]'")]
    return []


def _problem(name: str, value: str, rule: str) -> Problem:
    return Problem(place="http check", path=name, value=value, rule=rule)
