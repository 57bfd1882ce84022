"""Heads of messages: what is taken, how, and what is malformed (RFC 9113, 8), as Envoy 1.40 has it."""

from __future__ import annotations

import pytest
from tests.proxy.http2.said import GET, POST

from reachline.proxy.http2.events import Field
from reachline.proxy.http2.fields import MalformedError, request, response, trailers

CONNECT = [(b":method", b"CONNECT"), (b":authority", b"a:80")]
MALFORMED: dict[str, list[Field]] = {
    "upper case": [*GET, (b"X-A", b"1")], "no name": [*GET, (b"", b"1")], "space in name": [*GET, (b"a b", b"1")],
    "colon in name": [*GET, (b"a:b", b"1")], "high name": [*GET, (b"a\xff", b"1")],
    "connection": [*GET, (b"connection", b"close")], "keep-alive": [*GET, (b"keep-alive", b"1")], "upgrade": [*GET, (b"upgrade", b"h2c")],
    "proxy-connection": [*GET, (b"proxy-connection", b"1")], "transfer-encoding": [*GET, (b"transfer-encoding", b"chunked")], "te": [*GET, (b"te", b"gzip")],
    "pseudo late": [*GET[:3], (b"a", b"b"), GET[3]], "pseudo twice": [*GET, GET[3]], "unknown pseudo": [*GET, (b":foo", b"1")], "status": [*GET, (b":status", b"200")],
    "no path": GET[:3], "empty path": [*GET[:3], (b":path", b"")], "path without slash": [*GET[:3], (b":path", b"x")], "star by GET": [*GET[:3], (b":path", b"*")],
    "no method": GET[1:], "no scheme": [GET[0], *GET[2:]], "no authority": [*GET[:2], GET[3]], "two hosts": [*GET, (b"host", b"a.example"), (b"host", b"b")],
    "empty authority": [*GET[:2], (b":authority", b""), GET[3]], "space in authority": [*GET[:2], (b":authority", b"a b"), GET[3]],
    "user": [*GET[:2], (b":authority", b"u@a"), GET[3]], "bad host beside authority": [*GET, (b"host", b"a b")],
    "method": [(b":method", b"G T"), *GET[1:]], "space in path": [*GET[:3], (b":path", b"/a b")], "nul in path": [*GET[:3], (b":path", b"/\0")],
    "tab in path": [*GET[:3], (b":path", b"/\t")], "break in path": [*GET[:3], (b":path", b"/a\nb")], "blank behind path": [*GET[:3], (b":path", b"/a ")],
    "nul": [*GET, (b"a", b"\0")], "cr": [*GET, (b"a", b"x\ry")], "lf": [*GET, (b"a", b"x\ny")], "control": [*GET, (b"a", b"\x01")], "del": [*GET, (b"a", b"\x7f")],
    "two lengths": [*POST, (b"content-length", b"3"), (b"content-length", b"3")], "list of lengths": [*POST, (b"content-length", b"3, 3")],
    "length": [*POST, (b"content-length", b"x")], "signed length": [*POST, (b"content-length", b"+3")], "no length": [*POST, (b"content-length", b"")],
    "endless length": [*POST, (b"content-length", b"1" * 19)], "CONNECT with a path": [CONNECT[0], *GET[1:]], "protocol": [*GET, (b":protocol", b"x")],
    "extended CONNECT, not allowed": [CONNECT[0], (b":protocol", b"websocket"), *GET[1:]], "nothing": [],
}  # fmt: skip


@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_none(fields: list[Field]) -> None:
    with pytest.raises(MalformedError):
        request(1, fields, allow_connect=False)


def test_a_request_s_head() -> None:
    more = [(b"te", b"trailers"), (b"x-a", b"1"), (b"content-length", b"3")]

    found = request(1, [*POST, *more], allow_connect=False)

    assert found == (1, b"POST", b"http", b"a.example", b"/x", b"", more, 3)


@pytest.mark.parametrize(
    ("fields", "authority"),
    [
        ([*GET[:2], GET[3], (b"host", b"b")], b"b"),
        ([*GET, (b"host", b"b")], b"a.example"),
        ([*GET[:2], (b":authority", b"[::1]:80"), GET[3]], b"[::1]:80"),
    ],
)
def test_the_authority_stands_over_host_which_stands_for_it(fields: list[Field], authority: bytes) -> None:
    found = request(1, fields, allow_connect=False)

    assert (found.authority, found.headers) == (authority, [])


def test_crumbs_of_a_cookie_are_one() -> None:
    found = request(1, [*GET, (b"cookie", b"a=b"), (b"x", b"1"), (b"cookie", b"c=d")], allow_connect=False)

    assert found.headers == [(b"x", b"1"), (b"cookie", b"a=b; c=d")]


@pytest.mark.parametrize(
    ("value", "taken"),
    [(b" x", b"x"), (b"x\t ", b"x"), (b"x\ty", b"x\ty"), (b"\xff", b"\xff"), (b"", b""), (b" ", b"")],
)
def test_blanks_around_a_value_mean_nothing(value: bytes, taken: bytes) -> None:
    assert request(1, [*GET, (b"a", value), (b"b", b"c")], allow_connect=False).headers == [(b"a", taken), (b"b", b"c")]


def test_every_form_of_a_request_is_taken() -> None:
    star = request(1, [(b":method", b"OPTIONS"), *GET[1:3], (b":path", b"*")], allow_connect=False)
    connect = request(1, CONNECT, allow_connect=False)
    extended = request(1, [CONNECT[0], (b":protocol", b"websocket"), *GET[1:]], allow_connect=True)

    assert (star.path, connect.authority, connect.path) == (b"*", b"a:80", b"")
    assert (extended.protocol, extended.path) == (b"websocket", b"/x")


@pytest.mark.parametrize(
    "fields",
    [
        [], [(b":status", b"20")], [(b":status", b"2000")], [(b":status", b"abc")], [(b":status", b"099")], [(b":status", b"101")],
        [(b":status", b"200"), (b":path", b"/")], [(b":status", b"200"), (b":status", b"200")], [(b":status", b"200"), (b"connection", b"close")],
        [(b"a", b"b"), (b":status", b"200")], [(b":status", b"200"), (b"content-length", b"1"), (b"content-length", b"2")],
        [(b":status", b"204"), (b"content-length", b"1")],
    ],
)  # fmt: skip
def test_a_malformed_answer_is_none(fields: list[Field]) -> None:
    with pytest.raises(MalformedError):
        response(1, fields)


def test_a_length_of_no_content_is_not_passed_on() -> None:
    assert response(1, [(b":status", b"204"), (b"content-length", b"0")]).headers == []


def test_an_answer_s_head() -> None:
    headers = [(b"set-cookie", b"a"), (b"set-cookie", b"b"), (b"content-length", b"7")]

    assert response(3, [(b":status", b"404"), *headers]) == (3, 404, headers, 7)


@pytest.mark.parametrize("fields", [[(b":path", b"/")], [(b"T", b"1")], [(b"t", b"\0")], [(b"connection", b"close")]])
def test_malformed_trailers_are_none(fields: list[Field]) -> None:
    with pytest.raises(MalformedError):
        trailers(fields)


def test_trailers_may_be_any_headers() -> None:
    assert trailers([(b"grpc-status", b"0"), (b"t", b"1")]) == [(b"grpc-status", b"0"), (b"t", b"1")]
