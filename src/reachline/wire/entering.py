"""What a client says before its bytes are passed on: SOCKS5, SOCKS4, SOCKS4a, HTTP CONNECT and plain HTTP, as a server hears it.

Pure, piece by piece, in bounded memory. A client may send anything at all: what is refused is told why, in words and in its protocol.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from reachline.model import Failure

__all__ = ["MAX_HEAD", "Asked", "Entering", "Form", "is_target", "no", "yes"]

MAX_HEAD: Final = 32 << 10
"""Bytes of an HTTP head; browsers send a tenth of it."""
_MAX_FIELDS: Final = 200
"""Header fields of a request."""
_MAX_TEXT: Final = 255
"""Bytes of a user or a name in SOCKS4, which ends them by a zero; SOCKS5 cannot say more."""
_NAME: Final = re.compile(r"(?=.{1,255}$)[A-Za-z0-9_-][A-Za-z0-9_.-]*")
"""What is asked for goes on into requests to proxies: nothing else than a name may stand there."""
_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?")
"""`127.1`, `2130706433`, `0x7f.1`: no names, but addresses to whoever resolves them, and past all rules about addresses."""
_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]{1,8192}) HTTP/1\.([01])")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")
_HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"proxy-connection",
        b"proxy-authorization",
        b"proxy-authenticate",
        b"keep-alive",
        b"te",
        b"upgrade",
    )
)
_HTTP: Final = 80
_IPV4, _DOMAIN, _IPV6 = 1, 3, 4
_CONNECT, _ASSOCIATE = 1, 3
_NO_METHOD: Final = 0xFF


class Form(Enum):
    """How a client speaks."""

    SOCKS5 = "socks5"
    ASSOCIATE = "socks5 udp"
    SOCKS4 = "socks4"
    CONNECT = "connect"
    PLAIN = "http"
    RAW = "raw"
    """Nothing is asked for: the inbound knows the target."""


class Asked(NamedTuple):
    """Where a client wants to go."""

    form: Form
    host: str
    """A name, or an address as text."""
    port: int
    user: str
    first: bytes
    """To be sent to the target before all else: what the client sent behind its request, of plain HTTP the request itself."""
    body: int | None = None
    """Bytes that may follow of plain HTTP: those of its body, and no other request. None: as many as come."""


class Entering:
    """One client's first words. `received` until `asked` or `refusal` is set."""

    __slots__ = ("_accounts", "_answer", "_buffer", "_step", "_takes_socks", "_takes_udp", "_user", "asked", "refusal")

    def __init__(self, accounts: Mapping[str, str], *, takes_socks: bool = True, takes_udp: bool = False) -> None:
        """`accounts` are passwords by user; none: everybody comes in."""
        self.asked: Asked | None = None
        self.refusal = ""
        self._accounts: Final = accounts
        self._takes_socks: Final = takes_socks
        self._takes_udp: Final = takes_udp
        self._answer = b""
        self._buffer = b""
        self._user = ""
        self._step: Callable[[], bool] = self._version

    @property
    def has_begun(self) -> bool:
        """Whether anything was said."""
        return bool(self._buffer) or self._step != self._version

    def received(self, data: bytes) -> bytes:
        """What to send now, be it a no."""
        self._buffer += data
        while self.asked is None and not self.refusal and self._step():
            pass
        answer, self._answer = self._answer, b""
        return answer

    def _refuse(self, why: str, answer: bytes = b"") -> bool:
        self.refusal = why
        self._answer += answer
        return False

    def _take(self, size: int) -> bytes:
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _goes(self, form: Form, host: str, port: int, *, first: bytes = b"", body: int | None = None) -> bool:
        """The request is whole, and names something."""
        if form is Form.ASSOCIATE:
            self.asked = Asked(form, host, port, self._user, first)
            return False
        if not is_target(host, port):
            return self._refuse("names no target", no(form, None))
        self.asked = Asked(form, host, port, self._user, first or self._take(len(self._buffer)), body)
        return False

    def _version(self) -> bool:
        if not self._buffer:
            return False
        match self._buffer[0]:
            case 5 if self._takes_socks:
                self._step = self._methods
            case 4 if self._takes_socks:
                self._step = self._socks4
            case byte if 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A:
                self._step = self._http
            case byte:
                return self._refuse(f"speaks no protocol that is served (first byte {byte})")
        return True

    # -- SOCKS5 (RFC 1928, RFC 1929)

    def _methods(self) -> bool:
        data = self._buffer
        if len(data) < 2 or len(data) < 2 + data[1]:
            return False
        offered = self._take(2 + data[1])[2:]
        wanted = 2 if self._accounts else 0
        if wanted not in offered:
            return self._refuse("offers no way to sign in that is taken", bytes((5, _NO_METHOD)))
        self._answer += bytes((5, wanted))
        self._step = self._sign_in if self._accounts else self._request
        return True

    def _sign_in(self) -> bool:
        data = self._buffer
        if data and data[0] != 1:
            return self._refuse("breaks the sign-in", b"\x01\x01")
        if len(data) < 2 or len(data) < 3 + data[1] or len(data) < 3 + data[1] + data[2 + data[1]]:
            return False
        size = data[1]
        user, password = data[2 : 2 + size], data[3 + size : 3 + size + data[2 + size]]
        self._take(3 + size + data[2 + size])
        if not self._lets_in(user, password):
            return self._refuse("has the wrong user or password", b"\x01\x01")
        self._answer += b"\x01\x00"
        self._step = self._request
        return True

    def _request(self) -> bool:
        data = self._buffer
        if data and data[0] != 5:
            return self._refuse("breaks the request", no(Form.SOCKS5, None))
        if len(data) < 5:
            return False
        kind, command = data[3], data[1]
        size = {_IPV4: 10, _IPV6: 22, _DOMAIN: 7 + data[4]}.get(kind)
        if size is None:
            return self._refuse("asks for an unknown form of address", _socks5(8))
        if len(data) < size:
            return False
        raw = self._take(size)
        host, port = _host(kind, raw[4:-2]), int.from_bytes(raw[-2:])
        if command == _ASSOCIATE and self._takes_udp:
            return self._goes(Form.ASSOCIATE, host, port)
        if command != _CONNECT:
            return self._refuse(f"asks for command {command}, which is not served", _socks5(7))
        return self._goes(Form.SOCKS5, host, port)

    # -- SOCKS4, SOCKS4a: for everybody or for nobody, as it knows no passwords

    def _socks4(self) -> bool:
        data = self._buffer
        if self._accounts:
            return self._refuse("speaks SOCKS4, which has no passwords", no(Form.SOCKS4, None))
        if len(data) < 9:
            return False
        texts = data[8:].split(b"\0", 2)
        is_named = data[4:7] == b"\0\0\0" and data[7] != 0
        if len(texts) < (3 if is_named else 2):
            too_long = any(len(each) > _MAX_TEXT for each in texts)
            return self._refuse("says no end of a text", no(Form.SOCKS4, None)) if too_long else False
        used = 8 + len(texts[0]) + 1 + (len(texts[1]) + 1 if is_named else 0)
        self._take(used)
        if data[1] != _CONNECT or len(texts[0]) > _MAX_TEXT:
            return self._refuse(f"asks for command {data[1]}, which is not served", no(Form.SOCKS4, None))
        host = texts[1].decode("latin-1") if is_named else _host(_IPV4, data[4:8])
        return self._goes(Form.SOCKS4, host, int.from_bytes(data[2:4]))

    # -- HTTP

    def _http(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n", 0, MAX_HEAD)
        if end < 0:
            if len(self._buffer) >= MAX_HEAD:
                return self._refuse("has a head that is too long", _status(431, "Request Header Fields Too Large"))
            return False
        head = self._take(end + 4)[:end]
        first, *rest = head.split(b"\r\n")
        line = _LINE.fullmatch(first)
        fields = [each for each in map(_FIELD.fullmatch, rest) if each is not None]
        if line is None or len(fields) != len(rest) or len(fields) > _MAX_FIELDS:
            return self._refuse("breaks HTTP", _BAD)
        named = [(each[1].lower(), each[2], each[0]) for each in fields]
        if self._accounts and not self._signed_in(named):
            return self._refuse("has the wrong user or password", _SIGN_IN)
        if line[1] == b"CONNECT":
            host, port = _authority(line[2], None)
            return self._goes(Form.CONNECT, host, port)
        return self._plain(line[1], line[2], int(line[3]), named)

    def _signed_in(self, named: list[tuple[bytes, bytes, bytes]]) -> bool:
        given = next((value for name, value, _ in named if name == b"proxy-authorization"), b"")
        scheme, _, secret = given.partition(b" ")
        if scheme.lower() != b"basic":
            return False
        try:
            user, _, password = b64decode(secret.strip(), validate=True).partition(b":")
        except Base64Error:
            return False
        return self._lets_in(user, password)

    def _plain(self, method: bytes, target: bytes, minor: int, named: list[tuple[bytes, bytes, bytes]]) -> bool:
        """`GET http://host/path`: sent on as the host itself wants it, one request a connection."""
        if target[:7].lower() != b"http://":
            return self._refuse("asks for no http:// URL", _BAD)
        authority, slash, path = target[7:].partition(b"/")
        if b"?" in authority:  # http://host?query
            authority, _, query = authority.partition(b"?")
            slash, path = b"/", b"?" + query + slash + path
        host, port = _authority(authority, _HTTP)
        body = _body(named)
        if body is not None and body < 0:
            return self._refuse("does not say how long its body is", _BAD)
        listed = [value for name, value, _ in named if name == b"connection"]
        dropped = _HOP_BY_HOP | {each.strip().lower() for value in listed for each in value.split(b",")}
        kept = [raw for name, _, raw in named if name not in dropped and name != b"host"]
        lines = [b"%s /%s HTTP/1.%d" % (method, path, minor), b"Host: " + authority, *kept, b"Connection: close"]
        request = b"\r\n".join(lines) + b"\r\n\r\n"
        early = self._take(len(self._buffer) if body is None else min(body, len(self._buffer)))
        left = None if body is None else body - len(early)
        return self._goes(Form.PLAIN, host, port, first=request + early, body=left)

    def _lets_in(self, user: bytes, password: bytes) -> bool:
        """In the same time whichever of them is wrong."""
        name = user.decode("utf-8", "replace")
        known = self._accounts.get(name)
        if not hmac.compare_digest(password, (known or "").encode()) or known is None:
            return False
        self._user = name
        return True


def is_target(host: str, port: int) -> bool:
    """Whether it names something, and holds nothing that could mean more to a proxy behind us."""
    is_name = _NAME.fullmatch(host) is not None and _NUMBER.fullmatch(host) is None
    return bool(port) and (is_name or _is_address(host))


def _host(kind: int, raw: bytes) -> str:
    if kind == _DOMAIN:
        return raw[1:].decode("latin-1")
    return str(ipaddress.IPv4Address(raw) if kind == _IPV4 else ipaddress.IPv6Address(raw))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def _authority(raw: bytes, usual: int | None) -> tuple[str, int]:
    """Host and port, 0 where there is none that counts."""
    text = raw.decode("latin-1")
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if rest[:1] in {"", ":"} else "x"
        host = host if ":" in host else ""
    else:
        host, _, port = text.partition(":")
    if not port:
        return host, usual or 0
    return host, int(port) if port.isdecimal() and len(port) <= 5 and int(port) <= 65_535 else 0


def _body(named: list[tuple[bytes, bytes, bytes]]) -> int | None:
    """Bytes of a request's body; None: it says their number as it goes; -1: nobody can tell."""
    lengths = {value for name, value, _ in named if name == b"content-length"}
    codings = [value for name, value, _ in named if name == b"transfer-encoding"]
    if codings:
        return None if not lengths and codings == [b"chunked"] else -1
    if not lengths:
        return 0
    length = lengths.pop()
    return int(length) if not lengths and length.isdigit() and len(length) <= 15 else -1


def yes(form: Form, host: str = "0.0.0.0", port: int = 0) -> bytes:
    """The connection is made; of an association `host:port` is where datagrams are taken."""
    match form:
        case Form.SOCKS5 | Form.ASSOCIATE:
            return _socks5(0, host, port)
        case Form.SOCKS4:
            return b"\0\x5a" + bytes(6)
        case Form.CONNECT:
            return b"HTTP/1.1 200 Connection established\r\n\r\n"
        case Form.PLAIN | Form.RAW:
            return b""


def no(form: Form, failure: Failure | None) -> bytes:
    """The connection is not made, for this failure; None: it is not allowed."""
    match form:
        case Form.SOCKS5 | Form.ASSOCIATE:
            return _socks5(2 if failure is None else _REPLIES.get(failure, 1))
        case Form.SOCKS4:
            return b"\0\x5b" + bytes(6)
        case Form.CONNECT | Form.PLAIN:
            return _FORBIDDEN if failure is None else _TOO_LATE if failure is Failure.TIMEOUT else _BAD_GATEWAY
        case Form.RAW:
            return b""


_REPLIES: Final = {Failure.REFUSED: 5, Failure.UNREACHABLE: 4, Failure.RESOLVE: 4, Failure.TIMEOUT: 6}


def _socks5(reply: int, host: str = "0.0.0.0", port: int = 0) -> bytes:
    address = ipaddress.ip_address(host)
    kind = _IPV4 if address.version == 4 else _IPV6
    return bytes((5, reply, 0, kind)) + address.packed + port.to_bytes(2)


def _status(status: int, reason: str, *fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status} {reason}", *fields, "Connection: close", "Content-Length: 0"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


_BAD: Final = _status(400, "Bad Request")
_SIGN_IN: Final = _status(407, "Proxy Authentication Required", 'Proxy-Authenticate: Basic realm="proxy"')
_FORBIDDEN: Final = _status(403, "Forbidden")
_BAD_GATEWAY: Final = _status(502, "Bad Gateway")
_TOO_LATE: Final = _status(504, "Gateway Timeout")
