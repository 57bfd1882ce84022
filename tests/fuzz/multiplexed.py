"""HTTP/2 of our proxy: what clients and endpoints may send, as bytes, and as frames that are right but for their order and content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.fuzz.target import Target, framed, pieces

from reachline.proxy.http2.connection import Connection
from reachline.proxy.http2.events import Answered, Asked, Body, Ended, Event, Reset
from reachline.proxy.http2.frames import PREFACE, frame
from reachline.proxy.http2.limits import Limits

__all__ = ["multiplexed_targets"]

_LIMITS: Final = Limits(stream_window=65_535, connection_window=65_535, streams=3, head=300, headers=12)
_START: Final = PREFACE + frame(4, 0, 0)
_REQUEST: Final = b"\x82\x86\x84\x41\x01a"
"""GET / of http, authority a: entries of the static table, and one literal that is kept."""
_ANSWER: Final = b"\x88\x0f\x0d\x013"
"""200, with a length of 3."""
_SEEDS: Final = (
    frame(1, 5, 1, _REQUEST),
    frame(1, 4, 1, _REQUEST) + frame(0, 0, 1, b"abc") + frame(1, 5, 1, b"\x40\x01t\x011"),
    frame(1, 1, 1, _REQUEST[:3]) + frame(9, 4, 1, _REQUEST[3:]) + frame(3, 0, 1, b"\0\0\0\x08"),
    frame(4, 0, 0, b"\0\4\0\0\0\1\0\1\0\0\0\0") + frame(8, 0, 0, b"\0\0\1\0") + frame(6, 0, 0, b"12345678") + frame(7, 0, 0, b"\0" * 8),
    frame(1, 0x2D, 1, b"\1" + b"\0\0\0\0\1" + _REQUEST + b"\0") + frame(0, 9, 1, b"\2abc\0\0"),
    frame(1, 4, 1, _ANSWER) + frame(0, 1, 1, b"abc"),
    frame(1, 4, 1, b"\x08\x03103") + frame(1, 5, 1, b"\x88"),
)  # fmt: skip
_TOKENS: Final = (
    _REQUEST, _ANSWER, frame(4, 0, 0), frame(6, 0, 0, b"12345678"), frame(8, 0, 1, b"\0\0\1\0"), frame(0, 1, 1), frame(3, 0, 1, b"\0\0\0\0"),
    b"\x3f\xe1\x1f", b"\x0f\x0d\x013", b"\xff",
)  # fmt: skip


class _Heard:
    """What must hold of events: a head first, an end or a reset last, nothing behind it."""

    def __init__(self) -> None:
        self._open: dict[int, bool] = {}
        """By stream: whether its head is here."""

    def take(self, events: list[Event], *, is_client: bool) -> None:
        for event in events:
            match event:
                case Asked():
                    assert event.stream not in self._open
                    assert event.path[:1] in {b"/", b"*", b""}
                    assert not set(event.path + event.authority) & set(b" \r\n\0@")
                    self._open[event.stream] = True
                case Answered():
                    assert is_client
                    self._open[event.stream] = event.status >= 200
                case Body():
                    assert self._open[event.stream]
                    assert event.data
                case Ended():
                    assert self._open[event.stream]
                case Reset():
                    self._open.pop(event.stream, None)
                case _:
                    pass


def _served(data: bytes) -> None:
    connection, heard = Connection(_LIMITS), _Heard()
    connection.feed(_START)
    for now, piece in enumerate(pieces(data)):
        events = connection.feed(piece, now / 10)
        heard.take(events, is_client=False)
        for event in events:
            if isinstance(event, Ended):
                connection.answer(event.stream, 200, [(b"x-a", b"1")])
                connection.body(event.stream, b"abc" * 9, end=True)
        _bounded(connection)


def _asking(data: bytes) -> None:
    connection, heard = Connection(_LIMITS, is_client=True), _Heard()
    connection.feed(frame(4, 0, 0))
    request = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/")]
    for piece in pieces(data):
        if connection.can_ask():
            stream = connection.ask(request)
            connection.body(stream, b"abc" * 99, end=True)
        heard.take(connection.feed(piece), is_client=True)
        _bounded(connection)


def _bounded(connection: Connection) -> None:
    assert connection.streams <= _LIMITS.streams
    assert bool(connection.broken) <= connection.is_over
    while connection.take():
        pass


def multiplexed_targets() -> Iterator[Target]:
    seeds = framed(*_SEEDS)
    yield Target(name="proxy.http2.served", run=_served, errors=(), seeds=seeds, tokens=_TOKENS)
    yield Target(name="proxy.http2.asking", run=_asking, errors=(), seeds=seeds, tokens=_TOKENS)
