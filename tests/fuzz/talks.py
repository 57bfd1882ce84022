"""Conversations: the two first bytes of an input say how it is cut into pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

import h2.config
import h2.connection
import h2.events
from tests.fuzz.target import (
    HTTP,
    HTTP_TOKENS,
    LONGEST_NOTE,
    SERVING,
    Target,
    dns_answer,
    framed,
    pieces,
)

from reachline.abc import Talk
from reachline.doors import outbounds
from reachline.doors.addresses import parse_target
from reachline.model import Failure, Kind
from reachline.talk import build
from reachline.talk.asking import Ask
from reachline.talk.asking import Asked as AskedOf
from reachline.talk.checked import HttpCheck, RedisCheck, TcpCheck
from reachline.talk.hop import Hop

__all__ = ["conversations", "talks_targets"]


LARGEST_REPLY: Final = 64 << 10
"""Bytes a talk may answer with: an echo of what came would be an amplifier."""


NONCE: Final = 0x0123_4567_89AB_CDEF


def converse(talk: Talk, data: bytes) -> None:
    """Have a peer say `data` and close."""
    assert isinstance(talk.begin(), bytes)
    for piece in pieces(data):
        reply = talk.received(piece)
        if reply is None:
            break
        assert len(reply) <= LARGEST_REPLY
    failure = talk.closed()
    assert failure is None or isinstance(failure, Failure)
    assert failure is not Failure.AGENT, "what a peer says is never our own fault"
    note = getattr(talk, "note", "")
    assert len(note) <= LONGEST_NOTE
    assert note.isprintable(), "what a peer says steers no terminal"


class Asked:
    """A new conversation of one probe each time."""

    def __init__(self, kind: Kind, target: str, options: Mapping[str, str | int | bool] = MappingProxyType({})) -> None:
        self._endpoint = parse_target(target)
        self._probe = build(kind, self._endpoint, options)

    def talk(self) -> Talk:
        found = self._probe.talk(self._endpoint, NONCE)
        assert found is not None
        return found

    def __call__(self, data: bytes) -> None:
        converse(self.talk(), data)


@dataclass(frozen=True, slots=True)
class Hopped:
    """A new conversation with one proxy each time."""

    hop: Hop

    def talk(self) -> Talk:
        return self.hop.talk("target.example", 443)

    def __call__(self, data: bytes) -> None:
        converse(self.talk(), data)


class _Checking:
    """One check's conversation as one of a probe's; its verdict is the note."""

    def __init__(self, ask: Ask) -> None:
        self.begin, self.received, self._verdict = ask.begin, ask.received, ask.verdict
        self.note = ""

    def closed(self) -> Failure | None:
        verdict = self._verdict(closed=True)
        assert verdict.fault is None or verdict.note
        self.note = verdict.note
        return None


@dataclass(frozen=True, slots=True)
class Checked:
    """A new conversation of one active check each time."""

    check: AskedOf

    def talk(self) -> Talk:
        return _Checking(self.check.ask("a.example"))

    def __call__(self, data: bytes) -> None:
        converse(self.talk(), data)


def _h2(
    headers: Sequence[tuple[str, str]], body: bytes, trailers: Sequence[tuple[str, str]] = ()
) -> Callable[[bytes], bytes]:
    """What a real HTTP/2 server says to a client's first bytes."""

    def said(begin: bytes) -> bytes:
        server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        server.initiate_connection()
        server.receive_data(begin)
        server.send_headers(1, headers)
        server.send_data(1, body, end_stream=not trailers)
        if trailers:
            server.send_headers(1, trailers, end_stream=True)
        return server.data_to_send()

    return said


GRPC_HEADERS: Final = ((":status", "200"), ("content-type", "application/grpc"))


@cache
def conversations() -> dict[str, tuple[Asked | Checked | Hopped, tuple[bytes, ...], tuple[bytes, ...]]]:
    """By name: how one begins, answers it may get, tokens of its protocol."""
    http2 = Asked(Kind.HTTP, "http://a.example/healthz", {"version": "2"})
    grpc = Asked(Kind.GRPC, "grpc://a.example:50051")
    query = Asked(Kind.DNS, "dns://127.0.0.1/a.test")
    echo = Asked(Kind.UDP, "udp://a.example:7")
    socks = b"\x05\x02\x01\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50"
    return {
        "talk.http": (Asked(Kind.HTTP, "http://a.example/healthz", {"body": "ok"}), HTTP, HTTP_TOKENS),
        "talk.http2": (
            http2,
            (_h2(((":status", "200"), ("server", "x")), b"ok")(http2.talk().begin()),),
            (b"\x00\x00\x00\x04\x01\x00\x00\x00\x00", b"\x00\x00\x08\x06\x00\x00\x00\x00\x00", b"\x00\x00\x00\x01"),
        ),
        "talk.grpc": (
            grpc,
            (
                _h2(GRPC_HEADERS, SERVING, (("grpc-status", "0"),))(grpc.talk().begin()),
                _h2(GRPC_HEADERS, b"", (("grpc-status", "5"), ("grpc-message", "unknown%20service")))(grpc.talk().begin()),
            ),
            (SERVING, b"\x00\x00\x00\x01"),
        ),
        "talk.dns": (query, (dns_answer(query.talk().begin()),), (b"\xc0\x0c", b"\xc0\xff", b"\x3f", b"\x00\x01")),
        "talk.redis": (Asked(Kind.REDIS, "redis://a.example:6379"), (b"+PONG\r\n", b"-NOAUTH Authentication required.\r\n"), (b"\r\n", b"$", b":1\r\n", b"$-1\r\n")),
        "talk.udp": (echo, (echo.talk().begin(), b"x"), ()),
        "talk.tcp": (
            Asked(Kind.TCP, "tcp://a.example:25", {"send": r"EHLO x\r\n", "expect": "250"}),
            (b"220 a.example ESMTP\r\n250 ok\r\n",),
            (b"25", b"250"),
        ),
        "check.http": (Checked(HttpCheck(receive=(b"o", b"k"))), HTTP, HTTP_TOKENS),
        "check.redis": (Checked(RedisCheck()), (b"+PONG\r\n", b"-NOAUTH Authentication required.\r\n"), (b"\r\n", b"$", b":1\r\n", b"$-1\r\n")),
        "check.tcp": (Checked(TcpCheck(send=b"x", receive=(b"220 ", b"250"))), (b"220 a.example ESMTP\r\n250 ok\r\n",), (b"25", b"250")),
        "hop.socks5": (Hopped(outbounds.hops("socks5h://eve:s3cret@p.example:1080")[0]), (socks, b"\x05\xff", b"\x05\x02\x01\x01"), (b"\x05\x00", b"\x01\x00", b"\x03")),
        "hop.connect": (
            Hopped(outbounds.hops("http://p.example:3128")[0]),
            (b"HTTP/1.1 200 Connection established\r\n\r\n", b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno", *HTTP),
            HTTP_TOKENS,
        ),
    }  # fmt: skip


def talks_targets() -> Iterator[Target]:
    for name, (begin, answers, tokens) in conversations().items():
        is_slow = name in {"talk.http2", "talk.grpc"}
        yield Target(name=name, run=begin, errors=(), seeds=framed(*answers), tokens=tokens, is_slow=is_slow)
