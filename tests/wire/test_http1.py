from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import RemoteProtocolError
from reachline.wire.http1 import MAX_HEAD, Response, request

FIXED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: a\r\nX: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
UNSIZED = b"HTTP/1.0 200 OK\r\n\r\nhello"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\nContent-Length: 5\n\nhello"


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@pytest.mark.parametrize("data", [FIXED, CHUNKED, UNSIZED, INTERIM])
@given(cuts=st.lists(st.integers(0, 500), max_size=12))
def test_a_response_is_the_same_however_it_is_cut(data, cuts):
    response = Response(keep=100)

    for piece in pieces(data, cuts):
        response.feed(piece)

    assert response.ended()
    assert (response.status, bytes(response.kept), response.size) == (200, b"hello", 5)


def test_headers_of_one_name_are_joined_and_names_are_lower():
    response = Response()
    response.feed(FIXED)

    assert response.done
    assert response.headers == {"content-length": "5", "x": "a, b"}


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        (b"X" + b" " * 30_000 + b"y: z\r\n", f"x{' ' * 30_000}y", "z"),
        (b"X: y" + b" " * 30_000 + b"z \t\r\n", "x", f"y{' ' * 30_000}z"),
        (b"a:\r\n" * 7_000, "a", ", " * 6_999),
    ],
    ids=["wide-name", "wide-value", "many"],
)
def test_headers_are_read_in_one_pass_whatever_they_hold(fields, name, value):
    response = Response(to_head=True)
    response.feed(b"HTTP/1.1 503 no\r\n" + fields + b"\r\n")
    began = time.process_time()

    assert response.headers == {name: value}
    assert time.process_time() - began < 1, "a pass for each space took seconds"


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body(status):
    response = Response()
    response.feed(b"HTTP/1.1 %d x\r\nContent-Length: 10\r\n\r\n" % status)

    assert response.done


def test_an_answer_to_head_has_no_body():
    response = Response(to_head=True)
    response.feed(FIXED[:-5])

    assert response.done


def test_only_what_is_asked_for_is_kept():
    response = Response(keep=3)
    response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000)

    assert response.done
    assert (bytes(response.kept), response.size) == (b"xxx", 1_000_000)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"hello", "not HTTP"),
        (b"HTTP/2 200\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 099 OK\r\n\r\n", "status below 100"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "malformed header line"),
        (b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n", "malformed header line"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "content-length is not a number"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999\r\n\r\n", "content-length is not a number"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk size is not a number"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", "chunk longer than its size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 300, "chunk size line too long"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1_100,
            "more than 1024 tiny chunks",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\nab", "more than one content-length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab", "more than one content-length"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 9_000, f"header of more than {MAX_HEAD} bytes"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9, "more than 8 interim responses"),
    ],
)
def test_broken_framing_is_named(data, says):
    response = Response()

    with pytest.raises(RemoteProtocolError, match=says):
        response.feed(data)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"HTTP/1.1 200", "header"),
        (FIXED[:-1], "body"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhe", "chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3", "chunk size"),
    ],
)
def test_an_end_in_the_middle_says_where(data, where):
    response = Response()
    response.feed(data)

    with pytest.raises(RemoteProtocolError, match=f"closed within the {where}$"):
        response.ended()


@pytest.mark.parametrize("fields", [b"Content-Length: 2\r\nContent-Length: 2\r\n", b"Content-Length: 2, 2\r\n"])
def test_one_length_said_twice_is_one_length(fields):
    response = Response()
    response.feed(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\nok")

    assert (response.done, response.size) == (True, 2)


def test_a_body_in_many_small_chunks_is_read():
    response = Response()
    response.feed(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"10\r\n0123456789abcdef\r\n" * 5_000 + b"0\r\n\r\n"
    )

    assert (response.done, response.size) == (True, 80_000)


def test_an_end_before_anything_is_no_answer_and_no_error():
    assert Response().ended() is False


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_garbage_is_refused_or_waited_for_never_more(blobs):
    response = Response(keep=50)
    try:
        for blob in blobs:
            response.feed(blob)
        response.ended()
    except RemoteProtocolError:
        return
    assert len(response.kept) <= 50


@given(
    st.sampled_from([FIXED, CHUNKED, UNSIZED, INTERIM]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6),
)
def test_a_response_with_wrong_bytes_is_read_or_refused(data, changes):
    broken = bytearray(data)
    for at, byte in changes:
        broken[at % len(broken)] = byte
    response = Response()
    try:
        response.feed(bytes(broken))
        response.ended()
    except RemoteProtocolError:
        return
    assert response.status == 0 or 100 <= response.status <= 999


def test_a_request_is_one_line_each_and_ends_with_a_blank_one():
    made = request("GET", "/x?y", "api.test:8080", [("user-agent", "me"), ("X-A", "1")])

    head, body = made.split(b"\r\n\r\n")
    assert body == b""
    assert head.split(b"\r\n") == [
        b"GET /x?y HTTP/1.1",
        b"Host: api.test:8080",
        b"Accept: */*",
        b"Connection: close",
        b"user-agent: me",
        b"X-A: 1",
    ]
