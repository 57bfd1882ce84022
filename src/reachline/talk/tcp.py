"""TCP: a bare connect is the whole probe, unless something is to be sent or expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from reachline.model import Endpoint, Failure
from reachline.talk.literal import literal
from reachline.talk.options import Options
from reachline.talk.secure import Secure
from reachline.talk.way import Way, needs_port

__all__ = ["ExpectTalk", "TcpProbe"]

_LIMIT: Final = 4_096
"""Bytes of an answer that are read unless said otherwise: any greeting."""
_LARGEST: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpProbe:
    """Options: send, expect, limit, tls; with TLS also sni, alpn, expect_alpn, verify, ca, min_tls.

    Text is expected, not a pattern: a peer could answer with what makes a pattern take minutes, on the one thread of the agent.
    """

    way: ClassVar[Way] = Way.CONNECT
    secure: Secure | None = None
    send: bytes = b""
    """Sent once connected; empty: the peer speaks first."""
    expect: bytes = b""
    """What must be in the answer; empty, with something sent: any answer will do."""
    limit: int = _LIMIT
    """Bytes of the answer in which it must be."""

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options) -> TcpProbe:
        needs_port(endpoint, options)
        return cls(
            secure=Secure.read(endpoint, options) if options.flag("tls", False) else None,
            send=options.parsed("send", b"", literal),
            expect=options.parsed("expect", b"", literal),
            limit=options.number("limit", _LIMIT, low=1, high=_LARGEST),
        )

    def where(self, endpoint: Endpoint) -> Endpoint:
        return endpoint

    def talk(self, endpoint: Endpoint, nonce: int) -> ExpectTalk | None:
        """None: being connected (or the handshake of TLS) is all."""
        del endpoint, nonce
        return ExpectTalk(self) if self.send or self.expect else None


class ExpectTalk:
    """Something sent, something expected."""

    answered: ClassVar[bool] = True
    status: ClassVar[int] = 0
    __slots__ = ("_found", "_heard", "_probe", "note")

    def __init__(self, probe: TcpProbe) -> None:
        self.note = ""
        self._probe = probe
        self._heard = bytearray()
        self._found = False

    def begin(self) -> bytes:
        return self._probe.send

    def received(self, data: bytes) -> bytes | None:
        """Searches what is new; a hit may straddle two reads."""
        expect, heard = self._probe.expect, self._heard
        begin = max(0, len(heard) - len(expect))
        heard += data[: self._probe.limit - len(heard)]
        self._found = heard.find(expect, begin) >= 0
        return None if self._found or len(heard) >= self._probe.limit else b""

    def closed(self) -> Failure | None:
        if self._found:
            return None
        if not self._heard:
            self.note = "closed without an answer"
            return Failure.RESET
        where = "the first {} bytes" if len(self._heard) >= self._probe.limit else "the {} bytes before the peer closed"
        self.note = f"what is expected is not among {where.format(len(self._heard))}"
        return Failure.STATUS
