"""Frames as a peer may write them, right or wrong; and what our end says, read by the hpack library."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import hpack

from reachline.proxy.http2.connection import Connection
from reachline.proxy.http2.events import Event, Field, Gone, Pong
from reachline.proxy.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from reachline.proxy.http2.limits import Limits

GET: list[Field] = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a.example"), (b":path", b"/x")]
POST: list[Field] = [(b":method", b"POST"), *GET[1:]]
START = PREFACE + frame(SETTINGS, 0, 0)
OPENING = frame(SETTINGS, 0, 0)
"""Of a server."""


def block(fields: Iterable[Field]) -> bytes:
    """Headers as literals without a table."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def _text(text: bytes) -> bytes:
    return bytes(hpack.hpack.encode_integer(len(text), 7)) + text


def headers(fields: Iterable[Field], stream: int = 1, *, end: bool = False) -> bytes:
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block(fields))


def continued(fields: Iterable[Field], stream: int = 1, *, end: bool = True, size: int = 16_000) -> bytes:
    """HEADERS and as many CONTINUATION as it takes."""
    whole = block(fields)
    parts = [whole[at : at + size] for at in range(0, len(whole), size)]
    out = [frame(HEADERS, END_STREAM if end else 0, stream, parts[0])]
    out += (frame(CONTINUATION, 0, stream, part) for part in parts[1:])
    return b"".join(out) + frame(CONTINUATION, END_HEADERS, stream)


def data(body: bytes = b"", stream: int = 1, *, end: bool = False) -> bytes:
    return frame(DATA, END_STREAM if end else 0, stream, body)


def reset(stream: int = 1, code: int = 8) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def update(size: int, stream: int = 0) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


def settings(pairs: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *each) for each in pairs.items()))


def ping(text: bytes = b"12345678", *, ack: bool = False) -> bytes:
    return frame(PING, int(ack), 0, text)


def goaway(last: int = 0, code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code))


def priority(stream: int = 3) -> bytes:
    return frame(PRIORITY, 0, stream, b"\0\0\0\1\0")


class Said(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frames_of(raw: bytes) -> list[Said]:
    """Whole frames, without a preface."""
    raw = raw.removeprefix(PREFACE)
    found = []
    while raw:
        size = int.from_bytes(raw[:3], "big")
        found.append(Said(raw[3], raw[4], int.from_bytes(raw[5:9], "big"), raw[9 : 9 + size]))
        raw = raw[9 + size :]
    return found


def kinds(raw: bytes, *kinds: int) -> list[Said]:
    return [each for each in frames_of(raw) if each.kind in kinds]


def taken(connection: Connection) -> bytes:
    """All that is said now."""
    out = []
    while piece := connection.take():
        out.append(piece)
    return b"".join(out)


def served(limits: Limits | None = None) -> Connection:
    """A server whose client has begun."""
    made = Connection(limits or Limits())
    made.feed(START)
    taken(made)
    return made


def asking(limits: Limits | None = None, opening: bytes = OPENING) -> Connection:
    """A client whose server has begun."""
    made = Connection(limits or Limits(), is_client=True)
    made.feed(opening)
    taken(made)
    return made


def exchanged(client: Connection, server: Connection) -> tuple[list[Event], list[Event]]:
    """Let two ends talk until both are silent: (events of the client, of the server)."""
    heard: tuple[list[Event], list[Event]] = ([], [])
    while True:
        to_server, to_client = client.take(), server.take()
        if not to_server and not to_client:
            return heard
        heard[1].extend(server.feed(to_server))
        heard[0].extend(client.feed(to_client))


def resets(raw: bytes) -> list[tuple[int, int]]:
    return [(each.stream, int.from_bytes(each.payload, "big")) for each in kinds(raw, RST_STREAM)]


def ends(raw: bytes) -> list[tuple[int, int]]:
    """(last stream, code) of each GOAWAY."""
    return [struct.unpack(">II", each.payload[:8]) for each in kinds(raw, GOAWAY)]


def streams_of(events: Iterable[Event]) -> list[int]:
    """The stream of each event that is of one."""
    return [each.stream for each in events if not isinstance(each, Gone | Pong)]
