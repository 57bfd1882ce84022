"""Messages of wires, whole and in pieces."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Final

import msgspec
import trustme
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from tests.fuzz.reshape import reshaped
from tests.fuzz.target import (
    HTTP,
    HTTP_TOKENS,
    SERVING,
    SHAPES,
    Target,
    dns_answer,
    framed,
    pieces,
)

from reachline.center.checks import check
from reachline.client import answer
from reachline.core import histogram
from reachline.core.pick.member import WEIGHT_MOST
from reachline.core.pick.orca import Weighing, weight_of
from reachline.doors import heartbeat
from reachline.errors import ConfigError, RemoteProtocolError
from reachline.model import Kind, Reading
from reachline.wire import (
    dns,
    frame,
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
    x509,
)

__all__ = ["answers_targets", "bodies_targets", "whole_targets"]


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


def _frame_shape(data: bytes) -> None:
    _frame(msgspec.msgpack.encode(reshaped(FRAME_SHAPES[data[0] % len(FRAMES)] if data else {}, data[1:])))


def _lines_shape(data: bytes) -> None:
    answer.line_list(reshaped(LINES_SHAPE, data), cluster="shop")


def _posted_shape(data: bytes) -> None:
    posted.read_outcomes(reshaped(POSTED_SHAPE, data))


def _foreign_shape(data: bytes) -> None:
    heartbeat.read(json.dumps(reshaped(FOREIGN_SHAPE, data)).encode())


def whole_targets() -> Iterator[Target]:
    remote = (RemoteProtocolError,)
    yield Target(name="wire.http1", run=_http1, errors=remote, seeds=framed(*HTTP), tokens=HTTP_TOKENS)
    yield Target(
        name="wire.dns", run=dns.decode, errors=remote, seeds=(dns_answer(dns.query(7, "a.test")[0]),),
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
        seeds=(plain, dns_answer(QUERY)),
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


def answers_targets() -> Iterator[Target]:
    remote = (RemoteProtocolError,)
    yield Target(
        name="wire.redis",
        run=_replies,
        errors=remote,
        seeds=framed(b"+PONG\r\n", b"$3\r\nfoo\r\n:12\r\n-ERR x\r\n"),
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


def bodies_targets() -> Iterator[Target]:
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
