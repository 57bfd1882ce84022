"""What is said to proxies and what their answers mean."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.doors.addresses import parse_target
from reachline.doors.outbounds import hops
from reachline.model import Failure, Kind
from reachline.talk import TABLE, build
from reachline.talk.dns import DnsProbe
from reachline.talk.hop import HopTalk, why_not
from reachline.talk.way import Way

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def talk(via: str, *, host: str = "line.test", port: int = 443) -> HopTalk:
    return hops(via)[0].talk(host, port)


def verdict(via: str, *pieces: bytes) -> tuple[Failure | None, str]:
    """How the conversation ends in which the proxy says `pieces`, then closes."""
    said = talk(via)
    said.begin()
    for piece in pieces:
        if said.received(piece) is None:
            break
    return said.closed(), said.note


def answer(status: str, *headers: str) -> bytes:
    return ("\r\n".join((f"HTTP/1.1 {status}", *headers)) + "\r\n\r\n").encode()


@pytest.mark.parametrize(
    ("host", "authority"), [("line.test", "line.test:443"), ("10.0.0.1", "10.0.0.1:443"), ("::1", "[::1]:443")]
)
def test_connect_names_the_target_and_signs_in_with_basic(host: str, authority: str) -> None:
    said = talk("http://b%C3%B6b:p%3A%40w@p:1", host=host).begin().decode().split("\r\n")

    assert said[:2] == [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    [secret] = [line.removeprefix("Proxy-Authorization: Basic ") for line in said if line.startswith("Proxy-")]
    assert base64.b64decode(secret).decode() == "böb:p:@w"
    assert said[-2:] == ["", ""]


def test_without_a_user_nothing_is_signed_in() -> None:
    assert b"Proxy-Authorization" not in talk("http://p:1").begin()


@pytest.mark.parametrize(
    "data",
    [
        ESTABLISHED,
        b"HTTP/1.0 200 OK\r\nServer: p\r\n\r\n",
        answer("200 OK", "Content-Length: 100"),
        answer("200 OK", "Transfer-Encoding: chunked"),
        answer("100 Continue") + answer("204 Fine"),
    ],
)
def test_any_2xx_is_a_yes_without_a_body(data: bytes) -> None:
    said = talk("http://p:1")
    said.begin()

    assert said.received(data + b"220 hello") is None
    assert (said.closed(), said.rest) == (None, b"220 hello")


@given(st.lists(st.integers(1, 60), max_size=5))
def test_what_the_other_side_said_first_is_kept_however_it_is_cut(cuts: list[int]) -> None:
    data = ESTABLISHED + b"220 hello\r\n\r\n"
    ends = [*sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    said, begin, rest = talk("http://p:1"), 0, b""
    said.begin()

    for end in ends:
        piece = data[begin:end]
        begin = end
        if said.received(piece) is None:
            rest = said.rest + data[begin:]
            break

    assert (said.closed(), rest) == (None, b"220 hello\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "failure", "note"),
    [
        (answer("407 Proxy Authentication Required"), Failure.PROXY, "asks for a user and password (status 407 "),
        (answer("403 Forbidden"), Failure.PROXY, "status 403 Forbidden"),
        (answer("302 Found", "Location: http://login/"), Failure.PROXY, "status 302 Found"),
        (answer("101 Switching Protocols"), Failure.PROXY, "status 101 Switching Protocols"),
        (answer("599"), Failure.PROXY, "status 599"),
        (answer("500 Internal Server Error"), Failure.PROXY, "status 500 Internal Server Error"),
        (answer("500 Unable to connect"), Failure.UNREACHABLE, "status 500 Unable to connect"),
        (answer("502 Bad Gateway"), Failure.UNREACHABLE, "status 502 Bad Gateway"),
        (answer("503"), Failure.UNREACHABLE, "status 503 Service Unavailable"),
        (answer("504 Gateway Timeout"), Failure.TIMEOUT, "status 504 Gateway Timeout"),
        (answer("503 Oh no", "X-Squid-Error: ERR_CONNECT_FAIL 111"), Failure.REFUSED, "connection refused (status 503 "),
        (answer("503 Oh no", "X-Squid-Error: ERR_CONNECT_FAIL 110"), Failure.TIMEOUT, "no answer (status 503 Oh no)"),
        (answer("503 Oh no", "X-Squid-Error: ERR_CONNECT_FAIL 113"), Failure.UNREACHABLE, "unreachable (status 503 "),
        (answer("503 Oh no", "X-Squid-Error: ERR_DNS_FAIL 0"), Failure.RESOLVE, "name does not resolve there (status "),
        (answer("403 No", "X-Squid-Error: ERR_ACCESS_DENIED 0"), Failure.PROXY, "status 403 No"),
        (
            answer("502 Oh no", 'Proxy-Status: p.example; error=connection_refused; details="x"'),
            Failure.REFUSED,
            "connection refused (status 502 Oh no)",
        ),
        (answer("502 Oh no", "Proxy-Status: a, b; error=dns_error"), Failure.RESOLVE, "name does not resolve there"),
        (answer("502 Oh no", "Proxy-Status: p; error=tls_alert"), Failure.UNREACHABLE, "status 502 Oh no"),
        (b"SSH-2.0-x\r\n", Failure.PROXY, "not HTTP"),
        (b"\x05\xff", Failure.PROXY, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: y", Failure.PROXY, "closed within the header"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, Failure.PROXY, "header of more than 32768 bytes"),
        (b"HTTP/1.1 200 OK\r\nbroken line\r\n\r\n", Failure.PROXY, "malformed header line"),
        (b"", Failure.PROXY, "closed without an answer"),
    ],
)  # fmt: skip
def test_a_no_to_connect_says_whose_fault_it_is(data: bytes, failure: Failure, note: str) -> None:
    told, words = verdict("http://p:1", *([data] if data else []))

    assert (told, words[: len(note)]) == (failure, note)
    assert "\r" not in words
    assert "\n" not in words


@pytest.mark.parametrize("status", ["401 Unauthorized", "407 Proxy Authentication Required"])
def test_a_refused_password_is_told_apart_from_a_missing_one(status: str) -> None:
    assert verdict("http://bob:pw@p:1", answer(status)) == (
        Failure.PROXY,
        f"refuses the user and password (status {status})",
    )


@pytest.mark.parametrize(
    ("reply", "failure", "note"),
    [
        (b"\x05\x01", Failure.PROXY, "general failure"),
        (b"\x05\x02", Failure.PROXY, "not allowed by its rules"),
        (b"\x05\x03", Failure.UNREACHABLE, "network unreachable"),
        (b"\x05\x04", Failure.UNREACHABLE, "host unreachable"),
        (b"\x05\x05", Failure.REFUSED, "connection refused"),
        (b"\x05\x06", Failure.TIMEOUT, "TTL expired"),
        (b"\x05\x07", Failure.PROXY, "CONNECT is not supported"),
        (b"\x05\x08", Failure.PROXY, "this form of address is not supported"),
        (b"\x05\x63", Failure.PROXY, "reply 99"),
        (b"HTTP/1.1", Failure.PROXY, "broken reply to CONNECT"),
        (b"\x05", Failure.PROXY, "closed without an answer"),
        (b"\x05\x00\x00\x01", Failure.PROXY, "closed without an answer"),
    ],
)
def test_a_socks5_reply_says_whose_fault_it_is(reply: bytes, failure: Failure, note: str) -> None:
    assert verdict("socks5h://p:1", b"\x05\x00", reply) == (failure, note)


def test_socks5_that_signs_in_but_is_refused_is_the_proxys_fault() -> None:
    assert verdict("socks5://bob:pw@p:1", b"\x05\x02", b"\x01\x01") == (
        Failure.PROXY,
        "refuses the user or the password",
    )


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind in TABLE])
def test_a_kind_goes_by_way_of_a_proxy_or_says_why_not(kind: Kind) -> None:
    """A new kind of datagrams needs its reason in `talk.hop`, or documents would take it and agents refuse it."""
    probe = build(kind, parse_target("tcp://a.example:443"), {})
    passes = probe.way in {Way.CONNECT, Way.STREAM} or isinstance(probe, DnsProbe)

    assert passes is not bool(why_not(kind))
