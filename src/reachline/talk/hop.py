"""Ways out through proxies: what a hop is, what is said to it, and what its answer means for the line.

The engine owns the order of hops and their TLS; a hop's talk is one conversation that ends with yes or with a failure.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Protocol

from reachline.abc import Talk
from reachline.errors import RemoteProtocolError
from reachline.model import Endpoint, Failure, Kind
from reachline.talk.secure import Secure
from reachline.wire import http1, socks5

__all__ = ["Hop", "HopTalk", "Scheme", "why_not"]


class Scheme(StrEnum):
    """How a proxy is spoken to."""

    SOCKS5 = "socks5"
    """Gets addresses: names are resolved here."""
    SOCKS5H = "socks5h"
    """Gets names, and resolves them."""
    HTTP = "http"
    """CONNECT; gets names."""
    HTTPS = "https"
    """CONNECT inside TLS; gets names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One proxy to go through. As text it is its URL without user and password."""

    scheme: Scheme
    endpoint: Endpoint
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    secure: Secure | None = None
    """The TLS to speak with the proxy itself."""

    def __str__(self) -> str:
        return str(self.endpoint)

    @property
    def resolves_here(self) -> bool:
        """Whether it is handed an address where the next one is a name."""
        return self.scheme is Scheme.SOCKS5

    def talk(self, host: str, port: int) -> HopTalk:
        """The conversation that asks for a connection to `host:port`."""
        if self.scheme in {Scheme.SOCKS5, Scheme.SOCKS5H}:
            return _Socks(socks5.Connect(host, port, user=self.user, password=self.password))
        return _Tunnel(host, port, user=self.user, password=self.password)


class HopTalk(Talk, Protocol):
    """A talk with a proxy. Its verdict is PROXY where the proxy itself is at fault, else what it tells of the other side."""

    @property
    def asked(self) -> bool:
        """Whether the request to connect is out: from here on the proxy may be waiting for the other side."""

    @property
    def note(self) -> str:
        """The failure in words once `closed` was asked, else empty."""

    @property
    def rest(self) -> bytes:
        """What came behind the proxy's yes: the other side spoke first."""


_TOLD: Final = {
    3: Failure.UNREACHABLE,
    4: Failure.UNREACHABLE,
    5: Failure.REFUSED,
    6: Failure.TIMEOUT,
}
"""SOCKS5 replies that tell of the other side; all others are the proxy's own. Proxies say 6 (TTL expired) when their own
connect got no answer.
"""


class _Socks:
    """SOCKS5: greeting, sign-in, CONNECT."""

    __slots__ = ("_broken", "_connect", "note")

    def __init__(self, connect: socks5.Connect) -> None:
        self.note = ""
        self._connect = connect
        self._broken = ""

    @property
    def asked(self) -> bool:
        return self._connect.asked

    @property
    def rest(self) -> bytes:
        return self._connect.rest

    def begin(self) -> bytes:
        return self._connect.begin()

    def received(self, data: bytes) -> bytes | None:
        try:
            return self._connect.received(data)
        except RemoteProtocolError as error:
            self._broken = str(error)
            return None

    def closed(self) -> Failure | None:
        reply = self._connect.reply
        if reply == socks5.SUCCEEDED:
            return None
        if self._broken or reply is None:
            self.note = self._broken or "closed without an answer"
            return Failure.PROXY
        if reply == socks5.REFUSED_SIGN_IN:
            self.note = self._connect.refusal
            return Failure.PROXY
        self.note = socks5.REPLIES.get(reply, f"reply {reply}")
        return _TOLD.get(reply, Failure.PROXY)


class _Tunnel:
    """HTTP CONNECT (RFC 9110, 9.3.6)."""

    __slots__ = ("_broken", "_first", "_has_user", "_request", "_response", "asked", "note")

    def __init__(self, host: str, port: int, *, user: str, password: str) -> None:
        self.asked = False
        self.note = ""
        self._broken = ""
        self._first = b""
        """The beginning of the answer: its first line says what a status does not."""
        self._has_user = bool(user)
        self._request = _connect(host, port, user=user, password=password)
        # A yes has no body whatever its headers say; that of a no is of no use.
        self._response = http1.Response(to_head=True)

    @property
    def rest(self) -> bytes:
        return self._response.rest

    def begin(self) -> bytes:
        self.asked = True
        return self._request

    def received(self, data: bytes) -> bytes | None:
        self._first += data[: _LONGEST - len(self._first)]
        try:
            self._response.feed(data)
        except RemoteProtocolError as error:
            self._broken = str(error)
            return None
        return None if self._response.done else b""

    def closed(self) -> Failure | None:
        response = self._response
        if self._broken or not response.status:
            self.note = self._broken or ("closed within the header" if response.started else "closed without an answer")
            return Failure.PROXY
        if 200 <= response.status < 300:
            return None
        reason = _reason(self._first, response.status)
        self.note = f"status {response.status} {reason}".rstrip()
        if response.status in _SIGN_IN:
            self.note = f"{'refuses the' if self._has_user else 'asks for a'} user and password ({self.note})"
            return Failure.PROXY
        return self._told(response, reason)

    def _told(self, response: http1.Response, reason: str) -> Failure:
        """What a no says of the other side: by the headers that say it exactly, else by its status line."""
        headers = response.headers
        if (failure := _by_squid(headers.get("x-squid-error", ""))) or (
            failure := _by_status_header(headers.get("proxy-status", ""))
        ):
            self.note = f"{_WORDS[failure]} ({self.note})"
            return failure
        return _BY_REASON.get(reason) or _BY_STATUS.get(response.status, Failure.PROXY)


_LONGEST: Final = 200
"""Bytes of the answer kept for its first line."""
_WIDEST: Final = 60
"""Characters of a proxy's own words that are told."""
_SIGN_IN: Final = frozenset((HTTPStatus.UNAUTHORIZED, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED))
"""tinyproxy asks with the one and refuses with the other."""
_BY_REASON: Final = {"Unable to connect": Failure.UNREACHABLE}
"""tinyproxy says it so, with status 500."""
_BY_STATUS: Final[dict[int, Failure]] = {
    HTTPStatus.BAD_GATEWAY: Failure.UNREACHABLE,
    HTTPStatus.SERVICE_UNAVAILABLE: Failure.UNREACHABLE,
    HTTPStatus.GATEWAY_TIMEOUT: Failure.TIMEOUT,
}
"""Statuses by which proxies say that they did not reach the other side; none says why."""
_WORDS: Final = {
    Failure.REFUSED: "connection refused",
    Failure.UNREACHABLE: "unreachable",
    Failure.RESOLVE: "name does not resolve there",
    Failure.RESET: "connection reset",
    Failure.TIMEOUT: "no answer",
}
_SQUID: Final = {
    "ERR_DNS_FAIL": Failure.RESOLVE,
    "ERR_CONNECT_FAIL 111": Failure.REFUSED,
    "ERR_CONNECT_FAIL 104": Failure.RESET,
    "ERR_CONNECT_FAIL 110": Failure.TIMEOUT,
    "ERR_CONNECT_FAIL": Failure.UNREACHABLE,
    "ERR_CANNOT_FORWARD": Failure.UNREACHABLE,
}
"""squid's own header: its error page's name and the errno (of Linux) behind it."""
_STATUS_HEADER: Final = {
    "connection_refused": Failure.REFUSED,
    "connection_terminated": Failure.RESET,
    "connection_timeout": Failure.TIMEOUT,
    "destination_ip_unroutable": Failure.UNREACHABLE,
    "destination_unavailable": Failure.UNREACHABLE,
    "dns_error": Failure.RESOLVE,
    "dns_timeout": Failure.RESOLVE,
}
"""Error types of the Proxy-Status header (RFC 9209, 2.3) that tell of the other side."""
_STATUS_ERROR: Final = re.compile(r";\s*error\s*=\s*\"?([a-z_]+)")


def _by_squid(text: str) -> Failure | None:
    return _SQUID.get(text.strip()) or _SQUID.get(text.partition(" ")[0])


def _by_status_header(text: str) -> Failure | None:
    return next((known for kind in _STATUS_ERROR.findall(text) if (known := _STATUS_HEADER.get(kind))), None)


def _reason(first: bytes, status: int) -> str:
    """What stands behind the status in the first line, else what the status means; empty where it means nothing."""
    line = first.partition(b"\n")[0].decode("latin-1").strip()
    words = line.partition(str(status))[2].strip()
    if words and words.isprintable():
        return words[:_WIDEST]
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _connect(host: str, port: int, *, user: str, password: str) -> bytes:
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", "User-Agent: reachline"]
    if user:
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {secret}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


_REASONS: Final = {
    Kind.ICMP: "echo requests do not go through a proxy",
    Kind.UDP: "datagrams do not go through a proxy",
    Kind.PASSIVE: "the kernel sees connections to the proxy only, of whatever line",
}


def why_not(kind: Kind) -> str:
    """Why a kind cannot go by way of a proxy, in words; empty where it can. DNS goes by TCP there."""
    return _REASONS.get(kind, "")
