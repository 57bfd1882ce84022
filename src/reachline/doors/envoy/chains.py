"""Which filter chain takes a connection: one property after the other, the most specific that some chain asks for; no way back."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Final

from reachline.doors.envoy.asked import Connection
from reachline.doors.envoy.chain import ChainMatch, FilterChain, Listener, Network

__all__ = ["LEVELS", "chain_for", "narrowed"]


def chain_for(listener: Listener, connection: Connection) -> FilterChain | None:
    """The chain; None where none takes it, and the connection is closed."""
    left = narrowed(listener, connection)[-1]
    return left[0] if left else listener.default


def narrowed(listener: Listener, connection: Connection) -> list[Sequence[FilterChain]]:
    """The chains that are left after each of `LEVELS`, beginning with all."""
    steps: list[Sequence[FilterChain]] = [listener.chains]
    for _, rate in LEVELS:
        left = steps[-1]
        rates = [rate(each.match, connection) for each in left]
        best = max((each for each in rates if each is not None), default=None)
        steps.append([] if best is None else [each for each, one in zip(left, rates, strict=True) if one == best])
    return steps


Rate = Callable[[ChainMatch, Connection], int | None]
"""How specifically a chain asks for what the connection has; 0: it does not ask; None: for something else."""


def _port(match: ChainMatch, connection: Connection) -> int | None:
    return 0 if match.port is None else 1 if match.port == connection.destination.port else None


def _to(match: ChainMatch, connection: Connection) -> int | None:
    return _longest(match.to, connection.destination.host)


def _server_name(match: ChainMatch, connection: Connection) -> int | None:
    if not match.server_names:
        return 0
    name = connection.server_name.lower()
    found = [_name(each, name) for each in match.server_names]
    return max((each for each in found if each is not None), default=None)


def _name(asked: str, name: str) -> int | None:
    if not asked:
        return 0
    if asked.startswith("*"):
        return len(asked) if name.endswith(asked[1:]) and len(name) >= len(asked) else None
    return len(name) + 2 if asked == name else None


def _transport(match: ChainMatch, connection: Connection) -> int | None:
    return 0 if not match.transport else 1 if match.transport == connection.transport else None


def _alpn(match: ChainMatch, connection: Connection) -> int | None:
    """The client's order counts."""
    if not match.alpn:
        return 0
    places = [at for at, each in enumerate(connection.alpn) if each in match.alpn]
    return len(connection.alpn) - places[0] if places else None


def _directly_from(match: ChainMatch, connection: Connection) -> int | None:
    return _longest(match.directly_from, (connection.directly_from or connection.source).host)


def _source_type(match: ChainMatch, connection: Connection) -> int | None:
    if match.source_type == "ANY":
        return 0
    host = connection.source.host
    # As in Envoy only the one address of each family is loopback, not all of 127.0.0.0/8.
    is_local = host in (connection.destination.host, "127.0.0.1", "::1")
    return 1 if is_local is (match.source_type == "SAME_IP_OR_LOOPBACK") else None


def _source(match: ChainMatch, connection: Connection) -> int | None:
    return _longest(match.source, connection.source.host)


def _source_port(match: ChainMatch, connection: Connection) -> int | None:
    return 0 if not match.source_ports else 1 if connection.source.port in match.source_ports else None


def _longest(networks: Sequence[Network], host: str) -> int | None:
    """Bits of the longest range that holds the address; where none is asked for it is as if all addresses were."""
    if not networks:
        return 0
    address = ipaddress.ip_address(host)
    found = [each.bits for each in networks if address in ipaddress.ip_network((each.prefix, each.bits), strict=False)]
    return max(found, default=None)


LEVELS: Final[tuple[tuple[str, Rate], ...]] = (
    ("destination_port", _port), ("prefix_ranges", _to), ("server_names", _server_name),
    ("transport_protocol", _transport), ("application_protocols", _alpn), ("direct_source_prefix_ranges", _directly_from),
    ("source_type", _source_type), ("source_prefix_ranges", _source), ("source_ports", _source_port),
)  # fmt: skip
"""In Envoy's order."""
