"""Every parser, and what it may raise. A target is a function of bytes; it asserts what must hold of what comes back."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import h2.config
import h2.connection
import h2.events
import msgspec
import trustme
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from pydantic_core import PydanticCustomError
from tests.fuzz.reshape import reshaped

from reachline.abc import Talk
from reachline.center.checks import check
from reachline.cli.watch_targets import Pace, read_targets
from reachline.client import answer
from reachline.core import histogram
from reachline.core.pick.member import WEIGHT_MOST
from reachline.core.pick.orca import Weighing, weight_of
from reachline.doors import heartbeat, observatory, outbounds, reach, units
from reachline.doors.addresses import masked, parse_target
from reachline.doors.composer import compose
from reachline.doors.envoy import formats
from reachline.doors.envoy.asked import Request
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.regexes import compiled
from reachline.doors.envoy.routing import decide, routes
from reachline.doors.envoy.vhosts import route_config
from reachline.doors.findings import Findings
from reachline.errors import ConfigError, Problem, RemoteProtocolError
from reachline.members import faults_of
from reachline.model import Failure, Kind, Reading
from reachline.proxy import flags, hello
from reachline.proxy.answers import AnswerReader
from reachline.proxy.requests import Limits, RequestReader
from reachline.talk import build
from reachline.talk.asking import Ask
from reachline.talk.asking import Asked as AskedOf
from reachline.talk.checked import HttpCheck, RedisCheck, TcpCheck
from reachline.talk.hop import Hop
from reachline.talk.literal import literal
from reachline.wire import (
    dns,
    entering,
    frame,
    geodata,
    grpc_health,
    http1,
    icmp,
    mesh,
    mesh_sides,
    optics,
    orca,
    ordering,
    posted,
    redis,
    sockdiag,
    socks5,
    x509,
)
from reachline.wire.ads import EDS, Client, Response
from reachline.wire.observatory import read_info, read_override
from reachline.wire.xray_route import read_route

__all__ = ["ROOT", "TARGETS", "Target", "conversations"]

ROOT: Final = Path(__file__).parent.parent.parent
LARGEST_REPLY: Final = 64 << 10
"""Bytes a talk may answer with: an echo of what came would be an amplifier."""
LONGEST_NOTE: Final = 1_000
"""Characters of a failure in words."""
NONCE: Final = 0x0123_4567_89AB_CDEF


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One parser: `errors` are all that it may raise. One that is slow is begun first where several share the work."""

    name: str
    run: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]
    tokens: tuple[bytes, ...] = ()
    is_slow: bool = False


# -- conversations: the two first bytes of an input say how it is cut into pieces --------------------------------------------


def pieces(data: bytes) -> Iterator[bytes]:
    """The input behind its first two bytes as it may arrive: whole, or in pieces of one to 61 bytes."""
    how, body = data[:2], data[2:]
    if len(how) < 2 or not how[0] & 1:
        yield from (body,) if body else ()
        return
    at = 0
    while at < len(body):
        size = 1 + (how[0] * (at + 1) + how[1]) % 61
        yield body[at : at + size]
        at += size


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


def _framed(*answers: bytes) -> tuple[bytes, ...]:
    """Whole, and in pieces."""
    return tuple(how + each for each in answers for how in (b"\x00\x00", b"\x03\x07"))


HTTP: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nok\n\r\n0\r\nTrailer: x\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0 503 Busy\nServer: old\n\nbody without a length",
)
HTTP_TOKENS: Final = (
    b"\r\n", b"\r\n\r\n", b"\n\n", b"HTTP/1.1 ", b"Content-Length: ", b"Transfer-Encoding: chunked", b"Connection: close", b": ",
)  # fmt: skip


def _dns_answer(query: bytes) -> bytes:
    return (
        query[:2]
        + b"\x81\x80"
        + query[4:6]
        + b"\x00\x02\x00\x00\x00\x00"
        + query[12:]
        + b"".join(
            (
                b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01b\xc0\x0e",
                b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x09",
            )
        )
    )


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
SERVING: Final = b"\x00\x00\x00\x00\x02\x08\x01"


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
        "talk.dns": (query, (_dns_answer(query.talk().begin()),), (b"\xc0\x0c", b"\xc0\xff", b"\x3f", b"\x00\x01")),
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


def _talks() -> Iterator[Target]:
    for name, (begin, answers, tokens) in conversations().items():
        is_slow = name in {"talk.http2", "talk.grpc"}
        yield Target(name=name, run=begin, errors=(), seeds=_framed(*answers), tokens=tokens, is_slow=is_slow)


# -- whole messages ------------------------------------------------------------------------------------------------------------


def _http1(data: bytes) -> None:
    response = http1.Response(keep=100)
    for piece in pieces(data):
        response.feed(piece)
        if response.done:
            break
    assert len(response.kept) <= 100
    response.ended()
    assert all(isinstance(value, str) for value in response.headers.values())


def _http1_whole(data: bytes) -> None:
    """The short look says nothing that the long one would not."""
    for to_head in (False, True):
        if status := http1.whole(data, to_head=to_head):
            response = http1.Response(to_head=to_head)
            response.feed(data)
            assert (response.done, response.status) == (True, status)


QUERY, QUESTION = dns.query(7, "a.test")


def _dns_plain(data: bytes) -> None:
    """The short look says nothing that the long one would not."""
    for rcode in (0, 3):
        if dns.is_plain(data, QUESTION, rcode):
            found = dns.decode(data)
            assert (found.rcode, found.truncated, found.question) == (rcode, False, QUESTION)


def _light(data: bytes) -> None:
    for kind in range(5):
        optics.light(kind, data)


def _icmp(data: bytes) -> None:
    for family in (4, 6):
        icmp.reply(family, data)
        icmp.token_of(family, data)
    icmp.without_ip(data)


def _echo_reply() -> bytes:
    request = bytearray(icmp.request(4, ident=1, sequence=2, token=3))
    request[0] = 0
    return bytes(request)


def _frame(data: bytes) -> None:
    found = frame.decode(data)
    if isinstance(found, frame.Heartbeat):
        check(found)
    assert frame.decode(frame.encode(found)) == found


FRAMES: Final = (
    frame.encode(frame.Hello(release="1", agent="edge", boot="b", features=("hint",))),
    frame.encode(frame.Welcome(release="1", epoch=7)),
    frame.encode(
        frame.Plan(
            number=1,
            lines=(
                frame.LinePlan(
                    line="shop/web", target="tcp://10.0.0.1:443",
                    probes=(frame.ProbePlan(kind=Kind.TCP, interval_ms=5_000, suspect_interval_ms=2_000, options={"a": 1}),),
                ),
            ),
        )
    ),
    frame.encode(
        frame.Heartbeat(
            agent="edge", boot="b", sequence=1,
            reports=(frame.Report(line="shop/web", reading=Reading(Kind.TCP), detail=frame.Detail(address="::1")),),
        )
    ),
    frame.encode(frame.Ack(sequence=1)),
)  # fmt: skip


def _replies(data: bytes) -> None:
    replies = redis.Replies()
    for piece in pieces(data):
        replies.feed(piece)


KEY: Final = bytes(16)


def _mesh(data: bytes) -> None:
    answering = mesh_sides.Answering()
    probe = mesh.read_probe(data, KEY)
    if isinstance(probe, mesh.Probe):
        answering.answer(probe, 1, 2)
    mesh.reply_session(data)
    mesh.read_reply(data, KEY)
    assert len(answering) <= 1


def _sealed_probe() -> bytes:
    return mesh.pack_probe(mesh.Probe(7, 1, 1, 5), mesh.pair_key(KEY, 7))


def _sock_message() -> bytes:
    """A connection of ours as the kernel tells it, and the end of the dump."""
    info = bytes(240)
    attribute = struct.pack("=HH", 4 + len(info), 2) + info
    sock = struct.pack("=BBBB", socket.AF_INET, 1, 0, 0) + bytes(68) + attribute
    one = struct.pack("=IHHII", 16 + len(sock), 20, 2, 1, 0) + sock
    return one + struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)


def _sockdiag(data: bytes) -> None:
    assert len(list(sockdiag.messages(data, sequence=1))) <= 1 + len(data) // 16


def _certificate() -> bytes:
    pem = trustme.CA().issue_cert("a.example").cert_chain_pems[0].bytes()
    return load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def _line_list(data: bytes) -> None:
    answer.line_list(answer.parsed(data), cluster="shop")


def _posted(data: bytes) -> None:
    posted.read_outcomes(answer.parsed(data))


def _ordered(data: bytes) -> None:
    ordering.read_order(answer.parsed(data))


def _ordered_shape(data: bytes) -> None:
    ordering.read_order(reshaped(ORDER_SHAPE, data))


LINES: Final = json.dumps(
    {"cluster": "shop", "version": "7.1", "issued": 1.5, "ttl": 300, "lines": [{"line": "shop/a", "address": "tcp://10.0.0.1:443", "weight": 100}]}
).encode()  # fmt: skip
POSTED: Final = json.dumps(
    {"client": "c", "cluster": "shop", "service": "s", "outcomes": [{"line": "shop/a", "ok": 3, "failed": 1}], "open": ["shop/a"]}
).encode()  # fmt: skip
FOREIGN: Final = json.dumps(
    {
        "agent_id": "edge", "ts": 1.7e9, "target_zone": "az2", "target_ip": "10.0.0.1", "probe_type": "tcp", "sample_count": 100,
        "avg_rtt_ms": 20.5, "p95_rtt_ms": 60, "loss_rate": 0.01, "timeout_rate": 0, "status": "healthy",
    }
).encode()  # fmt: skip
ORDER: Final = json.dumps(
    {"action": "weight", "target": "shop/a", "for": 7200, "reason": "works", "weight": 30, "force": False}
).encode()
ORDER_SHAPE: Final = json.loads(ORDER)
JSON_TOKENS: Final = (
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"true",
    b"NaN",
    b"[" * 40,
    b"\\u0000",
    b"\\ud800",
    b"1.5",
)


FRAME_SHAPES: Final = tuple(msgspec.msgpack.decode(each) for each in FRAMES)
LINES_SHAPE: Final = json.loads(LINES)
POSTED_SHAPE: Final = json.loads(POSTED)
FOREIGN_SHAPE: Final = json.loads(FOREIGN)
SHAPES: Final = (b"\x00", b"\x01\x05\x10", b"\x02\x09\x1b\x20\x04", b"\x03\x07\x15\x11\x02\x30\x1a")
"""Instructions of `reshaped`; for frames behind a byte that picks one."""


def _frame_shape(data: bytes) -> None:
    _frame(msgspec.msgpack.encode(reshaped(FRAME_SHAPES[data[0] % len(FRAMES)] if data else {}, data[1:])))


def _lines_shape(data: bytes) -> None:
    answer.line_list(reshaped(LINES_SHAPE, data), cluster="shop")


def _posted_shape(data: bytes) -> None:
    posted.read_outcomes(reshaped(POSTED_SHAPE, data))


def _foreign_shape(data: bytes) -> None:
    heartbeat.read(json.dumps(reshaped(FOREIGN_SHAPE, data)).encode())


# -- texts: what is no text at all does not get so far -----------------------------------------------------------------------


def _text(parse: Callable[[str], object]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        parse(data.decode("utf-8", "replace"))

    return run


def _target(text: str) -> None:
    endpoint = parse_target(text)
    assert parse_target(str(endpoint)) == endpoint, "what is shown is what is read"


def _via(text: str) -> None:
    """A password is not shown; one that stands in the text more than once may be somebody's name as well."""
    secrets = [hop.password for hop in outbounds.hops(text) if len(hop.password) > 1 and text.count(hop.password) == 1]
    shown = outbounds.without_password(text)
    assert not any(secret in shown for secret in secrets)


def _any_unit(text: str) -> None:
    for read in (units.duration, units.share, units.size):
        try:
            read(text)
        except PydanticCustomError:
            continue
    units.seconds(text)
    masked(text)


def _compose(text: str) -> None:
    composed = compose(text, name="x")
    assert composed.whole or composed.troubles


def _watched(text: str) -> None:
    read_targets([text], Pace())


def _document(text: str) -> None:
    reach.read(text, name="x", environ={}, secret_file=lambda _: "secret")


YAML_TOKENS: Final = (
    b": ", b"- ", b"\n", b"\n  ", b"{", b"}", b"[", b"]", b"&a ", b"*a", b"<<: *a", b"!!python/object:os.system ", b"|\n", b"'", b'"',
    b"#", b"%YAML 1.2\n---\n", b"---\n", b"? ", b"~", b"${env:X}", b"${file:/x}", b"\t", b"5s", b"100ms", b"\xef\xbb\xbf",
)  # fmt: skip


XRAY: Final = tuple(
    json.dumps(each).encode()
    for each in (
        {
            "outbounds": [
                {
                    "tag": "a",
                    "protocol": "socks",
                    "settings": {"servers": [{"address": "h", "port": 1, "users": [{"user": "u", "pass": "q7x9zz"}]}]},
                },
                {"tag": "b", "protocol": "freedom", "sendThrough": "192.0.2.1"},
            ],
            "burstObservatory": {"subjectSelector": ["a"], "pingConfig": {"interval": "1m", "sampling": 3}},
        },
        {
            "OUTBOUNDS": [
                {
                    "tag": "a",
                    "protocol": "http",
                    "settings": {"address": "h", "port": 1},
                    "proxySettings": {"tag": "b"},
                },
                {"tag": "b", "protocol": "vless"},
            ],
            "observatory": {"subjectSelector": ["a"], "probeInterval": "1s"},
            "routing": {
                "balancers": [
                    {"tag": "x", "selector": ["a"], "strategy": {"type": "leastLoad", "settings": {"expected": 2}}}
                ],
                "rules": [{"port": 443, "balancerTag": "x"}],
            },
        },
        [{"remarks": "a", "outbounds": []}],
    )
)


def _xray(text: str) -> None:
    """A password is told nowhere."""
    found: Sequence[Problem] = ()
    try:
        found = observatory.read(text).warnings
    except ConfigError as error:
        found = error.problems
        raise
    finally:
        assert '"pass": "q7x9zz"' not in text or not any("q7x9zz" in each.value for each in found)


def _documents() -> tuple[bytes, ...]:
    small = (
        b"clusters:\n  shop:\n    lines: ['tcp://10.0.0.1:443', 'https://b.example/healthz']\n",
        b"clusters:\n  shop:\n    probes: {tcp: 5s, http: {every: 30s, expect: 200}}\n    lines:\n      a: {to: 'tcp://10.0.0.1:443', via: 'socks5://u:p@10.0.0.9:1080', role: primary}\n",
        b"agents: {one: {locality: {region: r1, zone: az1}, token: t}}\ncenter: {grpc: '127.0.0.1:0'}\nclusters: {}\n",
    )
    return (*small, *((ROOT / "examples" / name).read_bytes() for name in ("minimal.yaml", "quickstart.yaml")))


def _whole() -> Iterator[Target]:
    remote = (RemoteProtocolError,)
    yield Target(name="wire.http1", run=_http1, errors=remote, seeds=_framed(*HTTP), tokens=HTTP_TOKENS)
    yield Target(
        name="wire.dns", run=dns.decode, errors=remote, seeds=(_dns_answer(dns.query(7, "a.test")[0]),),
        tokens=(b"\xc0\x0c", b"\xc0\xff", b"\x3f", b"\x00\x10"),
    )  # fmt: skip
    yield Target(name="wire.http1.whole", run=_http1_whole, errors=(), seeds=HTTP, tokens=HTTP_TOKENS)
    plain = (
        QUERY[:2]
        + b"\x81\x80\x00\x01\x00\x01"
        + QUERY[8:]
        + b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x09"
    )
    yield Target(
        name="wire.dns.is_plain",
        run=_dns_plain,
        errors=(),
        seeds=(plain, _dns_answer(QUERY)),
        tokens=(b"\xc0\x0c", b"\x00\x1c\x00\x01"),
    )
    yield Target(name="wire.optics", run=_light, errors=(), seeds=(bytes(512), bytes(range(256)) * 2))
    yield Target(name="wire.icmp", run=_icmp, errors=remote, seeds=(_echo_reply(), b"\x45" + bytes(19) + _echo_reply()))
    yield Target(
        name="wire.frame",
        run=_frame,
        errors=remote,
        seeds=FRAMES,
        tokens=(b"\xc0", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"),
    )
    yield Target(
        name="wire.x509",
        run=x509.expires,
        errors=remote,
        seeds=(_certificate(),),
        tokens=(b"\x30\x82", b"\x30\x80", b"\x17\x0d", b"\x18\x0f"),
    )


def _load_report(data: bytes) -> None:
    """Whatever is read weighs nothing or something that a weight may be."""
    for found in (orca.load_report(data), orca.load_report(data, is_binary=True)):
        weight = None if found is None else weight_of(found, Weighing(named=("named_metrics.a",)))
        assert weight is None or 1 <= weight <= WEIGHT_MOST


def _answers() -> Iterator[Target]:
    remote = (RemoteProtocolError,)
    yield Target(
        name="wire.redis",
        run=_replies,
        errors=remote,
        seeds=_framed(b"+PONG\r\n", b"$3\r\nfoo\r\n:12\r\n-ERR x\r\n"),
        tokens=(b"\r\n", b"$", b"$-1\r\n"),
    )
    yield Target(
        name="wire.grpc_health",
        run=grpc_health.decode,
        errors=remote,
        seeds=(SERVING, SERVING + b"\x12\x03abc"),
        tokens=(b"\x08", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"),
    )
    yield Target(
        name="wire.orca",
        run=_load_report,
        errors=(),
        seeds=(
            b"TEXT eps=1,named_metrics.a=nan",
            b'JSON {"eps": 1, "named_metrics": {"a": "NaN"}}',
            b"BIN CQAAAAAAAOA/",
        ),
        tokens=(b"JSON ", b"BIN ", b"1e999", b"=", b"\x09", b"\x42"),
    )
    yield Target(
        name="wire.mesh", run=_mesh, errors=(), seeds=(_sealed_probe(), mesh.pack_reply(mesh.Reply(*range(1, 11)), KEY))
    )
    yield Target(
        name="wire.sockdiag",
        run=_sockdiag,
        errors=remote,
        seeds=(_sock_message(),),
        tokens=(b"\x10\x00\x00\x00", b"\x14\x00"),
    )
    yield Target(
        name="core.histogram",
        run=histogram.decode,
        errors=remote,
        seeds=(histogram.encode(histogram.of([1.0, 50.0, 9e5])),),
    )


def _bodies() -> Iterator[Target]:
    remote = (RemoteProtocolError,)
    yield Target(name="wire.frame.shape", run=_frame_shape, errors=remote, seeds=SHAPES, is_slow=True)
    yield Target(name="client.answer.shape", run=_lines_shape, errors=remote, seeds=SHAPES, is_slow=True)
    yield Target(name="wire.posted.shape", run=_posted_shape, errors=remote, seeds=SHAPES, is_slow=True)
    yield Target(name="wire.ordering.shape", run=_ordered_shape, errors=remote, seeds=SHAPES, is_slow=True)
    yield Target(name="doors.heartbeat.shape", run=_foreign_shape, errors=(ConfigError,), seeds=SHAPES, is_slow=True)
    yield Target(name="client.answer", run=_line_list, errors=remote, seeds=(LINES,), tokens=JSON_TOKENS)
    yield Target(name="wire.posted", run=_posted, errors=remote, seeds=(POSTED,), tokens=JSON_TOKENS)
    yield Target(name="wire.ordering", run=_ordered, errors=remote, seeds=(ORDER,), tokens=JSON_TOKENS)
    yield Target(
        name="doors.heartbeat", run=heartbeat.read, errors=(ConfigError,), seeds=(FOREIGN,), tokens=JSON_TOKENS
    )


ASSIGNMENT: Final = {
    "@type": EDS, "cluster_name": "a", "policy": {"drop_overloads": [{"category": "t", "drop_percentage": {"numerator": 5}}]},
    "endpoints": [
        {
            "priority": 1, "locality": {"region": "r"}, "load_balancing_weight": 3,
            "lb_endpoints": [
                {
                    "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}, "hostname": "h"},
                    "health_status": "DRAINING", "load_balancing_weight": 2, "metadata": {"filter_metadata": {"f": {"x": [1]}}},
                }
            ],
        }
    ],
}  # fmt: skip


def _planes() -> Iterator[Target]:
    """What a control plane says, where the extra `xds` is there to read it."""
    if find_spec("envoy") is None:
        return
    from envoy.service.discovery.v3 import discovery_pb2
    from google.protobuf import json_format

    from reachline.wire import xds

    said = {"type_url": EDS, "version_info": "1", "nonce": "n", "resources": [ASSIGNMENT]}
    sotw = json_format.ParseDict(said, discovery_pb2.DiscoveryResponse())
    delta = discovery_pb2.DeltaDiscoveryResponse(type_url=EDS, nonce="n", removed_resources=["b"])
    delta.resources.add(name="a", version="1", resource=sotw.resources[0]).ttl.FromSeconds(9)
    delta.resources.add(name="b", version="1")
    wrapped = discovery_pb2.DiscoveryResponse(type_url=EDS, nonce="n")
    wrapped.resources.add().Pack(delta.resources[0])

    def received(decode: Callable[[bytes], Response], *, is_delta: bool) -> Callable[[bytes], None]:
        def run(data: bytes) -> None:
            client = Client(xds.PARSERS, delta=is_delta)
            client.subscribe(EDS, "a")
            client.requests()
            for told in client.received(decode(data), 0.0):
                _assigned(told.value)
            for request in client.requests():
                assert len(request.error) <= LONGEST_NOTE
                xds.encode(request, xds.Node(id="n"))
            client.turn(client.deadline() or 0.0)

        return run

    def of_document(data: bytes) -> None:
        for parsed in xds.from_document(reshaped({"resources": [ASSIGNMENT]}, data)):
            assert bool(parsed.error) is (parsed.value is None)
            _assigned(parsed.value)

    remote = (RemoteProtocolError,)
    sotw_seeds = tuple(each.SerializeToString() for each in (sotw, wrapped))
    yield Target(name="wire.xds", run=received(xds.decode, is_delta=False), errors=remote, seeds=sotw_seeds)
    run = received(xds.decode_delta, is_delta=True)
    yield Target(name="wire.xds.delta", run=run, errors=remote, seeds=(delta.SerializeToString(),))
    yield Target(name="wire.xds.shape", run=of_document, errors=remote, seeds=SHAPES, is_slow=True)


def _evidence() -> Iterator[Target]:
    """What data planes send of their probes and calls."""
    if find_spec("envoy") is None:
        return
    from envoy.service.accesslog.v3 import als_pb2
    from envoy.service.health.v3 import hds_pb2
    from envoy.service.load_stats.v3 import lrs_pb2
    from google.protobuf import json_format

    from reachline.wire import als, hds, lrs

    node = {
        "id": "envoy-1",
        "locality": {"zone": "az1"},
        "user_agent_name": "envoy",
        "metadata": {"reachline": {"token": "t"}},
    }
    at = {"socket_address": {"address": "10.0.0.1", "port_value": 443}}

    def seed(kind: Any, document: Mapping[str, Any]) -> bytes:
        return bytes(json_format.ParseDict(document, kind()).SerializeToString())

    def logged(data: bytes) -> None:
        for call in als.decode(data).calls:
            assert call.address
            assert call.took_us >= 0

    def loaded(data: bytes) -> None:
        for spot in lrs.decode(data).spots:
            assert min(spot.load.ok, spot.load.errors) >= 0
            assert all(math.isfinite(one.total) and one.answers for one in spot.load.metrics)

    common = {
        "upstream_cluster": "a", "upstream_remote_address": at, "duration": "0.02s", "time_to_first_upstream_rx_byte": "0.01s",
        "response_flags": {"upstream_request_timeout": True}, "access_log_type": "DownstreamEnd",
    }  # fmt: skip
    http, tcp = {"common_properties": common, "response": {"response_code": 200}}, {"common_properties": common}
    entries = (
        seed(
            als_pb2.StreamAccessLogsMessage,
            {"identifier": {"node": node}, "http_logs": {"log_entry": [http]}},
        ),
        seed(als_pb2.StreamAccessLogsMessage, {"tcp_logs": {"log_entry": [tcp]}}),
    )
    metric = {"metric_name": "cpu", "num_requests_finished_with_metric": 2, "total_metric_value": 0.5}
    spot: dict[str, Any] = {
        "locality": {"sub_zone": "a"},
        "total_successful_requests": 3,
        "load_metric_stats": [metric],
    }
    spot["upstream_endpoint_stats"] = [{"address": at, "total_error_requests": 1}]
    load = {
        "node": node,
        "cluster_stats": [{"cluster_name": "a", "upstream_locality_stats": [spot], "load_report_interval": "1s"}],
    }
    asked = {"health_check_request": {"node": node, "capability": {"health_check_protocols": ["HTTP", "TCP"]}}}
    rows = [{"endpoints_health": [{"endpoint": {"address": at}, "health_status": "TIMEOUT"}]}]
    told = {
        "endpoint_health_response": {
            "cluster_endpoints_health": [{"cluster_name": "a", "locality_endpoints_health": rows}]
        }
    }
    probed = tuple(seed(hds_pb2.HealthCheckRequestOrEndpointHealthResponse, each) for each in (asked, told))
    remote = (RemoteProtocolError,)
    yield Target(name="wire.als", run=logged, errors=remote, seeds=entries)
    yield Target(name="wire.lrs", run=loaded, errors=remote, seeds=(seed(lrs_pb2.LoadStatsRequest, load),))
    yield Target(name="wire.hds", run=hds.decode, errors=remote, seeds=probed)


def _followers() -> Iterator[Target]:
    """What a client of a center says, where the extra `xds` is there to read it: whatever it is, the next answer can be made."""
    if find_spec("envoy") is None:
        return
    from reachline.wire import xds
    from reachline.wire.ads import CDS, DeltaRequest, Request
    from reachline.wire.ads_serving import Subscriber
    from reachline.wire.resources import EMPTY, Differences, rendered
    from reachline.wire.xds_serving import Splicer, read, read_delta

    states = [
        EMPTY.replaced([rendered(url, name, f"{name}{number}".encode()) for url in (CDS, EDS) for name in "ab"])
        for number in range(2)
    ]

    def received(
        parse: Callable[[bytes], tuple[Request | DeltaRequest, object]], *, is_delta: bool
    ) -> Callable[[bytes], None]:
        def run(data: bytes) -> None:
            stream, splicer = Subscriber(Differences(), delta=is_delta), Splicer()
            request, _ = parse(data)
            for state in states:
                stream.received(request)
                while (answer := stream.due(state)) is not None:
                    splicer.bytes_of(answer)
            assert all(len(seen.error) <= LONGEST_NOTE for seen in stream.seen())

        return run

    node, remote = xds.Node(id="n", metadata={"k": [1]}), (RemoteProtocolError,)
    sotw = (Request(EDS, ("a", "b"), "1", is_first=True), Request(CDS, ("*",), "1", "1", "b: is bad"))
    delta = (
        DeltaRequest(EDS, ("a",), ("b",), {"a": "1"}, is_first=True),
        DeltaRequest(CDS, nonce="1", error="b: is bad"),
    )
    seeds = tuple(xds.encode(each, node) for each in sotw)
    yield Target(name="wire.xds_serving", run=received(read, is_delta=False), errors=remote, seeds=seeds)
    seeds = tuple(xds.encode(each, node) for each in delta)
    yield Target(name="wire.xds_serving.delta", run=received(read_delta, is_delta=True), errors=remote, seeds=seeds)


def _assigned(value: object) -> None:
    """Whatever is taken can be balanced and checked."""
    if value is None:
        return
    membership = value.membership  # type: ignore[attr-defined]  # an Assignment, which only the extra knows
    assert len({each.address for each in membership.members}) == len(membership.members)
    assert not any(faults_of(each) for each in membership.members)
    assert membership.overprovisioning > 0
    assert all(0 <= each.share <= 1 for each in membership.drops)


ROUTES_SHAPE: Final = {
    "virtual_hosts": [
        {
            "name": "a",
            "domains": ["*"],
            "routes": [
                {
                    "match": {
                        "prefix": "/",
                        "headers": [{"name": "a", "string_match": {"safe_regex": {"regex": "a+"}}}],
                    },
                    "route": {
                        "weighted_clusters": {"clusters": [{"name": "c", "weight": 1}]},
                        "timeout": "1s",
                        "retry_policy": {"retry_on": "5xx"},
                        "regex_rewrite": {"pattern": {"regex": "(a)"}, "substitution": r"\1"},
                    },
                    "request_headers_to_add": [{"header": {"key": "a", "value": "%REQ(b)%"}}],
                },
            ],
        }
    ]
}


def _routes_shape(data: bytes) -> None:
    """Whatever is taken can be decided by."""
    found = Findings()
    config = route_config(Block(reshaped(ROUTES_SHAPE, data), (), found))
    if not any(each.is_error for each in found):
        decide(routes(config), Request(path="/aab?a", authority="a.example"), chance=1)


def _format(text: str) -> None:
    pieces, rule, _ = formats.parsed(text)
    assert not (pieces and rule)


def _expression(text: str) -> None:
    pattern, rule, _ = compiled(text)
    assert (pattern is None) is bool(rule)


def _envoys() -> Iterator[Target]:
    yield Target(name="doors.envoy.shape", run=_routes_shape, errors=(), seeds=SHAPES, is_slow=True)
    yield Target(
        name="doors.envoy.formats",
        run=_text(_format),
        errors=(),
        seeds=(b'[%START_TIME(%s)%] "%REQ(X-A?B):10%" 100%%\n',),
        tokens=(b"%", b"%%", b"%REQ(", b")%", b":1%", b"%DURATION%"),
    )
    yield Target(
        name="doors.envoy.regexes",
        run=_text(_expression),
        errors=(),
        seeds=(rb"^/(?i:a|b)+[[:alpha:]&&\d-]{2,3}\Qx.\E(?P<n>c)\x{41}\z$",),
        tokens=(
            b"(?",
            b"[",
            b"]",
            b"[[:",
            b":]]",
            b"{1,2}",
            b"\\",
            b"\\Q",
            b"\\E",
            b"*",
            b"+",
            b"|",
            b"(?i)",
            b"^",
            b"$",
        ),
    )


def _texts() -> Iterator[Target]:
    custom = (PydanticCustomError,)
    urls = (b"tcp://", b"https://", b"[::1]", b"@", b":", b"/", b"?", b"#", b"%00", b"://", b",", b"direct")
    yield Target(
        name="cli.watch_targets",
        run=_text(_watched),
        is_slow=True,
        errors=(ConfigError,),
        seeds=(
            b"tcp://10.0.0.1:443?via=socks5://e:s@10.0.0.9:1080&source=127.0.0.1",
            b"a.example",
            b"dns://127.0.0.1/a.test?type=AAAA",
            b"redis://127.0.0.1?key=x",
        ),
        tokens=(*urls, b"via=", b"source=", b"interface=", b"&"),
    )
    yield Target(
        name="doors.addresses",
        run=_text(_target),
        errors=(ValueError,),
        seeds=(b"tcp://10.0.0.1:443", b"https://[fe80::1]:8443/x?y=1", b"dns://127.0.0.1/a.test", b"icmp://a.example"),
        tokens=urls,
    )
    yield Target(
        name="doors.outbounds",
        run=_text(_via),
        errors=custom,
        seeds=(b"socks5://eve:s3cret@10.0.0.9:1080,http://p.example:3128", b"direct"),
        tokens=(*urls, b"socks5h://"),
    )
    yield Target(
        name="doors.units",
        run=_text(_any_unit),
        errors=custom,
        seeds=(b"1m30s", b"100ms", b"1.5%", b"2GB"),
        tokens=(b"e9", b"9" * 40, b".", b"%"),
    )
    yield Target(
        name="talk.literal",
        run=_text(literal),
        errors=(ValueError,),
        seeds=(rb"PING\r\n\x00", b"hex:50494e47"),
        tokens=(rb"\x", b"\\", b"hex:"),
    )
    yield Target(name="doors.composer", run=_text(_compose), errors=(), seeds=_documents(), tokens=YAML_TOKENS)
    yield Target(
        name="doors.reach",
        run=_text(_document),
        is_slow=True,
        errors=(ConfigError,),
        seeds=_documents()[:3],
        tokens=YAML_TOKENS,
    )
    yield Target(
        name="wire.observatory",
        run=read_override,
        errors=(RemoteProtocolError,),
        seeds=(b"\x0a\x01b\x12\x06target", b"\x18\x07\x0a\x01a\x21" + bytes(8)),
        tokens=(b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x0b", b"\x2d"),
    )
    yield Target(
        name="wire.observatory.info",
        run=read_info,
        errors=(RemoteProtocolError,),
        seeds=(b"\x0a\x0d\x2a\x04\x12\x02s1\x32\x05\x0a\x03s-2",),
        tokens=(b"\x0a\xff\xff\xff\xff\x0f", b"\x2a\x00", b"\x12\xff", b"\x0b"),
    )
    yield Target(
        name="wire.xray_route",
        run=read_route,
        errors=(RemoteProtocolError,),
        seeds=(b"\x0a\x1c\x0a\x02in\x10\x02\x22\x04\x0a\x00\x00\x01\x30\xbb\x03\x3a\x0bexample.com\x12\x02ip",),
        tokens=(b"\x0a\xff\xff\xff\xff\x0f", b"\x22\x03abc", b"\x30\xff\xff\x7f", b"\x12\x01\xff"),
    )
    yield Target(
        name="doors.observatory",
        run=_text(_xray),
        errors=(ConfigError,),
        seeds=XRAY,
        tokens=(b"//", b"/*", b"*/", b"#", b",", b"null", b'"\\ud800"', b"{{", b"1e9", b'"10s"', b"[]", b"{}"),
    )


def _proxied_request(data: bytes) -> None:
    """However it is cut, the same requests, or a refusal both times; and no request whose end is doubtful."""
    readers = [RequestReader(Limits(head=2_000, headers=20, accept_http_10=True)) for _ in range(2)]
    readers[0].feed(data, 0.0)
    for at in range(0, len(data), 7):
        if readers[1].refusal is None and readers[1].rest is None:
            readers[1].feed(data[at : at + 7], 0.0)
    whole, cut = ([(each.path, b"".join(each.chunks), each.is_complete) for each in reader.inbox] for reader in readers)
    if not any(reader.rest is not None or reader.refusal is flags.TOO_LARGE for reader in readers):
        assert whole == cut
        assert (readers[0].refusal is None) is (readers[1].refusal is None)
    for reader in readers:
        for request in reader.inbox:
            names = [name for name, _ in request.headers]
            assert names.count(b"content-length") <= 1
            assert not (request.length == -1 and b"content-length" in names)
            assert b"transfer-encoding" not in names
            assert all(b"\r" not in value and b"\n" not in value and b"\0" not in value for _, value in request.headers)


def _proxied_answer(data: bytes) -> None:
    for head_only in (False, True):
        reader = AnswerReader(most_headers=20, most_bytes=2_000)
        answer = reader.expect(head_only=head_only)
        for at in range(0, len(data), 5):
            if not reader.broken and reader.rest is None:
                reader.feed(data[at : at + 5])
        reader.ended()
        if answer.length is not None and answer.length >= 0 and not reader.broken:
            assert sum(map(len, answer.chunks)) <= answer.length
        assert not (head_only and answer.chunks)


def _proxies() -> Iterator[Target]:
    requests = (
        b"POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /c HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: x, close\r\n\r\n3;e\r\nabc\r\n0\r\nt: v\r\n\r\n",
        b"GET http://b:8/ HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nx",
        b"GET / HTTP/1.0\r\n\r\n",
    )
    yield Target(name="proxy.requests", run=_proxied_request, errors=(), seeds=requests, tokens=HTTP_TOKENS)
    yield Target(name="proxy.answers", run=_proxied_answer, errors=(), seeds=HTTP, tokens=HTTP_TOKENS)
    yield Target(name="proxy.hello", run=hello.read, errors=(), seeds=(_client_hello(),))


def _entered(data: bytes) -> None:
    """However it is cut, the same request or a refusal both times; and nothing in it that could steer a proxy behind us."""
    for accounts in ({}, {"u": "p"}):
        whole, cut = (entering.Entering(accounts, takes_udp=True) for _ in range(2))
        sent = whole.received(data)
        pieces_sent = b""
        for at in range(0, len(data), 7):
            if cut.asked is None and not cut.refusal:
                pieces_sent += cut.received(data[at : at + 7])
        assert sent == pieces_sent
        assert (whole.asked is None, bool(whole.refusal)) == (cut.asked is None, bool(cut.refusal))
        assert len(sent) <= LONGEST_NOTE
        assert whole.refusal.isprintable()
        if whole.asked is not None and whole.asked.form is not entering.Form.ASSOCIATE:
            assert whole.asked.host.isprintable()
            assert not set(whole.asked.host) & set(" /@\\\"'")
            assert 0 < whole.asked.port <= 65_535


def _listed(data: bytes) -> None:
    for code in geodata.codes(data)[:4]:
        for site in geodata.sites(data, code) or ():
            assert isinstance(site.value, str)
        found = geodata.networks(data, code)
        assert found is not None
        assert all(0 <= prefix <= 32 for _, prefix in found.four)


def _unwrapped(data: bytes) -> None:
    found = socks5.unwrapped(data)
    if found is not None and entering.is_target(*found[:2]):
        assert socks5.unwrapped(socks5.wrapping(*found[:2]) + data[found[2] :]) is not None


def _passages() -> Iterator[Target]:
    said = (
        b"\x05\x01\x00\x05\x01\x00\x03\x09a.example\x01\xbb",
        b"\x05\x01\x02\x01\x01u\x01p\x05\x03\x00\x04" + bytes(18),
        b"\x04\x01\x01\xbb\x00\x00\x00\x01u\x00a.example\x00hi",
        b"CONNECT [::1]:443 HTTP/1.1\r\nProxy-Authorization: Basic dTpw\r\n\r\n",
        b"POST http://a:81/b HTTP/1.1\r\nContent-Length: 2\r\nConnection: x\r\nX: 1\r\n\r\nabcd",
    )
    lists = (
        bytes.fromhex("0a140a03414453120d0802120361647a1a040a02636e"),
        bytes.fromhex("0a100a02434e12080a040a00000010081800"),
    )
    yield Target(name="passage.entering", run=_entered, errors=(), seeds=said, tokens=HTTP_TOKENS)
    datagrams = (b"\0\0\0\x01\x7f\0\0\x01\0\x35x", b"\0\0\0\x03\x01a\0\x35x", b"\0\0\0\x04" + bytes(18))
    yield Target(name="passage.datagrams", run=_unwrapped, errors=(), seeds=datagrams)
    yield Target(name="geodata", run=_listed, errors=(RemoteProtocolError,), seeds=lists)


def _client_hello() -> bytes:
    there = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), there, server_hostname="a.example").do_handshake()
    return there.read()


TARGETS: Final[dict[str, Target]] = {
    each.name: each
    for each in (
        *_talks(),
        *_whole(),
        *_answers(),
        *_bodies(),
        *_planes(),
        *_followers(),
        *_evidence(),
        *_texts(),
        *_envoys(),
        *_proxies(),
        *_passages(),
    )
}
