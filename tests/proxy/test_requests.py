"""Bytes of clients to requests: what two parsers could understand differently is no request at all."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.proxy.requests import Limits, RequestReader

HOST = b"Host: a.example\r\n"
POST = b"POST / HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

BAD = {
    # Of lists of smuggling attacks: CL.TE, TE.CL, TE.TE and their disguises.
    "length and chunks": POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "one length twice": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "a signed length": POST + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": POST + b"Content-Length: -1\r\n\r\nabc",
    "a hexadecimal length": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "an empty length": POST + b"Content-Length: \r\n\r\nabc",
    "a length with a space inside": POST + b"Content-Length: 3 3\r\n\r\nabc",
    "a giant length": POST + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
    "chunked among others": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked misspelled": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding in quotes": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "a coding after a vertical tab": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a coding after a null": POST + b"Transfer-Encoding: \x00chunked\r\n\r\n0\r\n\r\n",
    "space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a tab before the colon": POST + b"Content-Length\t: 3\r\n\r\nabc",
    "a folded header": POST + b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n",
    "a header that begins with a space": b"POST / HTTP/1.1\r\n X: a\r\n" + HOST + b"\r\n",
    "a line feed alone after a header": POST + b"X: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a line feed alone after the first line": b"POST / HTTP/1.1\n" + HOST + b"\r\n",
    "line feeds alone": b"POST / HTTP/1.1\nHost: a\n\n",
    "a carriage return alone": POST + b"X: a\rTransfer-Encoding: chunked\r\n\r\n",
    "two carriage returns": POST + b"X: a\r\r\n\r\n",
    "a null in a value": POST + b"X: a\x00b\r\n\r\n",
    "a control character in a value": POST + b"X: a\x01b\r\n\r\n",
    "DEL in a value": POST + b"X: \x7f\r\n\r\n",
    "no name": POST + b": a\r\n\r\n",
    "no colon": POST + b"X\r\n\r\n",
    "a name beyond ASCII": POST + b"X\xc3\xa9: a\r\n\r\n",
    "a name with a bracket": POST + b"X(): a\r\n\r\n",
    "a length with thousands of zeros": POST + b"Content-Length: " + b"0" * 5_000 + b"3\r\n\r\nabc",
    "an address that is not closed": b"GET http://[::1/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "two hosts": POST + b"Host: b.example\r\n\r\n",
    "a host with a space": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "a host with a slash": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "an unknown method": b"FOO / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method in lower case": b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path with a space": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path with a control character": b"GET /\x01 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path with a fragment": b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n",
    "no path": b"GET  HTTP/1.1\r\n" + HOST + b"\r\n",
    "another scheme": b"GET ftp://a/b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a user in the path": b"GET http://u@a/b HTTP/1.1\r\n" + HOST + b"\r\n",
    "version 0.9": b"GET / HTTP/0.9\r\n\r\n",
    "version 2": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "chunks in version 1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00",
    "a chunk's size in decimal words": CHUNKED + b"five\r\nhello\r\n",
    "a chunk's size with a prefix": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk's size with a sign": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "a chunk's size and a space": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
    "a giant chunk": CHUNKED + b"fffffffffffffffff\r\nhello\r\n",
    "no size": CHUNKED + b"\r\nhello\r\n",
    "an extension without a size": CHUNKED + b";a\r\nhello\r\n",
    "a chunk's line that ends with a line feed": CHUNKED + b"5\nhello\r\n0\r\n\r\n",
    "an extension with a line feed": CHUNKED + b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "a chunk that is longer than it says": CHUNKED + b"5\r\nhelloX\r\n0\r\n\r\n",
    "a chunk that ends without a line break": CHUNKED + b"5\r\nhello0\r\n\r\n",
}  # fmt: skip


def read(data: bytes, limits: Limits | None = None) -> RequestReader:
    reader = RequestReader(limits or Limits(accept_http_10=True))
    reader.feed(data, 0.0)
    return reader


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_could_be_understood_differently_is_refused(data: bytes) -> None:
    reader = read(data + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")

    assert reader.refusal is not None
    assert reader.refusal.status in (400, 501)
    assert reader.refusal.closes
    assert all(request.path != b"/smuggled" for request in reader.inbox)
    assert not any(request.is_complete and request.method == b"POST" for request in reader.inbox)


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_a_refusal_does_not_hang_on_how_the_bytes_come(data: bytes) -> None:
    reader = RequestReader(Limits(accept_http_10=True))
    for byte in data:
        if reader.refusal is None:
            reader.feed(bytes((byte,)), 0.0)
    whole = read(data)

    assert (reader.refusal is None) is (whole.refusal is None)
    assert [each.path for each in reader.inbox] == [each.path for each in whole.inbox]


GOOD = (
    b"POST /a?b=c HTTP/1.1\r\nHost: a.example\r\nX-Y: z\r\nContent-Length: 3\r\n\r\nabc"
    b"POST /d HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nde\r\n1\r\nf\r\n0\r\nT: v\r\n\r\n"
    b"GET http://b.example:80/e HTTP/1.1\r\nHost: a.example\r\n\r\n"
)


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(1, len(GOOD) - 1), max_size=12))
def test_requests_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    reader = RequestReader(Limits())
    edges = [0, *sorted(set(cuts)), len(GOOD)]
    for start, end in pairwise(edges):
        reader.feed(GOOD[start:end], 0.0)

    assert reader.refusal is None
    assert [(each.path, each.authority, b"".join(each.chunks), each.is_complete) for each in reader.inbox] == [
        (b"/a?b=c", b"a.example", b"abc", True),
        (b"/d", b"a.example", b"def", True),
        (b"/e", b"b.example:80", b"", True),
    ]
    assert reader.inbox[1].trailers == [(b"t", b"v")]


def test_headers_of_one_connection_are_not_the_requests() -> None:
    sent = b"Connection: keep-alive, x-own\r\nX-Own: 1\r\nKeep-Alive: 5\r\nProxy-Connection: a\r\nTE: gzip, trailers\r\nX: y\r\n"

    (request,) = read(b"GET / HTTP/1.1\r\nHost: a\r\n" + sent + b"\r\n").inbox

    assert request.headers == [(b"te", b"trailers"), (b"x", b"y")]


def test_headers_are_bounded_in_size_also_while_one_is_not_over() -> None:
    limits = Limits(head=1_000, headers=10)
    start = b"GET / HTTP/1.1\r\nHost: a\r\n"

    assert read(start + b"X: " + b"a" * 1_500 + b"\r\n\r\n", limits).refusal is not None
    assert read(start + b"X: y\r\n" * 11 + b"\r\n", limits).refusal is not None
    assert read(b"GET /" + b"a" * 1_100 + b" HTTP/1.1\r\nHost: a\r\n\r\n", limits).refusal is not None
    reader = RequestReader(limits)
    reader.feed(start + b"X: ", 0.0)
    for _ in range(30):
        reader.feed(b"a" * 100, 0.0)
    assert reader.refusal is not None
    assert reader.refusal.status == 431


def test_requests_ahead_of_a_head_do_not_count_as_its_bytes() -> None:
    one = b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"
    reader = RequestReader(Limits(head=200))
    for _ in range(9):
        reader.feed(one * 20 + one[:-20], 0.0)
        reader.feed(one[-20:], 0.0)

    assert reader.refusal is None
    assert len(reader.inbox) == 9 * 21


def test_an_address_in_a_target_may_be_of_either_family() -> None:
    found = read(
        b"".join(b"GET http://%b HTTP/1.1\r\n%b\r\n" % (each, HOST) for each in (b"[::1]:80/x", b"[::1]?q", b"1.2.3.4"))
    )

    assert [(each.authority, each.path) for each in found.inbox] == [
        (b"[::1]:80", b"/x"),
        (b"[::1]", b"/?q"),
        (b"1.2.3.4", b"/"),
    ]


def test_underscores_in_names_are_let_through_dropped_or_refused() -> None:
    sent = b"GET / HTTP/1.1\r\nHost: a\r\nX_Y: 1\r\n\r\n"

    assert read(sent).inbox[0].headers == [(b"x_y", b"1")]
    assert read(sent, Limits(underscores="DROP_HEADER")).inbox[0].headers == []
    assert read(sent, Limits(underscores="REJECT_REQUEST")).refusal is not None


def test_what_follows_a_wish_for_another_protocol_waits() -> None:
    sent = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
    reader = read(sent)

    assert [each.upgrade for each in reader.inbox] == [b"websocket"]
    reader.resume()
    assert [each.path for each in reader.inbox] == [b"/", b"/2"]


@pytest.mark.parametrize("wish", [b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n", b"Connection: upgrade\r\nUpgrade: websocket\r\n"])  # fmt: skip
@pytest.mark.parametrize("body", [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\n\r\n"])  # fmt: skip
def test_a_body_beside_a_wish_for_another_protocol_is_the_requests_own(wish: bytes, body: bytes) -> None:
    sent = POST + wish + body + b"GET /2 HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\nrest"
    for pieces in ([sent], [bytes((byte,)) for byte in sent]):
        reader = RequestReader(Limits())
        for piece in pieces:
            if reader.rest is None:
                reader.feed(piece, 0.0)
            else:
                reader.rest += piece

        first, second = reader.inbox
        assert (b"".join(first.chunks), first.is_complete, first.upgrade) == (b"abc", True, b"")
        assert (second.path, second.upgrade, reader.rest) == (b"/2", b"websocket", b"rest")
        assert reader.refusal is None


def test_another_protocol_is_asked_for_by_connection_too() -> None:
    reader = read(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n")

    assert ([each.upgrade for each in reader.inbox], reader.rest) == ([b""], None)


@pytest.mark.parametrize("start", [b"0\r\nX: ", b"1;x="])
def test_what_is_no_body_between_chunks_is_bounded(start: bytes) -> None:
    reader = RequestReader(Limits(head=1_000))
    reader.feed(CHUNKED + start, 0.0)
    for _ in range(30):
        reader.feed(b"a" * 100, 0.0)

    assert reader.refusal is not None
    assert reader.refusal.status == 431


def test_chunks_in_many_pieces_are_not_counted_as_headers() -> None:
    reader = RequestReader(Limits(head=100))
    reader.feed(CHUNKED, 0.0)
    for _ in range(200):
        for piece in (b"1\r\n", b"a", b"\r\n"):
            reader.feed(piece, 0.0)

    assert reader.refusal is None
    assert reader.inbox[0].size == 200


def test_version_1_0_needs_permission() -> None:
    refusal = read(b"GET / HTTP/1.0\r\n\r\n", Limits()).refusal
    allowed = read(b"GET / HTTP/1.0\r\n\r\n", Limits(accept_http_10=True, default_host=b"d.example"))

    assert refusal is not None
    assert refusal.status == 426
    assert allowed.inbox[0].authority == b"d.example"
    assert not allowed.inbox[0].keeps
