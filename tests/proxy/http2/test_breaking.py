"""Peers that break the protocol, or flood us within it: told so by the right code, counted by Envoy's names, and left."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.proxy.http2 import said
from tests.proxy.http2.said import (
    GET,
    POST,
    data,
    ends,
    headers,
    ping,
    priority,
    reset,
    resets,
    served,
    streams_of,
    taken,
    update,
)

from reachline.proxy.http2.connection import Connection
from reachline.proxy.http2.events import Asked, Ended
from reachline.proxy.http2.frames import CONTINUATION, DATA, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, frame
from reachline.proxy.http2.limits import Code, Limits

BROKEN: dict[str, tuple[bytes, Code]] = {
    "even stream": (headers(GET, 2, end=True), Code.PROTOCOL_ERROR),
    "headers on no stream": (headers(GET, 0), Code.PROTOCOL_ERROR),
    "data on no stream": (data(b"a", 0), Code.PROTOCOL_ERROR),
    "data before its stream": (data(b"a"), Code.PROTOCOL_ERROR),
    "reset before its stream": (reset(), Code.PROTOCOL_ERROR),
    "update before its stream": (update(1, 1), Code.PROTOCOL_ERROR),
    "data behind the end": (headers(GET, end=True) + data(b"a"), Code.STREAM_CLOSED),
    "headers behind the end": (headers(GET, end=True) + headers(GET, end=True), Code.STREAM_CLOSED),
    "update of nothing": (update(0), Code.PROTOCOL_ERROR),
    "window beyond 31 bits": (update((1 << 31) - 1), Code.FLOW_CONTROL_ERROR),
    "all windows beyond 31 bits": (headers(POST) + update((1 << 30), 1) + said.settings({4: (1 << 31) - 1}), Code.FLOW_CONTROL_ERROR),
    "short ping": (frame(PING, 0, 0, b"1234"), Code.FRAME_SIZE_ERROR),
    "ping on a stream": (frame(PING, 0, 1, b"12345678"), Code.PROTOCOL_ERROR),
    "half a setting": (frame(SETTINGS, 0, 0, b"12345"), Code.FRAME_SIZE_ERROR),
    "settings on a stream": (frame(SETTINGS, 0, 1), Code.PROTOCOL_ERROR),
    "acknowledgement with settings": (frame(SETTINGS, 1, 0, b"123456"), Code.FRAME_SIZE_ERROR),
    "window setting": (said.settings({4: 1 << 31}), Code.FLOW_CONTROL_ERROR),
    "frame size setting": (said.settings({5: 1}), Code.PROTOCOL_ERROR),
    "push setting": (said.settings({2: 2}), Code.PROTOCOL_ERROR),
    "connect setting": (said.settings({8: 2}), Code.PROTOCOL_ERROR),
    "hundred settings": (said.settings(dict.fromkeys(range(100, 200), 1)), Code.ENHANCE_YOUR_CALM),
    "short goaway": (frame(GOAWAY, 0, 0, b"1234"), Code.FRAME_SIZE_ERROR),
    "short reset": (headers(POST) + frame(RST_STREAM, 0, 1, b"123"), Code.FRAME_SIZE_ERROR),
    "short priority": (frame(2, 0, 1, b"123"), Code.FRAME_SIZE_ERROR),
    "push": (frame(5, 4, 1, b"\0\0\0\2" + said.block(GET)), Code.PROTOCOL_ERROR),
    "continuation of nothing": (frame(CONTINUATION, 4, 1), Code.PROTOCOL_ERROR),
    "interrupted headers": (frame(HEADERS, 1, 1, said.block(GET)) + ping(), Code.PROTOCOL_ERROR),
    "continuation of another": (frame(HEADERS, 1, 1, said.block(GET)) + frame(CONTINUATION, 4, 3, b"a"), Code.PROTOCOL_ERROR),
    "too much padding": (headers(POST) + frame(DATA, 8, 1, b"\5abc"), Code.PROTOCOL_ERROR),
    "headers without their priority": (frame(HEADERS, 0x25, 1, b"abc"), Code.FRAME_SIZE_ERROR),
    "frame too long": (headers(POST) + (16_385).to_bytes(3, "big") + b"\0\0\0\0\0\1", Code.FRAME_SIZE_ERROR),
    "no entry of a table": (frame(HEADERS, 5, 1, b"\xff\xff\xff\x0f"), Code.COMPRESSION_ERROR),
    "empty frames": (headers(POST) + data() + data(), Code.ENHANCE_YOUR_CALM),
    "empty continuations": (frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1), Code.ENHANCE_YOUR_CALM),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "code"), BROKEN.values(), ids=BROKEN)
def test_a_peer_that_breaks_the_protocol_is_told_so_and_left(raw: bytes, code: Code) -> None:
    server = served()

    server.feed(raw + headers(GET, 9, end=True))

    assert [each for _, each in ends(taken(server))] == [code]
    assert server.is_over
    assert server.broken


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        PREFACE[:-2] + b"XX",
        PREFACE + ping(),
        PREFACE + frame(SETTINGS, 1, 0),
    ],
)
def test_who_does_not_begin_by_the_preface_and_settings_is_left(raw: bytes) -> None:
    server = Connection(Limits())

    server.feed(raw)

    assert ends(taken(server)) == [(0, Code.PROTOCOL_ERROR)]


def test_frames_of_no_known_kind_mean_nothing() -> None:
    server = served()

    events = server.feed(
        frame(99, 255, 1, b"abc") + frame(HEADERS, 0x2D, 1, b"\2" + b"\0\0\0\0\1" + said.block(GET) + b"\0\0")
    )

    assert [type(each) for each in events] == [Asked, Ended]


FLOODS: dict[str, tuple[bytes, bytes, str]] = {
    "empty": (headers(POST) + data() + data(b"a") + data() + data(b"a"), data() * 2, "inbound_empty_frames_flood"),
    "priority": (priority() * 100, priority(), "inbound_priority_frames_flood"),
    "update": (update(1) * 5, update(1), "inbound_window_update_frames_flood"),
    "update of a stream": (headers(POST) + update(1, 1) * 7, update(1, 1), "inbound_window_update_frames_flood"),
    "ping": (ping() * 999, ping() * 2, "outbound_control_flood"),
    "settings": (said.settings({}) * 999, said.settings({}) * 2, "outbound_control_flood"),
    "reset": (b"".join(headers(POST, at) + reset(at) for at in range(1, 499, 2)), headers(POST, 501) + reset(501), "downstream_rq_too_many_premature_resets"),
}  # fmt: skip


@pytest.mark.parametrize(("fine", "more", "counter"), FLOODS.values(), ids=FLOODS)
def test_a_flood_is_counted_by_envoy_s_name_and_ended(fine: bytes, more: bytes, counter: str) -> None:
    server = served()

    server.feed(fine)
    before = (server.is_over, server.counts[counter])
    server.feed(more)

    assert before == (False, 0)
    assert (server.is_over, server.counts[counter]) == (True, 1)
    assert ends(taken(server))[0][1] == Code.ENHANCE_YOUR_CALM


def test_answers_that_a_client_asks_for_and_does_not_read_are_bounded() -> None:
    server = served()
    stream = 1

    while not server.is_over and stream < 40_000:
        for _ in server.feed(b"".join(headers(GET, stream + 2 * at, end=True) for at in range(500)))[::2]:
            server.answer(stream, 200, [], end=True)
            stream += 2

    assert server.counts["outbound_flood"] == 1
    assert server._sender.frames < 10_000 + 600


@pytest.mark.parametrize(("after", "answers"), [(2.0, False), (0.0, True)])
def test_resets_that_come_late_or_behind_an_answer_are_no_flood(after: float, answers: bool) -> None:
    server = served()

    for stream in range(1, 1_601, 2):
        server.feed(headers(POST, stream), 0.0)
        if answers:
            server.answer(stream, 200, [])
        server.feed(reset(stream), after)
        taken(server)

    assert not server.is_over


def test_streams_beyond_the_limit_are_refused() -> None:
    server = served(Limits(streams=2))

    events = server.feed(headers(POST) + headers(POST, 3) + headers(POST, 5))

    assert streams_of(events) == [1, 3]
    assert resets(taken(server)) == [(5, Code.REFUSED_STREAM)]


def test_connections_may_share_their_counts() -> None:
    counts: Counter[str] = Counter()
    for _ in range(2):
        Connection(Limits(), counts).feed(said.START + ping() * 2_000)

    assert counts["outbound_control_flood"] == 2
