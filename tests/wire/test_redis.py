"""Replies of Redis: cut anywhere, bounded, and never anything but a reply or a broken protocol."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import RemoteProtocolError
from reachline.wire.redis import MAX_LINE, Replies, Reply, command

STREAM = b"+OK\r\n:12\r\n$4\r\nPONG\r\n$-1\r\n-MOVED 3999 10.0.0.7:6381\r\n$0\r\n\r\n"
TOLD = (
    Reply("+", "OK"),
    Reply(":", "12"),
    Reply("$", "PONG"),
    Reply("$", "", found=False),
    Reply("-", "MOVED 3999 10.0.0.7:6381"),
    Reply("$", ""),
)


def test_a_command_is_an_array_of_bulk_strings() -> None:
    assert command("AUTH", "bob", "pä") == b"*3\r\n$4\r\nAUTH\r\n$3\r\nbob\r\n$3\r\np\xc3\xa4\r\n"


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_replies_come_out_whole_wherever_they_are_cut(cuts: list[int]) -> None:
    replies, places = Replies(), [0, *sorted(cuts), len(STREAM)]

    found = [reply for begin, end in itertools.pairwise(places) for reply in replies.feed(STREAM[begin:end])]

    assert tuple(found) == TOLD


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "not a Redis reply"),
        (b"*1\r\n+OK\r\n", "not a Redis reply"),
        (b"H", "not a Redis reply"),
        (b"+" + b"x" * (MAX_LINE + 2), f"more than {MAX_LINE} bytes"),
        (b":1x\r\n", "a number of Redis is none"),
        (b":" + b"9" * 30 + b"\r\n", "a number of Redis is none"),
        (b"$5000\r\n", "at most 4096"),
        (b"$-2\r\n", "at most 4096"),
        (b"$2\r\nPONG\r\n", "longer than its size"),
        (b"+OK\r\n" * 17, "more than 16 replies"),
    ],
    ids=range(10),
)
def test_what_is_no_reply_breaks_the_protocol(data: bytes, rule: str) -> None:
    with pytest.raises(RemoteProtocolError, match=rule):
        Replies().feed(data)


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"+OK\r\n", b"$4\r\n", b"-E\r\n", b":1\r\n"]), max_size=12))
def test_replies_survive_anything_in_bounded_memory(pieces: list[bytes]) -> None:
    replies = Replies()
    with contextlib.suppress(RemoteProtocolError):
        for piece in pieces:
            replies.feed(piece)

    assert len(replies._buffer) <= MAX_LINE + 4_096 + 40
