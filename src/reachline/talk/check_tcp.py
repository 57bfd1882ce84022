"""Active checks by TCP: connected, or something sent and something expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reachline.core.checking import Fault, Verdict
from reachline.talk.asking import BODY_MOST, GONE, Ask, holds
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
    """Something sent, something expected."""

    __slots__ = ("_check", "_heard", "is_reusable")

    def __init__(self, check: TcpCheck) -> None:
        self._check = check
        self._heard = bytearray()
        self.is_reusable = not check.by_connect

    def begin(self) -> bytes:
        return self._check.send

    def received(self, data: bytes) -> bytes | None:
        self._heard += data
        if len(self._heard) > BODY_MOST:
            return None
        return None if holds(bytes(self._heard), self._check.receive) else b""

    def verdict(self, *, closed: bool = False) -> Verdict:
        if self._check.by_connect or holds(bytes(self._heard), self._check.receive):
            return Verdict()
        return Verdict(Fault.NETWORK, note=GONE if closed else f"not found in the first {BODY_MOST} bytes")
