"""HTTP/2: the same request and the same judgement as HTTP/1.1, carried by frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reachline.errors import RemoteProtocolError
from reachline.model import Failure
from reachline.wire.http2 import Exchange

if TYPE_CHECKING:
    from reachline.talk.http import HttpProbe

__all__ = ["Http2Talk"]


class Http2Talk:
    """One request and its response. The peer's settings come by themselves: only its response is an answer."""

    __slots__ = ("_exchange", "_found", "_probe", "_searched", "note")

    def __init__(self, probe: HttpProbe) -> None:
        self.note = ""
        self._probe = probe
        self._exchange = Exchange(probe.asked, keep=probe.limit if probe.body else 0)
        self._found = not probe.body
        self._searched = 0

    @property
    def answered(self) -> bool:
        return self._exchange.status != 0

    @property
    def status(self) -> int:
        return self._exchange.status

    def begin(self) -> bytes:
        return self._exchange.begin()

    def received(self, data: bytes) -> bytes | None:
        reply = self._exchange.heard(data)
        if reply is None:
            return None
        if not self._found:
            self._search()
        return None if self._exchange.done or self._is_enough() else reply

    def closed(self) -> Failure | None:
        exchange = self._exchange
        broken = exchange.broken
        if not broken and not exchange.started:
            self.note = "closed without an answer"
            return Failure.RESET
        if not broken and not self._is_enough():
            try:
                exchange.ended()
            except RemoteProtocolError as error:
                broken = str(error)
        if broken:
            self.note = broken
            return Failure.PROTOCOL
        self.note = self._probe.unexpected(exchange.status, found=self._found)
        return Failure.STATUS if self.note else None

    def _is_enough(self) -> bool:
        """Whether so much of the body is read that the rest is of no interest."""
        return bool(self._exchange.status) and self._exchange.size >= self._probe.limit

    def _search(self) -> None:
        """Look at what is new of the body; a hit may straddle two reads."""
        needle, kept = self._probe.body, self._exchange.kept
        self._found = kept.find(needle, max(0, self._searched - len(needle))) >= 0
        self._searched = len(kept)
