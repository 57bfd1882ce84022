"""TCP: a bare connect is the whole probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reachline.model import Endpoint
from reachline.talk.options import Options
from reachline.talk.way import Way, needs_port

__all__ = ["TcpProbe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpProbe:
    """No options."""

    way: ClassVar[Way] = Way.CONNECT
    secure: ClassVar[None] = None

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options) -> TcpProbe:
        needs_port(endpoint, options)
        return cls()

    def where(self, endpoint: Endpoint) -> Endpoint:
        return endpoint

    def talk(self, endpoint: Endpoint, nonce: int) -> None:
        """Being connected is all."""
        del endpoint, nonce
