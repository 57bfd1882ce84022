"""SOCKS5 as a client speaks it for one request (RFC 1928, RFC 1929): pure, piece by piece, in bounded memory.

Refuses to know what a reply means for a line. A proxy that breaks the protocol is `RemoteProtocolError`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from reachline.errors import LocalProtocolError, RemoteProtocolError

__all__ = [
    "ASSOCIATE",
    "CONNECT",
    "MAX_TEXT",
    "REFUSED_SIGN_IN",
    "REPLIES",
    "SUCCEEDED",
    "Connect",
    "is_success",
    "unwrapped",
    "wrapping",
]

CONNECT, ASSOCIATE = 1, 3
"""Commands: a connection, or datagrams."""

MAX_TEXT: Final = 255
"""Bytes of a user, a password or a name: each has one byte for its length."""
SUCCEEDED: Final = 0
REFUSED_SIGN_IN: Final = -1
"""In place of a reply: the proxy does not let us in, so it was never asked."""
REPLIES: Final = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "TTL expired",
    7: "CONNECT is not supported",
    8: "this form of address is not supported",
}
"""Reply codes in words; others are not assigned."""

_VERSION: Final = 5
_NEGOTIATION: Final = frozenset((1, 5))
"""Versions of the answer to a sign-in: RFC 1929 says 1, some proxies say 5."""
_IPV4, _NAME, _IPV6 = 1, 3, 4
_SIZES: Final = {_IPV4: 4, _IPV6: 16}


class Connect:
    """One CONNECT to `host:port`. `received` until it says None, then `reply`, and in `rest` what came behind it."""

    __slots__ = ("_buffer", "_password", "_request", "_step", "_user", "asked", "bound", "refusal", "reply", "rest")

    def __init__(self, host: str, port: int, *, user: str = "", password: str = "", command: int = CONNECT) -> None:
        """A name goes to the proxy as it is. LocalProtocolError where a text is longer than SOCKS5 can say."""
        self.reply: int | None = None
        self.refusal = ""
        """Why it does not let us in, in words."""
        self.asked = False
        """Whether the request is out: from here on the proxy waits for the other side."""
        self.rest = b""
        self.bound = b""
        """The address of a yes: its kind, itself, its port. Of an association it is where datagrams are taken."""
        self._request = bytes((_VERSION, command, 0)) + _address(host) + port.to_bytes(2, "big")
        self._user, self._password = _short(user, "user"), _short(password, "password")
        self._buffer = b""
        self._step: Callable[[bytes], bytes | None] = self._method

    def begin(self) -> bytes:
        """The greeting: our methods, user and password only where there are any."""
        return b"\x05\x02\x00\x02" if self._user else b"\x05\x01\x00"

    def received(self, data: bytes) -> bytes | None:
        """What to send next, empty: more is needed; None: it is over. The buffer holds one message, 262 bytes at most."""
        self._buffer += data
        return self._step(self._buffer)

    def _method(self, data: bytes) -> bytes | None:
        if data[0] != _VERSION:
            raise RemoteProtocolError("not SOCKS5")
        if len(data) < 2:
            return b""
        self._buffer = data[2:]
        match data[1]:
            case 0:
                return self._ask()
            case 2 if self._user:
                self._step = self._signed_in
                return b"".join((b"\x01", _sized(self._user), _sized(self._password))) + self._early()
            case 2 | 0xFF:
                self.refusal = "takes no user and password" if self._user else "asks for a user and a password"
            case method:
                raise RemoteProtocolError(f"chose method {method}, which was not offered")
        self.reply = REFUSED_SIGN_IN
        return None

    def _signed_in(self, data: bytes) -> bytes | None:
        if data and data[0] not in _NEGOTIATION:
            raise RemoteProtocolError("broken answer to the sign-in")
        if len(data) < 2:
            return b""
        if data[1]:
            self.reply, self.refusal = REFUSED_SIGN_IN, "refuses the user or the password"
            return None
        self._buffer = data[2:]
        return self._ask()

    def _ask(self) -> bytes:
        self._step, self.asked = self._replied, True
        return self._request + self._early()

    def _early(self) -> bytes:
        """A proxy has nothing to say before it is asked."""
        if self._buffer:
            raise RemoteProtocolError("spoke out of turn")
        return b""

    def _replied(self, data: bytes) -> bytes | None:
        if data[0] != _VERSION:
            raise RemoteProtocolError("broken reply to CONNECT")
        if len(data) < 2:
            return b""
        if data[1] != SUCCEEDED:
            # Some close at once, without the address that belongs to every reply.
            self.reply = data[1]
            return None
        if (size := _reply_size(data)) is None or len(data) < size:
            return b""
        self.reply, self.rest, self._buffer = SUCCEEDED, data[size:], b""
        self.bound = data[3:size]
        return None


def is_success(data: bytes) -> bool:
    """Whether these bytes are a whole reply that says yes, and nothing behind it; never more than `Connect` would say."""
    if len(data) < 5 or data[0] != _VERSION or data[1] != SUCCEEDED:
        return False
    kind = data[3]
    return len(data) == (7 + data[4] if kind == _NAME else 6 + _SIZES.get(kind, -7))


def _reply_size(data: bytes) -> int | None:
    """Bytes of a whole reply; None while that is not known."""
    if len(data) < 5:
        return None
    kind = data[3]
    if kind == _NAME:
        return 7 + data[4]
    if kind not in _SIZES:
        raise RemoteProtocolError("broken reply to CONNECT")
    return 6 + _SIZES[kind]


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes((_NAME,)) + _sized(_short(host, "name"))
    return bytes((_IPV4 if address.version == 4 else _IPV6,)) + address.packed


def wrapping(host: str, port: int) -> bytes:
    """What stands before a datagram for `host:port`, or from there (RFC 1928, 7)."""
    return b"\0\0\0" + _address(host) + port.to_bytes(2, "big")


def unwrapped(data: bytes) -> tuple[str, int, int] | None:
    """Host, port and where the content of a datagram begins; None: it is in pieces, or no such datagram."""
    if len(data) < 5 or data[2]:
        return None
    kind = data[3]
    size = 1 + data[4] if kind == _NAME else _SIZES.get(kind, 0)
    end = 4 + size + 2
    if not size or len(data) < end:
        return None
    raw = data[4 : end - 2]
    host = raw[1:].decode("latin-1") if kind == _NAME else str(ipaddress.ip_address(raw))
    return host, int.from_bytes(data[end - 2 : end], "big"), end


def _short(text: str, what: str) -> bytes:
    raw = text.encode()
    if len(raw) > MAX_TEXT:
        raise LocalProtocolError(f"a {what} of {len(raw)} bytes, SOCKS5 takes {MAX_TEXT}")
    return raw


def _sized(raw: bytes) -> bytes:
    return bytes((len(raw),)) + raw
