"""UDP: one datagram that nobody can foresee, and the same one back; or an answer that holds what is expected."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import shake_128
from typing import ClassVar, Final

from reachline.model import Endpoint, Failure
from reachline.talk.literal import literal
from reachline.talk.options import Options
from reachline.talk.way import Way, needs_port

__all__ = ["UdpProbe", "UdpTalk"]

_TOKEN: Final = 8
"""Bytes of the nonce: the smallest payload that a stranger cannot guess."""
_USUAL: Final = 64
"""Bytes of payload unless said otherwise: about a voice packet, small enough to pass everywhere."""
_LARGEST: Final = 65_000
"""Bytes of payload: what fits an IP packet beside its headers. Above the path's MTU it goes in fragments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpProbe:
    """Options: size, send, expect."""

    way: ClassVar[Way] = Way.DATAGRAM
    secure: ClassVar[None] = None
    size: int = _USUAL
    """Bytes of the random payload."""
    send: bytes = b""
    """What is sent in its place; then `expect` says what must come back."""
    expect: bytes = b""
    """What an answer must hold. Empty: an answer is our own payload, whole."""

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options) -> UdpProbe:
        needs_port(endpoint, options)
        probe = cls(
            size=options.number("size", _USUAL, low=_TOKEN, high=_LARGEST),
            send=options.parsed("send", b"", literal),
            expect=options.parsed("expect", b"", literal),
        )
        if probe.send and not probe.expect:
            options.refuse("send", "needs expect: what must be in the answer", "an echo server needs neither")
        return probe

    def where(self, endpoint: Endpoint) -> Endpoint:
        return endpoint

    def talk(self, endpoint: Endpoint, nonce: int) -> UdpTalk:
        del endpoint
        return UdpTalk(self, nonce)


class UdpTalk:
    """One datagram and its answer."""

    answered: ClassVar[bool] = True
    status: ClassVar[int] = 0
    __slots__ = ("_answer", "_probe", "_sent", "note")

    def __init__(self, probe: UdpProbe, nonce: int) -> None:
        self.note = ""
        self._probe = probe
        self._sent = probe.send or payload(nonce, probe.size)
        self._answer: bytes | None = None

    def begin(self) -> bytes:
        return self._sent

    def received(self, data: bytes) -> bytes | None:
        """One whole datagram. One that is not our echo is passed over: it may be a stranger's, or of another attempt."""
        if not self._probe.expect and data != self._sent:
            return b""
        self._answer = data
        return None

    def closed(self) -> Failure | None:
        if self._answer is None:
            self.note = "closed without an answer"
            return Failure.PROTOCOL
        if self._probe.expect not in self._answer:
            self.note = "the answer does not contain what is expected"
            return Failure.STATUS
        return None


def payload(nonce: int, size: int) -> bytes:
    """The nonce, and what follows from it, up to `size` bytes: no two attempts send the same."""
    token = nonce.to_bytes(_TOKEN, "big")
    return token + shake_128(token).digest(size - _TOKEN)
