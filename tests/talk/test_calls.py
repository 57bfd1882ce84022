"""What is asked beyond a connect: tcp with something to say, redis, udp, HTTP/2 and gRPC, each by its verdict and words."""

from __future__ import annotations

import sys

import h2.config
import h2.connection
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.talk.test_build import built, problems
from tests.wire.test_grpc_health import framed
from tests.wire.test_http2 import answered, frame, goaway

from reachline import talk
from reachline.doors.addresses import SCHEMES, parse_target
from reachline.errors import ConfigError
from reachline.model import Failure, Kind
from reachline.talk.udp import payload
from reachline.talk.way import Way

NONCE = 0x0123_4567_89AB_CDEF
SETTINGS = frame(4, b"")


def conversation(target: str, kind: str = "", **options):
    endpoint = parse_target(target)
    named = SCHEMES[endpoint.scheme].kinds[0] if not kind else Kind(kind)
    found = talk.build(named, endpoint, options).talk(endpoint, NONCE)
    assert found is not None
    return found


def heard(found, *pieces: bytes):
    """(failure, words) after these pieces, then the peer closes."""
    for piece in pieces:
        if found.received(piece) is None:
            break
    return found.closed(), found.note


# ------------------------------------------------------------------------------------------------------------------ tcp


def test_tcp_without_anything_to_say_is_a_bare_connect():
    endpoint = parse_target("tcp://10.0.0.1:1")

    assert talk.build(Kind.TCP, endpoint, {}).talk(endpoint, 1) is None
    assert talk.build(Kind.TCP, endpoint, {"tls": True}).talk(endpoint, 1) is None


@pytest.mark.parametrize(
    ("options", "pieces", "failure", "note"),
    [
        ({"expect": "220 "}, [b"22", b"0 mail"], None, ""),
        ({"send": r"PING\r\n"}, [b"x"], None, ""),
        ({"send": "x", "expect": r"a\0b"}, [b"..a", b"\0", b"b.."], None, ""),
        ({"expect": "220 "}, [b"554 no"], Failure.STATUS, "what is expected is not among the 6 bytes before the peer closed"),
        ({"expect": "yes", "limit": 4}, [b"no, but yes"], Failure.STATUS, "what is expected is not among the first 4 bytes"),
        ({"expect": "220 "}, [], Failure.RESET, "closed without an answer"),
        ({"send": "x"}, [], Failure.RESET, "closed without an answer"),
    ],
)  # fmt: skip
def test_tcp_finds_what_is_expected_or_says_where_it_is_not(options, pieces, failure, note):
    assert heard(conversation("tcp://10.0.0.1:25", **options), *pieces) == (failure, note)


@given(st.integers(0, 30), st.integers(0, 30))
def test_tcp_finds_it_wherever_the_answer_is_cut(first, second):
    answer, cut = b"0123456789needle0123456789", sorted((min(first, 26), min(second, 26)))
    found = conversation("tcp://10.0.0.1:25", expect="needle")

    assert heard(found, answer[: cut[0]], answer[cut[0] : cut[1]], answer[cut[1] :]) == (None, "")


def test_tcp_keeps_the_connect_as_its_round_trip_whatever_is_said():
    assert built("tcp", "tcp://10.0.0.1:25", expect="220").way is Way.CONNECT
    assert built("redis", "redis://10.0.0.1").way is Way.STREAM


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"send": r"\q"}, "must be text"),
        ({"limit": 0}, "whole number from 1"),
        ({"sni": "a"}, "is not an option of this probe"),
        ({"tls": True, "min_tls": "1.1"}, "must be 1.2 or 1.3"),
        ({"tls": True, "alpn": "h2", "expect_alpn": "http/1.1"}, "must offer http/1.1"),
        ({"tls": True, "expect_alpn": "a,b"}, "must be one protocol name"),
    ],
)
def test_tcp_options_have_rules(options, rule):
    assert any(rule in line for line in problems("tcp", "tcp://10.0.0.1:25", **options))


def test_a_protocol_that_must_be_agreed_on_is_offered():
    secure = built("tls", "tls://a.example", expect_alpn="h2", min_tls="1.3").secure

    assert (secure.alpn, secure.expect_alpn, secure.min_tls) == (("h2",), "h2", "1.3")


# ---------------------------------------------------------------------------------------------------------------- redis


@pytest.mark.parametrize(
    ("target", "options", "sent"),
    [
        ("redis://h", {}, b"*1\r\n$4\r\nPING\r\n"),
        ("redis://h/3", {"exists": "k"}, b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*2\r\n$6\r\nEXISTS\r\n$1\r\nk\r\n"),
        ("redis://h/3", {"db": 0}, b"*1\r\n$4\r\nPING\r\n"),
        ("tcp://h:1", {"password": "pw"}, b"*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n*1\r\n$4\r\nPING\r\n"),
        ("redis://h", {"user": "u", "password": "pw"}, b"*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$2\r\npw\r\n*1\r\n$4\r\nPING\r\n"),
    ],
)  # fmt: skip
def test_redis_says_all_it_has_to_say_at_once(target, options, sent):
    assert conversation(target, "redis", **options).begin() == sent


@pytest.mark.parametrize(
    ("options", "pieces", "failure", "note"),
    [
        ({}, [b"+PO", b"NG\r\n"], None, ""),
        ({"exists": "k"}, [b":1\r\n"], None, ""),
        ({"exists": "k"}, [b":0\r\n"], Failure.STATUS, "the key does not exist"),
        ({"password": "p"}, [b"+OK\r\n+PONG\r\n"], None, ""),
        ({"password": "p"}, [b"-WRONGPASS invalid\r\n+PONG\r\n"], Failure.STATUS, "WRONGPASS invalid"),
        ({}, [b"-NOAUTH Authentication required.\r\n"], Failure.STATUS, "NOAUTH Authentication required."),
        ({}, [b"-LOADING Redis is loading\r\n"], Failure.STATUS, "LOADING Redis is loading"),
        ({"exists": "k"}, [b"-MOVED 1 10.0.0.7:1\r\n"], Failure.STATUS, "MOVED 1 10.0.0.7:1"),
        ({}, [b"-\r\n"], Failure.STATUS, "an error without words"),
        ({}, [b"+HELLO\r\n"], Failure.STATUS, "unexpected reply 'HELLO'"),
        ({}, [b"HTTP/1.1 400\r\n"], Failure.PROTOCOL, "not a Redis reply"),
        ({"password": "p"}, [b"+OK\r\n"], Failure.PROTOCOL, "closed within the replies"),
        ({}, [], Failure.RESET, "closed without an answer"),
    ],
)
def test_redis_is_judged_by_its_replies(options, pieces, failure, note):
    assert heard(conversation("redis://10.0.0.1", **options), *pieces) == (failure, note)


@pytest.mark.parametrize(
    ("target", "options", "rule"),
    [
        ("redis://h/x", {}, "number of a database"),
        ("redis://h", {"db": 20_000}, "number of a database"),
        ("redis://h", {"user": "u"}, "needs a password"),
        ("redis://h", {"exists": ""}, "must be 1 to 512 bytes"),
    ],
)
def test_redis_options_have_rules(target, options, rule):
    assert any(rule in line for line in problems("redis", target, **options))


def test_a_password_is_never_shown():
    long = "geheim" * 200

    told = problems("redis", "redis://h", password=long) + problems("http", "http://h", headers="geheim")

    assert len(told) == 2
    assert "geheim" not in " ".join(told)
    assert "geheim" not in repr(built("redis", "redis://h", password="geheim"))


# ------------------------------------------------------------------------------------------------------------------ udp


def test_udp_takes_nothing_but_its_own_datagram():
    found = conversation("udp://10.0.0.1:7", size=20)
    sent = found.begin()

    assert (len(sent), sent[:8]) == (20, NONCE.to_bytes(8, "big"))
    assert found.received(b"") == b""
    assert found.received(sent[:-1]) == b""
    assert found.received(payload(NONCE + 1, 20)) == b""
    assert found.received(sent) is None
    assert (found.closed(), found.note) == (None, "")


@pytest.mark.parametrize(
    ("options", "answer", "failure", "note"),
    [
        ({"expect": "pong"}, b"a pong", None, ""),
        ({"send": "ping", "expect": "pong"}, b"pang", Failure.STATUS, "the answer does not contain what is expected"),
    ],
)
def test_udp_with_an_expectation_takes_the_first_answer(options, answer, failure, note):
    assert heard(conversation("udp://10.0.0.1:7", **options), answer) == (failure, note)


def test_udp_that_sends_something_must_know_what_comes_back():
    assert any("needs expect" in line for line in problems("udp", "udp://10.0.0.1:7", send="x"))
    assert any("whole number from 8" in line for line in problems("udp", "udp://10.0.0.1:7", size=7))


# --------------------------------------------------------------------------------------------------------------- HTTP/2


def second(**options):
    return conversation("http://a.example/healthz", version=2, **options)


@pytest.mark.parametrize(
    ("options", "answer", "failure", "note"),
    [
        ({}, {}, None, ""),
        ({"body": "needle"}, {"body": b"a needle"}, None, ""),
        ({"body": "needle"}, {"body": b"nothing"}, Failure.STATUS, "the body does not contain what is expected"),
        ({}, {"headers": ((":status", "503"),)}, Failure.STATUS, "status 503"),
        ({"expect": "5xx"}, {"headers": ((":status", "503"),)}, None, ""),
        ({"expect": "200"}, {"headers": ((":status", "302"), ("location", "/x"))}, Failure.STATUS, "status 302"),
        ({"limit": 10}, {"body": bytes(40_000)}, None, ""),
    ],
)
def test_http2_is_judged_as_http1_is(options, answer, failure, note):
    found = second(**options)

    assert heard(found, answered(found.begin(), **answer)) == (failure, note)
    assert found.answered
    assert found.status in {200, 302, 503}


@pytest.mark.parametrize(
    ("pieces", "failure", "note"),
    [
        ([], Failure.RESET, "closed without an answer"),
        ([SETTINGS], Failure.PROTOCOL, "closed within the header"),
        ([SETTINGS, goaway(0, 11)], Failure.PROTOCOL, "HTTP/2: the peer went away: ENHANCE_YOUR_CALM"),
        ([SETTINGS, frame(1, b"\x88", flags=4, stream=1)], Failure.PROTOCOL, "closed within the body"),
        ([b"HTTP/1.1 400 Bad Request\r\n"], Failure.PROTOCOL, "the peer speaks HTTP/1.1"),
    ],
    ids=range(5),
)
def test_http2_that_ends_early_broke_protocol(pieces, failure, note):
    found = second()
    found.begin()

    assert heard(found, *pieces) == (failure, note)


def test_http2_counts_the_peers_settings_for_no_answer():
    found = second()
    found.begin()

    assert found.received(SETTINGS)
    assert not found.answered


def test_http2_says_what_http1_says():
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    server.initiate_connection()

    events = server.receive_data(second(method="POST", data="hello", headers="X-A: 1\nUser-Agent: mine").begin())

    [headers] = [dict(event.headers) for event in events if hasattr(event, "headers")]
    assert headers == {
        ":method": "POST", ":scheme": "http", ":authority": "a.example", ":path": "/healthz",
        "accept": "*/*", "x-a": "1", "user-agent": "mine", "content-length": "5",
    }  # fmt: skip


def test_http2_over_tls_must_be_agreed_on():
    assert built("http", "https://a.example", version=2).secure.expect_alpn == "h2"
    assert any("must offer h2" in line for line in problems("http", "https://a.example", version=2, alpn="http/1.1"))
    assert any("must be 1.1 or 2" in line for line in problems("http", "https://a.example", version=3))
    assert any("in HTTP/2" in line for line in problems("http", "http://a.example", version=2, headers="TE: gzip"))


def test_without_its_library_http2_is_refused_in_words(monkeypatch):
    monkeypatch.delattr("reachline.wire.http2", raising=False)
    monkeypatch.setitem(sys.modules, "reachline.wire.http2", None)

    assert any("needs the package h2" in line for line in problems("http", "http://a.example", version=2))
    assert any("needs the package h2" in line for line in problems("grpc", "grpc://a.example:1"))


def test_a_request_says_how_long_its_body_is():
    assert built("http", "http://h", method="POST").request.endswith(b"\r\nContent-Length: 0\r\n\r\n")
    assert built("http", "http://h", method="POST", data=r"a\nb").request.endswith(b"\r\nContent-Length: 3\r\n\r\na\nb")
    assert b"Content-Length" not in built("http", "http://h").request


# ----------------------------------------------------------------------------------------------------------------- gRPC

GRPC = ((":status", "200"), ("content-type", "application/grpc"))
GOOD = {"headers": GRPC, "body": framed(b"\x08\1"), "trailers": (("grpc-status", "0"),)}


@pytest.mark.parametrize(
    ("answer", "failure", "note"),
    [
        (GOOD, None, ""),
        ({**GOOD, "body": framed(b"\x08\2")}, Failure.STATUS, "NOT_SERVING"),
        ({**GOOD, "body": framed(b"")}, Failure.STATUS, "UNKNOWN"),
        ({**GOOD, "body": framed(b"\x08\3")}, Failure.STATUS, "SERVICE_UNKNOWN"),
        ({"headers": (*GRPC, ("grpc-status", "12"))}, Failure.STATUS, "UNIMPLEMENTED"),
        ({"headers": (*GRPC, ("grpc-status", "5"), ("grpc-message", "no%20such"))}, Failure.STATUS, "NOT_FOUND: no such"),
        ({"headers": ((":status", "502"),)}, Failure.STATUS, "HTTP status 502"),
        ({"headers": ((":status", "200"),), "body": b"<html>"}, Failure.PROTOCOL, "answered by something that is not gRPC"),
        ({**GOOD, "trailers": (("x", "y"),)}, Failure.PROTOCOL, "ended without a gRPC status"),
        ({**GOOD, "body": b""}, Failure.PROTOCOL, "gRPC message cut short"),
        ({**GOOD, "body": bytes(5_000)}, Failure.PROTOCOL, "gRPC answer of more than 2048 bytes"),
    ],
    ids=range(11),
)  # fmt: skip
def test_grpc_is_judged_by_status_and_answer(answer, failure, note):
    found = conversation("grpc://a.example:1")

    assert heard(found, answered(found.begin(), **answer)) == (failure, note)


def test_words_of_a_target_are_short_however_they_must_be_written():
    asked, called = conversation("redis://h", "redis"), conversation("grpc://a.example:1")
    asked.begin()
    _, said = heard(asked, b"-" + b"\x01" * 200 + b"\r\n")
    headers = (*GRPC, ("grpc-status", "2"), ("grpc-message", "%F0%90%80%80" * 100))
    _, told = heard(called, answered(called.begin(), headers=headers))

    assert 0 < len(said) <= 200
    assert 0 < len(told) <= 200


def test_grpc_that_is_closed_early_says_where():
    nothing, some = conversation("grpc://a.example:1"), conversation("grpc://a.example:1")
    some.begin()

    assert heard(nothing) == (Failure.RESET, "closed without an answer")
    assert heard(some, SETTINGS) == (Failure.PROTOCOL, "closed within the header")


@pytest.mark.parametrize(
    ("target", "options", "service", "authority", "scheme"),
    [
        ("grpc://h:1", {}, b"", "h:1", "http"),
        ("grpcs://h/shop.v1.Orders", {}, b"shop.v1.Orders", "h", "https"),
        ("https://h/healthz", {"service": "a.B", "authority": "x"}, b"a.B", "x", "https"),
    ],
)
def test_grpc_asks_about_the_service_of_its_target(target, options, service, authority, scheme):
    asked = built("grpc", target, **options).asked

    assert asked.body == framed(b"\x0a" + bytes((len(service),)) + service if service else b"")
    assert (asked.authority, asked.scheme) == (authority, scheme)


@pytest.mark.parametrize("path", ["a" * 256, "a" * 20_000, "a%00b"])
def test_grpc_asks_about_nothing_that_is_no_service(path):
    with pytest.raises(ConfigError, match="to: must be a service's name"):
        conversation(f"grpc://h:1/{path}")


def test_a_kind_that_sends_nothing_has_no_probe():
    assert any("sends nothing" in line for line in problems("passive", "tcp://10.0.0.1:1"))
