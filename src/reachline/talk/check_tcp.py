"""Active checks by TCP: connected, or something sent and something expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reachline.core.checking import Fault, Verdict
from reachline.talk.asking import GONE, Ask
from reachline.talk.secure import Secure

__all__ = ["TcpCheck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpCheck:
    """`tcp_health_check`. Without `receive` being connected is all; wrong bytes are no failure, only silence or an end is."""

    checker: ClassVar[str] = "TCP"
    minds_idle_close: ClassVar[bool] = True
    send: bytes = b""
    receive: tuple[bytes, ...] = ()
    """Blocks that must be found one after another, with anything between them."""
    secure: Secure | None = None

    @property
    def by_connect(self) -> bool:
        return not self.receive

    def ask(self, authority: str) -> Ask:
        del authority
        return _Tcp(self)


class _Tcp:
    """Something sent, something expected. What cannot be part of the next block any more is forgotten at once."""

    __slots__ = ("_heard", "_left", "_send", "is_reusable")

    def __init__(self, check: TcpCheck) -> None:
        self._send = check.send
        self._left = [block for block in reversed(check.receive) if block]
        self._heard = bytearray()
        self.is_reusable = not check.by_connect

    def begin(self) -> bytes:
        return self._send

    def received(self, data: bytes) -> bytes | None:
        heard = self._heard
        heard += data
        while self._left:
            block = self._left[-1]
            found = heard.find(block)
            if found < 0:
                del heard[: max(0, len(heard) - len(block) + 1)]
                return b""
            del heard[: found + len(block)]
            self._left.pop()
        return None

    def verdict(self, *, closed: bool = False) -> Verdict:
        del closed
        return Verdict(Fault.NETWORK, note=GONE) if self._left else Verdict()
