"""What a peer said, in the order it said it. Values only."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Answered", "Asked", "Body", "Ended", "Event", "Field", "Gone", "Pong", "Reset"]

Field = tuple[bytes, bytes]
"""A header's name, in lower case, and its value."""


class Asked(NamedTuple):
    """A request's head; its `Ended` follows, at once where it has no body."""

    stream: int
    method: bytes
    scheme: bytes
    """Empty for CONNECT."""
    authority: bytes
    """Of `:authority`, else of `host`, which is not among `headers`."""
    path: bytes
    """Empty for CONNECT."""
    protocol: bytes
    """Of extended CONNECT (RFC 8441), else empty."""
    headers: list[Field]
    """Without pseudo-headers; crumbs of a cookie are one (RFC 9113, 8.2.3)."""
    length: int | None
    """As `content-length` has it; the body that comes agrees with it, or the stream is reset."""


class Answered(NamedTuple):
    """A response's head, or an interim one (1xx), which another follows."""

    stream: int
    status: int
    headers: list[Field]
    length: int | None


class Body(NamedTuple):
    """Some of a message's body, never empty."""

    stream: int
    data: bytes


class Ended(NamedTuple):
    """A message is here whole."""

    stream: int
    trailers: list[Field]


class Reset(NamedTuple):
    """A stream is over, by the peer's word or because it broke the protocol. Nothing more comes of it, nothing more can be said."""

    stream: int
    code: int
    is_ours: bool = False
    """Whether it is our word: the peer broke the protocol."""


class Gone(NamedTuple):
    """The peer takes no more streams; those up to `last` go on."""

    last: int
    code: int


class Pong(NamedTuple):
    """The peer answered a ping of ours."""

    data: bytes


Event = Asked | Answered | Body | Ended | Reset | Gone | Pong
