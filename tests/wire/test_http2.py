"""HTTP/2 against a server made of the library's other half: good answers, early ends, and bytes from anywhere."""

from __future__ import annotations

import contextlib
import itertools
import struct

import h2.config
import h2.connection
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import LocalProtocolError, RemoteProtocolError
from reachline.wire.http2 import Exchange, check, error_name
from reachline.wire.request import Request

ASKED = Request("GET", "https", "a.example", "/healthz", (("Accept", "*/*"), ("X-Probe", "1")))
OK = ((":status", "200"), ("content-type", "text/plain"))
GOAWAY, PING, RST, DATA, SETTINGS = 7, 6, 3, 0, 4
HEADERS = b"\0\0\1\1\4\0\0\0\1\x88"
"""Status 200, and a body follows."""


def frame(kind: int, payload: bytes, *, flags: int = 0, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def goaway(last: int, code: int = 0) -> bytes:
    return frame(GOAWAY, struct.pack("!II", last, code))


def answered(sent: bytes, headers=OK, body: bytes = b"", trailers=()) -> bytes:
    """What a server says to these first bytes of ours."""
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.initiate_connection()
    server.receive_data(sent)
    server.send_headers(1, headers, end_stream=not (body or trailers))
    for at in range(0, len(body), 16_384):
        server.send_data(1, body[at : at + 16_384], end_stream=at + 16_384 >= len(body) and not trailers)
    if trailers:
        server.send_headers(1, trailers, end_stream=True)
    return server.data_to_send()


def exchange(asked: Request = ASKED, keep: int = 1_000) -> tuple[Exchange, bytes]:
    made = Exchange(asked, keep=keep)
    return made, made.begin()


def test_the_request_is_what_was_asked_and_nothing_is_to_be_pushed() -> None:
    asked = ASKED._replace(method="POST", body=b"hello")
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    server.initiate_connection()

    events = server.receive_data(exchange(asked)[1])

    [headers] = [event.headers for event in events if hasattr(event, "headers")]
    assert dict(headers) == {
        ":method": "POST", ":scheme": "https", ":authority": "a.example", ":path": "/healthz", "accept": "*/*", "x-probe": "1",
    }  # fmt: skip
    assert b"".join(event.data for event in events if hasattr(event, "data")) == b"hello"
    assert server.remote_settings.enable_push == 0


@given(st.lists(st.integers(0, 200), max_size=8))
def test_an_answer_is_read_wherever_it_is_cut(cuts: list[int]) -> None:
    made, sent = exchange(keep=3)
    data = answered(sent, body=b"hello", trailers=(("grpc-status", "0"),))
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]

    for begin, end in itertools.pairwise(places):
        made.feed(data[begin:end])

    assert (made.status, made.done, made.size, bytes(made.kept)) == (200, True, 5, b"hel")
    assert (made.headers, made.trailers) == ({"content-type": "text/plain"}, {"grpc-status": "0"})


def test_an_answer_to_head_says_a_length_and_brings_none() -> None:
    made, _ = exchange(ASKED._replace(method="HEAD"))

    length = b"\x0f\x0d\x015"  # content-length: 5
    made.feed(
        frame(SETTINGS, b"") + frame(1, b"\x88" + length, flags=4, stream=1) + frame(DATA, b"", flags=1, stream=1)
    )

    assert (made.done, made.status, made.size) == (True, 200, 0)


def test_connections_of_one_request_begin_alike_and_know_nothing_of_each_other() -> None:
    (first, sent), (second, again) = exchange(), exchange()

    first.feed(answered(sent, body=b"x"))

    assert sent == again
    assert (first.done, second.started) == (True, False)
    second.feed(answered(again, body=b"yz"))
    assert (second.done, bytes(second.kept)) == (True, b"yz")


def test_settings_alone_are_no_answer() -> None:
    made, _ = exchange()

    reply = made.feed(frame(SETTINGS, b""))

    assert (made.started, made.status, made.done) == (True, 0, False)
    assert reply == frame(SETTINGS, b"", flags=1)
    with pytest.raises(RemoteProtocolError, match="closed within the header"):
        made.ended()


def test_pings_are_answered() -> None:
    made, _ = exchange()
    made.feed(frame(SETTINGS, b""))

    assert made.feed(frame(PING, b"12345678")) == frame(PING, b"12345678", flags=1)


def test_room_is_made_for_a_body_longer_than_the_window() -> None:
    made, _ = exchange(keep=10)
    made.feed(frame(SETTINGS, b""))
    made.feed(frame(1, b"\x88", flags=4, stream=1))

    replies = b"".join(made.feed(frame(DATA, bytes(16_384), stream=1)) for _ in range(200))
    made.feed(frame(DATA, b"", flags=1, stream=1))

    assert (made.size, len(made.kept), made.done) == (200 * 16_384, 10, True)
    assert replies, "window updates were sent"


def test_a_body_in_many_small_pieces_is_read() -> None:
    made, _ = exchange(keep=10)
    made.feed(frame(SETTINGS, b"") + HEADERS)

    made.feed(frame(DATA, bytes(64), stream=1) * 2_000 + frame(DATA, b"", flags=1, stream=1))

    assert (made.size, made.done) == (128_000, True)


def test_a_peer_that_goes_away_after_our_request_still_answers() -> None:
    made, sent = exchange()

    made.feed(goaway_first(answered(sent, body=b"hello")))

    assert (made.status, made.done) == (200, True)


def goaway_first(data: bytes) -> bytes:
    """The answer with a GOAWAY right behind the peer's settings."""
    end = 9 + int.from_bytes(data[:3], "big")
    return data[:end] + goaway(1) + data[end:]


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (frame(SETTINGS, b"") + goaway(0), "the peer went away: NO_ERROR"),
        (frame(SETTINGS, b"") + goaway(1, 11), "the peer went away: ENHANCE_YOUR_CALM"),
        (frame(SETTINGS, b"") + goaway(1, 99), "the peer went away: error 99"),
        (frame(SETTINGS, b"") + frame(GOAWAY, b"12"), "GOAWAY cut short"),
        (frame(SETTINGS, b"") + frame(RST, b"\0\0\0\7", stream=1), "reset the stream: REFUSED_STREAM"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the peer speaks HTTP/1.1"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP/2"),
        (frame(PING, b"12345678"), "not HTTP/2"),
        (frame(SETTINGS, b"") + b"\xff\xff\xff\0\0\0\0\0\1", "frame of 16777215 bytes"),
        (frame(SETTINGS, b"") + frame(PING, b"12345678") * 250, "more than 250 frames"),
        (frame(SETTINGS, b"") + HEADERS + frame(DATA, b"x", stream=1) * 260, "more than 250 frames"),
        (frame(SETTINGS, b"") + HEADERS + frame(DATA, b"\1\0", flags=8, stream=1) * 250, "more than 250 frames"),
        (frame(SETTINGS, b"") + frame(DATA, b"x", stream=9), "HTTP/2: "),
        (frame(SETTINGS, b"") + frame(1, b"\xff\xff\xff", flags=5, stream=1), "HTTP/2: "),
    ],
    ids=range(14),
)
def test_what_is_no_answer_breaks_the_protocol(data: bytes, rule: str) -> None:
    made, _ = exchange()

    with pytest.raises(RemoteProtocolError, match=rule):
        made.feed(data)


def test_a_body_that_is_not_as_long_as_it_says_breaks_the_protocol() -> None:
    made, _ = exchange()
    made.feed(frame(SETTINGS, b"") + frame(1, b"\x88\x0f\x0d\x015", flags=4, stream=1))

    with pytest.raises(RemoteProtocolError, match="HTTP/2: "):
        made.feed(frame(DATA, b"two", flags=1, stream=1))


def test_what_http2_cannot_carry_is_refused_before_it_is_sent() -> None:
    with pytest.raises(LocalProtocolError, match="cannot be said in HTTP/2"):
        check(ASKED._replace(headers=(("TE", "gzip"),)))
    check(ASKED)


def test_error_codes_have_names() -> None:
    assert [error_name(code) for code in (0, 13, 14)] == ["NO_ERROR", "HTTP_1_1_REQUIRED", "error 14"]


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
    st.lists(st.binary(max_size=30), max_size=4),
    st.integers(0, 400),
)
def test_any_bytes_are_an_answer_or_broken(changes: list[tuple[int, int]], pieces: list[bytes], cut: int) -> None:
    made, sent = exchange(keep=100)
    data = bytearray(answered(sent, body=b"hello", trailers=(("x", "y"),)))
    for at, byte in changes:
        data[at % len(data)] = byte
    with contextlib.suppress(RemoteProtocolError):
        for piece in (bytes(data[:cut]), *pieces, bytes(data[cut:])):
            made.feed(piece)
        made.ended()

    assert len(made.kept) <= 100
