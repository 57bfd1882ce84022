"""What a probe asks of TLS, as plain values; the engine shakes hands (`net.tls`)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from reachline.model import Endpoint
from reachline.talk.options import Options, listed

__all__ = ["Secure", "is_address"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secure:
    """One TLS profile: probes that share it share a context, never a session."""

    name: str
    """What the certificate is checked against, and the SNI where it is not an address."""
    sni: str = ""
    """The name sent, where it differs from `name`."""
    alpn: tuple[str, ...] = ()
    verify: bool = True
    """False: any certificate will do; its end is read all the same."""
    ca: str = ""
    """A PEM file of trusted roots at the agent; empty: the system's."""

    @property
    def server_name(self) -> str:
        """The name for the handshake."""
        return self.sni or self.name

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options, *, alpn: str = "") -> Secure:
        """From the options `sni`, `alpn`, `verify`, `ca`."""
        return cls(
            name=endpoint.host.partition("%")[0],
            sni=options.text("sni"),
            alpn=options.parsed("alpn", listed(alpn), _protocols),
            verify=options.flag("verify", True),
            ca=options.text("ca"),
        )


def _protocols(text: str) -> tuple[str, ...]:
    names = listed(text)
    if not all(name.isascii() and len(name) <= 255 for name in names):
        raise ValueError("must be protocol names of at most 255 ASCII characters, e.g. h2,http/1.1")
    return names


def is_address(host: str) -> bool:
    """Whether `host` is numeric (a zone index may follow)."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
