"""What a probe asks of TLS, as plain values; the engine shakes hands (`net.tls`)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from reachline.model import Endpoint
from reachline.talk.options import Options, listed

__all__ = ["Secure", "bare_name", "file_path", "is_address", "server_name"]

_LABELS: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_LONGEST: Final = 1_000
"""Characters of a file's path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secure:
    """One TLS profile: probes that share it share a context, never a session."""

    name: str
    """What the certificate is checked against, and the SNI where it is not an address…"""
    sni: str = ""
    """…unless this takes its place in both."""
    alpn: tuple[str, ...] = ()
    verify: bool = True
    """False: any certificate will do; its end is read all the same."""
    ca: str = ""
    """A PEM file of trusted roots at the agent; empty: the system's."""
    expect_alpn: str = ""
    """The protocol that must be agreed on; empty: any or none."""
    min_tls: str = ""
    """The lowest version that is spoken, `1.2` or `1.3`; empty: what OpenSSL takes."""

    @property
    def server_name(self) -> str:
        """The name for the handshake."""
        return self.sni or self.name

    @classmethod
    def read(cls, endpoint: Endpoint, options: Options, *, alpn: str = "", must: str = "") -> Secure:
        """From the options `sni`, `alpn`, `expect_alpn`, `verify`, `ca`, `min_tls`; `must` is the protocol the probe speaks."""
        expected = must or options.parsed("expect_alpn", "", _protocol)
        offered = options.parsed("alpn", listed(alpn or expected), _protocols)
        if expected and expected not in offered:
            options.refuse("alpn", f"must offer {expected}, which is expected")
        return cls(
            name=bare_name(endpoint.host),
            sni=options.parsed("sni", "", server_name),
            alpn=offered,
            verify=options.flag("verify", True),
            ca=options.parsed("ca", "", file_path),
            expect_alpn=expected,
            min_tls=options.parsed("min_tls", "", _version),
        )


def bare_name(host: str) -> str:
    """A host as certificates and SNI name it: without a zone index, without the dot that ends a full name."""
    return host.partition("%")[0].rstrip(".")


def server_name(text: str) -> str:
    """A name for the handshake, or empty text; ValueError says the rule."""
    if text and not _LABELS.fullmatch(text) and not is_address(text):
        raise ValueError("must be a DNS name or an address, e.g. api.example")
    return bare_name(text)


def file_path(text: str) -> str:
    """A file's path, or empty text; ValueError says the rule."""
    if not text.isprintable() or len(text) > _LONGEST:
        raise ValueError(f"must be the path of a file, of at most {_LONGEST} characters")
    return text


def _protocols(text: str) -> tuple[str, ...]:
    names = listed(text)
    if not all(name.isascii() and len(name) <= 255 for name in names):
        raise ValueError("must be protocol names of at most 255 ASCII characters, e.g. h2,http/1.1")
    return names


def _protocol(text: str) -> str:
    if len(names := _protocols(text)) != 1:
        raise ValueError("must be one protocol name, e.g. h2")
    return names[0]


def _version(text: str) -> str:
    if text not in {"1.2", "1.3"}:
        raise ValueError("must be 1.2 or 1.3")
    return text


def is_address(host: str) -> bool:
    """Whether `host` is numeric (a zone index may follow)."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
