"""TLS: connect and shake hands; the certificate's end is read, and verified unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reachline.model import Endpoint
from reachline.talk.options import Options
from reachline.talk.secure import Secure
from reachline.talk.way import Way, needs_port

__all__ = ["TlsProbe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsProbe:
    """Options: sni, alpn, expect_alpn, verify, ca, min_tls."""

    way: ClassVar[Way] = Way.CONNECT
    secure: Secure

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options) -> TlsProbe:
        needs_port(endpoint, options)
        return cls(secure=Secure.read(endpoint, options))

    def where(self, endpoint: Endpoint) -> Endpoint:
        return endpoint

    def talk(self, endpoint: Endpoint, nonce: int) -> None:
        """The handshake is all."""
        del endpoint, nonce
