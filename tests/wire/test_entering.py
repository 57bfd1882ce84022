"""Clients' first words: what is asked for in each protocol, cut anywhere; and what is refused, in words and in kind."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.model import Failure
from reachline.wire.entering import MAX_HEAD, Asked, Entering, Form, no, yes

_LOGIN: Final = {"user": "secret"}
_BASIC: Final = b"Proxy-Authorization: Basic " + base64.b64encode(b"user:secret")
_SIGN_IN: Final = b"\x01\x04user\x06secret"
_TO_NAME: Final = b"\x05\x01\x00\x03\x09a.example\x01\xbb"
_CASES: Final[list[tuple[bytes, Mapping[str, str], bytes, Asked]]] = [
    (b"\x05\x01\x00" + _TO_NAME, {}, b"\x05\x00", Asked(Form.SOCKS5, "a.example", 443, "", b"")),
    (b"\x05\x02\x00\x02\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50hi", {}, b"\x05\x00", Asked(Form.SOCKS5, "10.0.0.1", 80, "", b"hi")),
    (b"\x05\x01\x00\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x50", {}, b"\x05\x00", Asked(Form.SOCKS5, "::1", 80, "", b"")),
    (b"\x05\x02\x00\x02" + _SIGN_IN + _TO_NAME, _LOGIN, b"\x05\x02\x01\x00", Asked(Form.SOCKS5, "a.example", 443, "user", b"")),
    (b"\x04\x01\x00\x50\x0a\x00\x00\x01me\x00hi", {}, b"", Asked(Form.SOCKS4, "10.0.0.1", 80, "", b"hi")),
    (b"\x04\x01\x01\xbb\x00\x00\x00\x01\x00a.example\x00", {}, b"", Asked(Form.SOCKS4, "a.example", 443, "", b"")),
    (b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\nhi", {}, b"", Asked(Form.CONNECT, "a.example", 443, "", b"hi")),
    (b"CONNECT [::1]:443 HTTP/1.1\r\n" + _BASIC + b"\r\n\r\n", _LOGIN, b"", Asked(Form.CONNECT, "::1", 443, "user", b"")),
    (
        b"GET http://a.example/p?q HTTP/1.1\r\nHost: b\r\nProxy-Connection: x\r\nConnection: X-Own\r\nX-Own: 1\r\nAccept: */*\r\n\r\n",
        {},
        b"",
        Asked(Form.PLAIN, "a.example", 80, "", b"GET /p?q HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nConnection: close\r\n\r\n", 0),
    ),
    (
        b"POST http://a.example:81 HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcdGET http://evil/ HTTP/1.1\r\n\r\n",
        {},
        b"",
        Asked(Form.PLAIN, "a.example", 81, "", b"POST / HTTP/1.1\r\nHost: a.example:81\r\nContent-Length: 4\r\nConnection: close\r\n\r\nabcd", 0),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("said", "accounts", "answer", "asked"), _CASES)
def test_what_a_client_asks_for_is_understood(
    said: bytes, accounts: Mapping[str, str], answer: bytes, asked: Asked
) -> None:
    entering = Entering(accounts)

    assert entering.received(said) == answer
    assert entering.asked == asked


@given(st.sampled_from(_CASES), st.lists(st.integers(1, 9), min_size=1))
def test_it_does_not_matter_where_it_is_cut(
    case: tuple[bytes, Mapping[str, str], bytes, Asked], sizes: list[int]
) -> None:
    said, accounts, answer, asked = case
    entering, sent, at, turn = Entering(accounts), b"", 0, 0

    while entering.asked is None and at < len(said):
        size = sizes[turn % len(sizes)]
        sent += entering.received(said[at : at + size])
        at, turn = at + size, turn + 1

    assert sent == answer
    assert entering.asked is not None
    assert entering.asked._replace(first=b"", body=None) == asked._replace(first=b"", body=None)
    left = entering.asked.body
    rest = said[at:] if left is None else said[at:][:left]
    assert entering.asked.first + rest == asked.first


@pytest.mark.parametrize(
    ("said", "accounts", "answer"),
    [
        (b"\x05\x01\x02", {}, b"\x05\xff"),
        (b"\x05\x01\x00", _LOGIN, b"\x05\xff"),
        (b"\x05\x01\x02\x01\x04user\x05wrong", _LOGIN, b"\x05\x02\x01\x01"),
        (b"\x05\x01\x02\x01\x05other\x06secret", _LOGIN, b"\x05\x02\x01\x01"),
        (b"\x05\x01\x02\x05\x04", _LOGIN, b"\x05\x02\x01\x01"),
        (b"\x05\x01\x00\x05\x02\x00\x01\x0a\x00\x00\x01\x00\x50", {}, b"\x05\x00\x05\x07"),
        (b"\x05\x01\x00\x05\x03\x00\x01\x0a\x00\x00\x01\x00\x50", {}, b"\x05\x00\x05\x07"),
        (b"\x05\x01\x00\x05\x01\x00\x07\x00\x00", {}, b"\x05\x00\x05\x08"),
        (b"\x05\x01\x00\x05\x01\x00\x03\x05a\r\nbc\x00\x50", {}, b"\x05\x00\x05\x02"),
        (b"\x05\x01\x00\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x00", {}, b"\x05\x00\x05\x02"),
        (b"\x05\x01\x00\x05\x01\x00\x03\x05127.1\x00\x50", {}, b"\x05\x00\x05\x02"),
        (b"CONNECT 2130706433:80 HTTP/1.1\r\n\r\n", {}, b"HTTP/1.1 403 "),
        (b"CONNECT 0x7f.0x1:80 HTTP/1.1\r\n\r\n", {}, b"HTTP/1.1 403 "),
        (b"CONNECT 127.1.:80 HTTP/1.1\r\n\r\n", {}, b"HTTP/1.1 403 "),
        (b"\x04\x01\x00\x50\x0a\x00\x00\x01\x00", _LOGIN, b"\x00\x5b"),
        (b"\x04\x02\x00\x50\x0a\x00\x00\x01\x00", {}, b"\x00\x5b"),
        (b"\x04\x01\x00\x50\x0a\x00\x00\x01" + b"x" * 300, {}, b"\x00\x5b"),
        (b"\x16\x03\x01", {}, b""),
        (b"\x06", {}, b""),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", {}, b"HTTP/1.1 400 "),
        (b"GET http://a/ HTTP/2.0\r\n\r\n", {}, b"HTTP/1.1 400 "),
        (b"GET http://a/ HTTP/1.1\r\nBad header\r\n\r\n", {}, b"HTTP/1.1 400 "),
        (b"POST http://a/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", {}, b"HTTP/1.1 400 "),
        (b"POST http://a/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", {}, b"HTTP/1.1 400 "),
        (b"CONNECT a.example HTTP/1.1\r\n\r\n", {}, b"HTTP/1.1 403 "),
        (b"CONNECT a:443 HTTP/1.1\r\n\r\n", _LOGIN, b"HTTP/1.1 407 "),
        (b"CONNECT a:443 HTTP/1.1\r\nProxy-Authorization: Basic %%\r\n\r\n", _LOGIN, b"HTTP/1.1 407 "),
        (b"GET " + b"x" * MAX_HEAD, {}, b"HTTP/1.1 431 "),
    ],
)  # fmt: skip
def test_what_is_refused_is_told_in_the_clients_own_protocol(
    said: bytes, accounts: Mapping[str, str], answer: bytes
) -> None:
    entering = Entering(accounts)

    sent = entering.received(said)

    assert entering.asked is None
    assert entering.refusal
    assert sent[: len(answer)] == answer
    assert bool(sent) is bool(answer)


def test_an_inbound_of_http_speaks_no_socks() -> None:
    entering = Entering({}, takes_socks=False)

    assert entering.received(b"\x05\x01\x00") == b""
    assert "first byte 5" in entering.refusal


def test_datagrams_are_asked_for_where_they_are_taken() -> None:
    entering = Entering({}, takes_udp=True)

    entering.received(b"\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00")

    assert entering.asked == Asked(Form.ASSOCIATE, "0.0.0.0", 0, "", b"")


def test_a_failure_has_its_reply_in_each_protocol() -> None:
    assert no(Form.SOCKS5, Failure.REFUSED)[:2] == b"\x05\x05"
    assert no(Form.SOCKS5, Failure.TIMEOUT)[:2] == b"\x05\x06"
    assert no(Form.CONNECT, Failure.TIMEOUT).startswith(b"HTTP/1.1 504 ")
    assert no(Form.CONNECT, Failure.PROXY).startswith(b"HTTP/1.1 502 ")
    assert no(Form.CONNECT, None).startswith(b"HTTP/1.1 403 ")
    assert yes(Form.SOCKS5, "::1", 53) == b"\x05\x00\x00\x04" + bytes(15) + b"\x01\x00\x35"
    assert yes(Form.SOCKS4) == b"\x00\x5a" + bytes(6)
