"""DNS: one question, its answer checked for id, question, code and records. UDP first, TCP where the answer is truncated."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import ClassVar, Final
from urllib.parse import parse_qs, urlsplit

from reachline.errors import LocalProtocolError, RemoteProtocolError
from reachline.model import Endpoint, Failure
from reachline.talk.options import Options, listed
from reachline.talk.secure import is_address
from reachline.talk.way import Way
from reachline.wire import dns

__all__ = ["DnsProbe", "DnsTalk", "StreamTalk"]

_PORT: Final = 53
_MAX_PASSED: Final = 16
"""Messages over a stream that answer something else: the one connection has one question."""
_MAX_TTL: Final = 2**31 - 1
"""Seconds: the longest a record can say (RFC 2181, 8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsProbe:
    """Options: server, name, type, expect, rcode, recurse, min_ttl, max_ttl."""

    way: ClassVar[Way] = Way.DATAGRAM
    secure: ClassVar[None] = None
    server: Endpoint
    """Who is asked; an empty host is the agent's own name server."""
    name: str
    type: str = "A"
    expect: tuple[str, ...] = ()
    """Record data that must be among the answers, as zone files write it."""
    rcode: str = "NOERROR"
    """The code that is ok."""
    recurse: bool = True
    min_ttl: int = 0
    """Seconds that every answer must be good for…"""
    max_ttl: int = _MAX_TTL
    """…and that none may exceed."""

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options) -> DnsProbe:
        path, asked = _of_target(endpoint)
        at_home = path or ("" if endpoint.scheme == "dns" or is_address(endpoint.host) else endpoint.host)
        name = options.parsed_or("name", at_home, _name, ".", place="to")
        if not name:
            options.refuse("name", "is needed: what to ask for", "name: example.org, or dns://server/example.org")
        probe = cls(
            server=options.parsed("server", _default_server(endpoint), _server),
            name=name,
            type=options.parsed("type", asked or ("AAAA" if endpoint.family == 6 else "A"), _type),
            expect=options.parsed("expect", (), lambda text: tuple(map(_data, listed(text)))),
            rcode=options.parsed("rcode", "NOERROR", _rcode),
            recurse=options.flag("recurse", True),
            min_ttl=options.number("min_ttl", 0, low=0, high=_MAX_TTL),
            max_ttl=options.number("max_ttl", _MAX_TTL, low=0, high=_MAX_TTL),
        )
        if probe.min_ttl > probe.max_ttl:
            options.refuse("min_ttl", "must not be above max_ttl")
        if probe.type not in dns.TYPES:
            options.refuse("type", f"must be one of {', '.join(dns.TYPES)}")
        return probe

    @property
    def minds_ttl(self) -> bool:
        """Whether answers are held against a time to live."""
        return self.min_ttl > 0 or self.max_ttl < _MAX_TTL

    def where(self, endpoint: Endpoint) -> Endpoint:
        del endpoint
        return self.server

    def talk(self, endpoint: Endpoint, nonce: int) -> DnsTalk:
        del endpoint
        return DnsTalk(self, nonce & 0xFFFF)


class DnsTalk:
    """One query in a datagram."""

    answered: ClassVar[bool] = True
    __slots__ = ("_message", "_number", "_probe", "_query", "_question", "note", "status", "truncated")

    def __init__(self, probe: DnsProbe, number: int) -> None:
        self.status = 0
        self.note = ""
        self.truncated = False
        """The answer says: ask again by TCP."""
        self._probe = probe
        self._number = number
        self._query, self._question = dns.query(number, probe.name, probe.type, recurse=probe.recurse)
        self._message: dns.Message | None = None

    def begin(self) -> bytes:
        return self._query

    def received(self, data: bytes) -> bytes | None:
        """One whole message. One that is not an answer to our question is passed over: it may be forged."""
        if len(data) < 2 or int.from_bytes(data[:2], "big") != self._number:
            return b""
        try:
            message = dns.decode(data)
        except RemoteProtocolError as error:
            self.note = str(error)
            return None
        if message.question.lower() != self._question.lower() and not (message.rcode and not message.question):
            return b""
        self._message = message
        self.status, self.truncated = message.rcode, message.truncated
        return None

    def closed(self) -> Failure | None:
        if self._message is None:
            self.note = self.note or "closed without an answer"
            return Failure.PROTOCOL
        if (code := dns.rcode_name(self._message.rcode)) != self._probe.rcode:
            self.note = code
            return Failure.STATUS
        found = {answer.data.lower() for answer in self._message.answers}
        if missing := [data for data in self._probe.expect if data not in found]:
            self.note = f"no {missing[0]} among the answers"
            return Failure.STATUS
        self.note = self._unfit_ttl(self._message.answers)
        return Failure.STATUS if self.note else None

    def _unfit_ttl(self, answers: tuple[dns.Answer, ...]) -> str:
        """What is wrong with how long the answers are good for, in words."""
        low, high = self._probe.min_ttl, self._probe.max_ttl
        ttls = [answer.ttl for answer in answers]
        if ttls and min(ttls) < low:
            return f"TTL {min(ttls)}, at least {low} is expected"
        return f"TTL {max(ttls)}, at most {high} is expected" if ttls and max(ttls) > high else ""

    def over_stream(self) -> StreamTalk:
        """The same question for a TCP connection."""
        return StreamTalk(DnsTalk(self._probe, self._number))


class StreamTalk:
    """A query with its length before it, the answer read piece by piece."""

    answered: ClassVar[bool] = True
    __slots__ = ("_buffer", "_passed", "_talk")

    def __init__(self, talk: DnsTalk) -> None:
        self._talk = talk
        self._passed = 0
        self._buffer = bytearray()

    @property
    def status(self) -> int:
        return self._talk.status

    @property
    def note(self) -> str:
        return self._talk.note

    def begin(self) -> bytes:
        query = self._talk.begin()
        return len(query).to_bytes(2, "big") + query

    def received(self, data: bytes) -> bytes | None:
        """Messages as they become whole; the length of 16 bits bounds the buffer."""
        self._buffer += data
        while len(self._buffer) >= 2:
            size = int.from_bytes(self._buffer[:2], "big")
            if len(self._buffer) < 2 + size:
                break
            message = bytes(self._buffer[2 : 2 + size])
            del self._buffer[: 2 + size]
            if self._talk.received(message) is None:
                return None
            self._passed += 1
            if self._passed > _MAX_PASSED:
                self._talk.note = f"more than {_MAX_PASSED} messages, none of them the answer"
                return None
        return b""

    def closed(self) -> Failure | None:
        return self._talk.closed()


def _of_target(endpoint: Endpoint) -> tuple[str, str]:
    """(name, type) of `dns://server/name?type=AAAA`."""
    if endpoint.scheme != "dns":
        return "", ""
    path, _, query = endpoint.path.partition("?")
    kinds = parse_qs(query).get("type", [""])
    return path.strip("/"), kinds[0].upper()


def _default_server(endpoint: Endpoint) -> Endpoint:
    if endpoint.scheme == "dns":
        return endpoint
    return Endpoint(scheme="dns", host="", port=_PORT)


def _server(text: str) -> Endpoint:
    rule = "must be a name server's address or name, with a port where it is not 53: 10.0.0.2, 10.0.0.2:5353, [2001:db8::1]:53"
    try:
        parts = urlsplit(
            text if "://" in text else f"dns://{f'[{text}]' if is_address(text) and ':' in text else text}"
        )
        host, port = parts.hostname or "", parts.port or _PORT
    except ValueError:
        raise ValueError(rule) from None
    if parts.scheme != "dns" or not host or parts.path not in {"", "/"}:
        raise ValueError(rule)
    return Endpoint(scheme="dns", host=host, port=port)


def _data(text: str) -> str:
    """Record data as answers are written: addresses in their shortest form, names in lower case without the last dot."""
    return str(ipaddress.ip_address(text)) if is_address(text) else text.lower().rstrip(".")


def _name(text: str) -> str:
    try:
        dns.name_to_wire(text)
    except LocalProtocolError as error:
        raise ValueError(f"must be a DNS name: {error}") from None
    return text


def _type(text: str) -> str:
    return text.upper()


def _rcode(text: str) -> str:
    if text.upper() not in dns.RCODES.values():
        raise ValueError(f"must be one of {', '.join(dns.RCODES.values())}")
    return text.upper()
