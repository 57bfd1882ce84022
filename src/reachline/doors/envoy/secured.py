"""TLS of an Envoy document as plain values: what is shown to the other end, and what the other end must show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from reachline.doors.envoy.routes import TextMatch

__all__ = [
    "SOCKET_MATCH",
    "Certificate",
    "DownstreamTls",
    "Material",
    "SocketMatch",
    "TlsParameters",
    "Trusted",
    "UpstreamTls",
    "matched",
]

SOCKET_MATCH: Final = "envoy.transport_socket_match"
"""Whose metadata of an endpoint says which of a cluster's sockets it is spoken to by."""


class Material(NamedTuple):
    """A DataSource: bytes that stand in the document, or a file that holds them (read anew when it changes)."""

    inline: bytes = b""
    file: str = ""

    def __bool__(self) -> bool:
        return bool(self.inline or self.file)


class Certificate(NamedTuple):
    """A certificate chain and its private key, PEM."""

    chain: Material
    key: Material
    password: Material = Material()


class TlsParameters(NamedTuple):
    """Versions TLSv1_0…TLSv1_3, empty: Envoy's own (servers 1.2 to 1.3, clients 1.2 to 1.2); OpenSSL names of ciphers."""

    least: str = ""
    most: str = ""
    ciphers: tuple[str, ...] = ()


class Trusted(NamedTuple):
    """What the other end's certificate must be."""

    authorities: Material = Material()
    """Its issuers, PEM; empty: it is not verified."""
    names: tuple[tuple[str, TextMatch], ...] = ()
    """(DNS, URI, EMAIL, IP_ADDRESS, …; matcher): one of its subject alternative names must match; empty: any."""
    spki: tuple[str, ...] = ()
    """Base64 of SHA-256 of its public key; empty: any."""
    hashes: tuple[str, ...] = ()
    """Hex of SHA-256 of the certificate, lower case, no colons; empty: any. One of these or of `spki` is enough."""
    accept_untrusted: bool = False
    """ACCEPT_UNTRUSTED: a wrong one is let through, and not called validated."""
    system: bool = False
    """`system_root_certs`: the machine's own issuers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownstreamTls:
    """TLS of those who connect to a listener."""

    certificates: tuple[Certificate, ...]
    """The one whose names fit what the client asks for, else the first."""
    trusted: Trusted | None = None
    require_client_certificate: bool = False
    alpn: tuple[str, ...] = ()
    parameters: TlsParameters = TlsParameters()
    session_tickets: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTls:
    """TLS towards a cluster's endpoints."""

    sni: str = ""
    auto_host_sni: bool = False
    """SNI is the endpoint's hostname."""
    auto_sni: bool = False
    """SNI is the request's authority (`upstream_http_protocol_options.auto_sni`)."""
    auto_san: bool = False
    """And the certificate must be for that name."""
    certificate: Certificate | None = None
    trusted: Trusted | None = None
    alpn: tuple[str, ...] = ()
    parameters: TlsParameters = TlsParameters()


class SocketMatch(NamedTuple):
    """One of a cluster's `transport_socket_matches`."""

    name: str
    wanted: Mapping[str, object]
    """What an endpoint's metadata of `SOCKET_MATCH` must hold, as JSON values; empty: any endpoint."""
    tls: UpstreamTls | None
    """None: plain text."""


def matched(matches: tuple[SocketMatch, ...], metadata: Mapping[str, object]) -> int | None:
    """The place of the first that fits an endpoint of this metadata, by filter; None: none does, the cluster's own socket counts."""
    given = metadata.get(SOCKET_MATCH)
    labels: Mapping[str, object] = given if isinstance(given, Mapping) else {}
    for at, match in enumerate(matches):
        if all(name in labels and _is_same(labels[name], value) for name, value in match.wanted.items()):
            return at
    return None


def _is_same(one: object, other: object) -> bool:
    """As JSON has it: true is no 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and one == other
