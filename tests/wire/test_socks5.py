from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import LocalProtocolError, RemoteProtocolError
from reachline.wire.socks5 import REFUSED_SIGN_IN, REPLIES, SUCCEEDED, Connect

YES = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x04\x38"
"""A reply with an IPv4 address."""


def talk(connect: Connect, *pieces: bytes) -> list[bytes | None]:
    """What it says to each piece, its greeting first."""
    return [connect.begin(), *map(connect.received, pieces)]


def outcome(connect: Connect, data: bytes, cuts: list[int]) -> tuple[object, ...]:
    """How a conversation ends in which the proxy says `data` whatever it hears, cut in pieces at `cuts`."""
    connect.begin()
    ends = [*sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    said, begin = b"", 0
    for end in ends:
        try:
            reply = connect.received(data[begin:end])
        except RemoteProtocolError as error:
            return "broken", str(error)
        begin = end
        if reply is None:
            return connect.reply, connect.refusal, said, connect.asked, connect.rest + data[begin:]
        said += reply
    return "waits", connect.reply, said, connect.asked


def test_a_name_goes_to_the_proxy_as_it_is() -> None:
    connect = Connect("line.test", 443)

    said = talk(connect, b"\x05\x00", YES)

    assert said == [b"\x05\x01\x00", b"\x05\x01\x00\x03\x09line.test\x01\xbb", None]
    assert (connect.reply, connect.rest) == (SUCCEEDED, b"")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.1", b"\x01\x0a\x00\x00\x01"),
        ("2001:db8::1", b"\x04" + bytes.fromhex("20010db8000000000000000000000001")),
        ("1.example", b"\x03\x091.example"),
    ],
)
def test_an_address_goes_in_its_own_form(host: str, address: bytes) -> None:
    assert talk(Connect(host, 80), b"\x05\x00")[1] == b"\x05\x01\x00" + address + b"\x00\x50"


def test_user_and_password_are_said_only_where_they_are_asked_for() -> None:
    asked, open_to_all = (Connect("h", 1, user="bob", password="pw") for _ in range(2))

    assert talk(asked, b"\x05\x02", b"\x01\x00") == [
        b"\x05\x02\x00\x02",
        b"\x01\x03bob\x02pw",
        b"\x05\x01\x00\x03\x01h\x00\x01",
    ]
    assert talk(open_to_all, b"\x05\x00")[1] == b"\x05\x01\x00\x03\x01h\x00\x01"


@pytest.mark.parametrize(
    ("user", "pieces", "why"),
    [
        ("", [b"\x05\xff"], "asks for a user and a password"),
        ("", [b"\x05\x02"], "asks for a user and a password"),
        ("bob", [b"\x05\xff"], "takes no user and password"),
        ("bob", [b"\x05\x02", b"\x01\x01"], "refuses the user or the password"),
        ("bob", [b"\x05\x02", b"\x05\xff"], "refuses the user or the password"),
    ],
)
def test_a_proxy_that_does_not_let_us_in_was_never_asked(user: str, pieces: list[bytes], why: str) -> None:
    connect = Connect("h", 1, user=user, password="pw" if user else "")

    assert talk(connect, *pieces)[-1] is None
    assert (connect.reply, connect.refusal, connect.asked) == (REFUSED_SIGN_IN, why, False)


@pytest.mark.parametrize("code", [*REPLIES, 9, 0xF0, 0xFF])
def test_a_no_needs_no_address_behind_it(code: int) -> None:
    connect = Connect("h", 1)

    assert talk(connect, b"\x05\x00", bytes((5, code)))[-1] is None
    assert (connect.reply, connect.asked) == (code, True)


@pytest.mark.parametrize(
    "reply",
    [
        YES,
        b"\x05\x00\x00\x04" + bytes(16) + b"\x00\x00",
        b"\x05\x00\x00\x03\x09line.test\x00\x50",
        b"\x05\x00\x00\x03\x00\x00\x00",
    ],
)
def test_what_comes_behind_a_yes_is_the_other_sides(reply: bytes) -> None:
    connect = Connect("h", 1)

    assert talk(connect, b"\x05\x00", reply + b"220 hello")[-1] is None
    assert (connect.reply, connect.rest) == (SUCCEEDED, b"220 hello")


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n"], "not SOCKS5"),
        ([b"\x04\x5a"], "not SOCKS5"),
        ([b"\x05\x01"], "chose method 1, which was not offered"),
        ([b"\x05\x00\x05\x00"], "spoke out of turn"),
        ([b"\x05\x00", b"\x00"], "broken reply to CONNECT"),
        ([b"\x05\x00", b"\x05\x00\x00\x07\x00"], "broken reply to CONNECT"),
        ([b"\x05\x00", b"x" * 1_000_000], "broken reply to CONNECT"),
        ([b"\x05\x02", b"\x02\x00"], "broken answer to the sign-in"),
    ],
)
def test_a_proxy_that_breaks_the_protocol_is_told_apart(pieces: list[bytes], told: str) -> None:
    with pytest.raises(RemoteProtocolError, match=told):
        talk(Connect("h", 1, user="bob", password="pw"), *pieces)


@pytest.mark.parametrize("field", ["host", "user", "password"])
def test_what_socks5_cannot_say_is_our_own_fault(field: str) -> None:
    said = {"host": "h", "user": "u", "password": "p"} | {field: "x" * 256}

    with pytest.raises(LocalProtocolError, match="255"):
        Connect(said["host"], 1, user=said["user"], password=said["password"])


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """What a proxy may say in a whole conversation, right or wrong in one place, with something behind it."""
    head = draw(st.sampled_from([b"\x05\x00", b"\x05\x02\x01\x00", b"\x05\x02\x01\x01", b"\x05\xff", b"\x05\x09"]))
    reply = draw(st.sampled_from([YES, b"\x05\x05", b"\x05\x00\x00\x03\x04name\x00\x01", b"\x05\x00\x00\x09\x00", b""]))
    return head + reply + draw(st.binary(max_size=8))


@given(conversations(), st.lists(st.integers(1, 40), max_size=6), st.booleans())
def test_the_reply_is_the_same_however_it_is_cut(data: bytes, cuts: list[int], has_user: bool) -> None:
    def fresh() -> Connect:
        return Connect("h", 1, user="bob" if has_user else "", password="pw" if has_user else "")

    # A proxy answers what it was asked: each message is its own piece at least, and may be cut further.
    turns = [2, 4] if has_user and data[:2] == b"\x05\x02" else [2]

    assert outcome(fresh(), data, [*turns, *cuts]) == outcome(fresh(), data, turns)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.booleans())
def test_any_bytes_end_in_a_reply_or_in_words_and_the_buffer_stays_small(pieces: list[bytes], has_user: bool) -> None:
    connect = Connect("h", 1, user="bob" if has_user else "", password="")
    connect.begin()

    with contextlib.suppress(RemoteProtocolError):
        for piece in pieces:
            if connect.received(piece) is None:
                break
            assert len(connect._buffer) <= 262
