"""Which filter chain takes a connection: a real Envoy and our rules, by name, protocols, and both ends' addresses."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.differential.peers import Peer, serving
from tests.differential.real import running

from reachline.doors.envoy.asked import Connection
from reachline.doors.envoy.chains import chain_for
from reachline.doors.envoy.whole import read
from reachline.members import Address

TCP = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
INSPECTOR = "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"
LOOP = {"address_prefix": "127.0.0.0", "prefix_len": 8}
TWO = {"address_prefix": "127.0.0.2", "prefix_len": 32}
MATCHES: dict[str, dict[str, Any]] = {
    "exact": {"server_names": ["a.example"]},
    "suffix by h2": {"server_names": ["*.example"], "application_protocols": ["h2"]},
    "suffix": {"server_names": ["*.example"]},
    "longer suffix from two": {"server_names": ["*.b.example"], "source_prefix_ranges": [TWO]},
    "protocol": {"application_protocols": ["http/1.1", "x"]},
    "tls": {"transport_protocol": "tls"},
    "to two": {"prefix_ranges": [TWO]},
    "to two by name": {"prefix_ranges": [TWO], "server_names": ["a.example"]},
    "to all of them": {"prefix_ranges": [LOOP], "source_type": "EXTERNAL"},
    "plain from two": {"transport_protocol": "raw_buffer", "source_prefix_ranges": [TWO]},
    "plain from one": {"transport_protocol": "raw_buffer", "direct_source_prefix_ranges": [LOOP], "source_type": "SAME_IP_OR_LOOPBACK"},
}  # fmt: skip
SETS: dict[str, tuple[str, ...]] = {
    "names": ("exact", "suffix by h2", "suffix", "longer suffix from two", "tls"),
    "protocols": ("exact", "protocol", "tls", "plain from two"),
    "addresses": ("to two", "to two by name", "plain from one", "plain from two", "suffix"),
    "everywhere": ("to all of them", "exact", "plain from one"),
}
NAMES = ("", "a.example", "A.Example", "x.example", "x.b.example", "example", "other")
PROTOCOLS: tuple[tuple[str, ...], ...] = ((), ("h2", "http/1.1"), ("http/1.1", "h2"), ("x",))


class Calling(NamedTuple):
    """One connection. `name` None: plain text."""

    name: str | None
    alpn: tuple[str, ...]
    to: str
    source: str


CALLS = [
    *(Calling(name, alpn, "127.0.0.1", "127.0.0.1") for name, alpn in itertools.product(NAMES, PROTOCOLS)),
    *(Calling(name, (), to, source) for name in (None, "a.example", "x.b.example") for to in ("127.0.0.1", "127.0.0.2") for source in ("127.0.0.1", "127.0.0.2")),
]  # fmt: skip


def document(chosen: tuple[str, ...], ports: dict[str, int]) -> dict[str, Any]:
    def filters(name: str) -> list[dict[str, Any]]:
        return [{"name": "tcp", "typed_config": {"@type": TCP, "stat_prefix": "t", "cluster": name}}]

    listener = {
        "name": "in",
        "address": {"socket_address": {"address": "0.0.0.0", "port_value": 0}},
        "listener_filters": [{"name": "tls", "typed_config": {"@type": INSPECTOR}}],
        "filter_chains": [
            {"name": each, "filter_chain_match": MATCHES[each], "filters": filters(each)} for each in chosen
        ],
        "default_filter_chain": {"name": "rest", "filters": filters("rest")},
    }
    clusters = [
        {
            "name": name,
            "load_assignment": {
                "cluster_name": name,
                "endpoints": [
                    {
                        "lb_endpoints": [
                            {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
                        ]
                    }
                ],
            },
        }
        for name, port in ports.items()
    ]
    admin = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}
    return {"admin": admin, "static_resources": {"listeners": [listener], "clusters": clusters}}


@cache
def hello(calling: Calling) -> bytes:
    """The first bytes that a client says."""
    if calling.name is None:
        return b"hello"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if calling.alpn:
        context.set_alpn_protocols(list(calling.alpn))
    if not calling.name:
        context.check_hostname = False
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=calling.name or None).do_handshake()
    return out.read()


def taken(port: int, calling: Calling) -> str:
    """The chain that a real one gave the connection to."""
    with socket.create_connection((calling.to, port), timeout=10, source_address=(calling.source, 0)) as connection:
        connection.sendall(hello(calling))
        return connection.recv(100).decode()


@pytest.fixture
def peers() -> Iterator[dict[str, int]]:
    """An endpoint for each chain, which says its name."""
    with serving() as found:
        yield {name: found.add(Peer(raw=lambda _, __, said=name: said.encode())).port for name in (*MATCHES, "rest")}  # type: ignore[misc]


@pytest.mark.real
@pytest.mark.parametrize("name", SETS)
def test_every_connection_is_taken_by_the_chain_that_envoy_gives_it_to(
    name: str, envoy_binary: Path, peers: dict[str, int], tmp_path: Path
) -> None:
    made = document(SETS[name], peers)
    (listener,) = read(made).listeners
    differences = []

    with running(envoy_binary, made, tmp_path) as envoy:
        for each in CALLS:
            known = Connection(
                destination=Address(each.to, envoy.port),
                source=Address(each.source, 1),
                server_name=each.name or "",
                transport="raw_buffer" if each.name is None else "tls",
                alpn=each.alpn,
            )
            ours, theirs = chain_for(listener, known), taken(envoy.port, each)
            if ours is None or ours.name != theirs:
                differences.append(f"{each}: {ours and ours.name}, Envoy {theirs}")

    assert not differences, "\n".join(differences)
