"""ICMP: one echo request, one reply with our token in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reachline.model import Endpoint
from reachline.talk.options import Options
from reachline.talk.way import Way
from reachline.wire.icmp import MIN_PAYLOAD

__all__ = ["IcmpProbe"]

_LARGEST = 65_000
"""Bytes of payload: what fits an IP packet beside its headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcmpProbe:
    """Options: size."""

    way: ClassVar[Way] = Way.ECHO
    secure: ClassVar[None] = None
    size: int = 56
    """Bytes of payload; 56 is what ping sends."""

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options) -> IcmpProbe:
        del endpoint
        return cls(size=options.number("size", 56, low=MIN_PAYLOAD, high=_LARGEST))

    def where(self, endpoint: Endpoint) -> Endpoint:
        return endpoint

    def talk(self, endpoint: Endpoint, nonce: int) -> None:
        """The engine matches tokens itself."""
        del endpoint, nonce
