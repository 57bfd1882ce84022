"""A glance confirms only what the whole talk would call ok, with the same status; anything may come from a peer."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reachline import talk
from reachline.doors.addresses import parse_target
from reachline.model import Kind
from reachline.talk import glance

HTTP = "http://a.example/healthz"
DNS = "dns://10.0.0.2/a.example"
NUMBER = 0x1234


def made(target: str, **options):
    endpoint = parse_target(target)
    kind = Kind.HTTP if endpoint.scheme == "https" else Kind(endpoint.scheme)
    return talk.build(kind, endpoint, options), endpoint


def judged(target: str, data: bytes, **options) -> int:
    """The status where the whole talk calls `data` an answer that is over and ok; DOUBT otherwise."""
    probe, endpoint = made(target, **options)
    conversation = probe.talk(endpoint, NUMBER)
    conversation.begin()
    if conversation.received(data) is not None or conversation.closed() is not None:
        return glance.DOUBT
    return conversation.status


LINES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.0 301",
        b"http/1.1 200 OK",
        b"HTTP/1.1 204 None",
        b"HTTP/1.1 503 Busy",
        b"HTTP/1.1 100 Continue",
        b"HTTP/2 200",
        b"HTTP/1.1 999 x",
    ]
)
HEADERS = st.sampled_from(
    [
        b"Content-Length: 2",
        b"content-length: 0",
        b"CONTENT-LENGTH: 5",
        b"Content-Length:2",
        b"Content-Length : 2",
        b"Content-Length: 2, 2",
        b"Content-Length: x",
        b"Content-Length: 0000000000000002",
        b"Content-Length-Extra: 1",
        b"Transfer-Encoding: chunked",
        b"Server: content-length: 7",
        b"Date: Mon, 30 Nov 2026 12:03:35 GMT",
        b" folded: header",
        b"no colon",
        b"",
    ]
)
ENDS = st.sampled_from([b"\r\n", b"\n", b"\r", b"\r\n\r\n"])
RESPONSES = st.builds(
    lambda line, headers, body: line + b"".join(end + header for end, header in headers) + b"\r\n\r\n" + body,
    LINES,
    st.lists(st.tuples(ENDS, HEADERS), max_size=4),
    st.sampled_from([b"", b"o", b"ok", b"okay!", b"2\r\nok\r\n0\r\n\r\n"]),
)


@given(data=st.one_of(RESPONSES, st.binary(max_size=60)), method=st.sampled_from(["GET", "HEAD"]))
@example(data=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", method="GET")
@example(data=b"HTTP/1.1 204 No Content\r\n\r\n", method="GET")
@example(data=b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", method="HEAD")
def test_a_glance_at_http_says_what_the_talk_says_or_nothing(data, method):
    seen = glance.of(*made(HTTP, method=method))

    assert seen is not None
    status = seen.read(data)

    assert status in {glance.DOUBT, judged(HTTP, data, method=method)}


@pytest.mark.parametrize(
    ("data", "options", "status"),
    [
        (b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 2\r\nDate: now\r\n\r\nok", {}, 200),
        (b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nok", {"expect": "404"}, 404),
        (b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nok", {}, glance.DOUBT),
        (b"HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n", {}, 204),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", {"method": "HEAD"}, 200),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", {}, glance.DOUBT),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {}, glance.DOUBT),
    ],
)
def test_the_plainest_answers_are_known_at_sight(data, options, status):
    seen = glance.of(*made(HTTP, **options))

    assert seen is not None
    assert seen.read(data) == status


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (HTTP, {"body": "needle"}),
        ("https://a.example/", {}),
        (HTTP, {"headers": f"X-Long: {'x' * 5_000}"}),
        (HTTP, {"version": "2"}),
        (DNS, {"expect": "10.0.0.9"}),
        (DNS, {"min_ttl": 60}),
        ("icmp://10.0.0.1", {}),
        ("tcp://10.0.0.1:1", {}),
    ],
)
def test_what_expects_more_than_a_status_has_no_glance(target, options):
    assert glance.of(*made(target, **options)) is None


def test_a_glances_request_is_the_talks():
    probe, endpoint = made(HTTP)
    question, server = made(DNS)
    request, query = glance.of(probe, endpoint), glance.of(question, server)

    assert request is not None
    assert request.request == probe.talk(endpoint, NUMBER).begin()
    assert query is not None
    assert NUMBER.to_bytes(2, "big") + query.request == question.talk(server, NUMBER).begin()


QUESTION = b"\1a\7example\0\0\1\0\1"
RECORD = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x0a\0\0\1"
RECORDS = st.sampled_from(
    [
        RECORD,
        b"\xc0\x0c\0\x1c\0\1\0\0\0\x3c\0\x10" + bytes(16),
        b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\5\x0a\0\0\1\0",
        b"\xc0\x0c\0\5\0\1\0\0\0\x3c\0\2\xc0\x0c",
        b"\xc0\xff\0\1\0\1\0\0\0\x3c\0\4\x0a\0\0\1",
        b"\xc0\x0c\0\1\0\3\0\0\0\x3c\0\4\x0a\0\0\1",
        RECORD[:-2],
    ]
)


@given(
    flags=st.sampled_from([0x8180, 0x8183, 0x8380, 0x0100, 0x8580]),
    counts=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    question=st.sampled_from([QUESTION, QUESTION.replace(b"a", b"A", 1), QUESTION[:-4] + b"\0\x1c\0\1", b""]),
    records=st.lists(RECORDS, max_size=3),
    rcode=st.sampled_from(["NOERROR", "NXDOMAIN"]),
)
@example(flags=0x8180, counts=(1, 1), question=QUESTION, records=[RECORD], rcode="NOERROR")
def test_a_glance_at_dns_says_what_the_talk_says_or_nothing(flags, counts, question, records, rcode):
    data = struct.pack("!HHHHHH", NUMBER, flags, *counts, 0, 0) + question + b"".join(records)
    seen = glance.of(*made(DNS, rcode=rcode))

    assert seen is not None
    status = seen.read(data)

    assert status in {glance.DOUBT, judged(DNS, data, rcode=rcode)}


def test_an_address_is_known_at_sight():
    data = struct.pack("!HHHHHH", NUMBER, 0x8180, 1, 2, 0, 0) + QUESTION + RECORD * 2

    seen = glance.of(*made(DNS))

    assert seen is not None
    assert seen.read(data) == 0
