"""A request and a connection as routing sees them: values that whoever has a request makes, and nothing is done to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reachline.members import Address

__all__ = ["Connection", "Request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What is known of a connection before anything is read of it but, by TLS, its first message."""

    destination: Address
    source: Address
    server_name: str = ""
    """SNI; empty: none, or plain text."""
    transport: str = "raw_buffer"
    """`tls` or `raw_buffer`."""
    alpn: tuple[str, ...] = ()
    """What the client offers, in its order."""
    directly_from: Address | None = None
    """Where it comes from where that is not `source` (behind a PROXY header)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request after the manager's own changes of it: paths normalised, headers of strangers removed."""

    method: str = "GET"
    scheme: str = "http"
    """What the client used: x-forwarded-proto where it is believed."""
    authority: str = ""
    path: str = "/"
    """With its query; empty of CONNECT."""
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names in lower case, each with all of its values in the order sent; without `host` and names with a colon."""
    source_ip: str = ""
    is_internal: bool = False
    """Whether x-envoy-internal would say true."""
    certificate: bool = False
    """Whether the client showed a certificate…"""
    validated: bool = False
    """…and it was found right."""
