"""A listener with its filter chains, each field read, left aside or refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from reachline.doors.envoy.chain import ChainMatch, FilterChain, HttpManager, Listener, Network, TcpProxy
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.logs import access_logs
from reachline.doors.envoy.managing import MANAGER, TCP_PROXY, manager, network, tcp_proxy
from reachline.doors.envoy.securing import Secret, downstream
from reachline.members import Address, is_numeric

__all__ = ["bound", "listener"]

T = TypeVar("T")

_LISTENERS: Final = "envoy.extensions.filters.listener."
_TLS: Final = f"{_LISTENERS}tls_inspector.v3.TlsInspector"
_HTTP: Final = f"{_LISTENERS}http_inspector.v3.HttpInspector"
_PROXY: Final = f"{_LISTENERS}proxy_protocol.v3.ProxyProtocol"
_DRAINS: Final = ("DEFAULT", "MODIFY_ONLY")
_SOURCES: Final = ("ANY", "SAME_IP_OR_LOOPBACK", "EXTERNAL")
_PORT_MOST: Final = 65_535
_UNSUPPORTED: Final = {
    "filter_chain_matcher": "use filter_chain_match", "fcds_config": "write filter_chains",
    "use_original_dst": "connections go where their filter chain says", "transparent": "", "freebind": "",
    "udp_listener_config": "only TCP is listened to", "api_listener": "", "internal_listener": "", "enable_mptcp": "",
    "deprecated_v1": "use bind_to_port", "socket_options": "",
}  # fmt: skip
_SERVER_NAME: Final = re.compile(r"(\*\.)?[^*]+|\*\.?")


def listener(block: Block, known: Mapping[str, Secret]) -> Listener | None:
    """The listener; None where it has no address that can be bound."""
    address = bound(block)
    inspect = _inspectors(block)
    chains = _present(_chain(each, known) for each in block.blocks("filter_chains"))
    last = block.block("default_filter_chain")
    default = None if last is None else _chain(last, known)
    if not block.values("filter_chains") and last is None:
        block.found.refuse(block.at("filter_chains"), "is needed and must not be empty", about_key=True)
    _check_chains(block, chains)
    if any(_asks_of_tls(each) for each in chains) and not inspect["tls"]:
        # As Envoy does, with a warning.
        block.found.notice(block.at("filter_chains"), "match what is known of TLS: tls_inspector is added")
        inspect["tls"] = True
    more = _present(_more(each) for each in block.blocks("additional_addresses"))
    found = Listener(
        name=block.text("name"),
        address=address or Address("127.0.0.1", 0),
        more_addresses=more,
        chains=chains,
        default=default,
        inspect_tls=inspect["tls"],
        inspect_http=inspect["http"],
        proxy_protocol=inspect["proxy"],
        listener_filters_timeout=block.seconds("listener_filters_timeout", 15.0, least=0),
        continue_on_timeout=block.flag("continue_on_listener_filters_timeout"),
        buffer_limit=block.whole("per_connection_buffer_limit_bytes", 1 << 20),
        bind=block.flag("bind_to_port", default=True),
        backlog=block.maybe("tcp_backlog_size"),
        access_logs=access_logs(block),
        drain_on_modify_only=block.word("drain_type", _DRAINS, "DEFAULT") == "MODIFY_ONLY",
    )
    _rest(block)
    return found if address is not None else None


def _present(found: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(each for each in found if each is not None)


def _rest(block: Block) -> None:
    block.aside("metadata", "traffic_direction", "stat_prefix", "ignore_global_conn_limit", "bypass_overload_manager")
    block.noticed(
        "connection_balance_config", "reuse_port", "enable_reuse_port", "tcp_fast_open_queue_length",
        "max_connections_to_accept_per_socket_event", why="one process accepts here",
    )  # fmt: skip
    block.unsupported(_UNSUPPORTED)
    block.done()


def bound(block: Block) -> Address | None:
    """`address` of a listener or the admin: numeric; port 0 is any that is free."""
    where = block.block("address")
    if where is None:
        block.found.refuse(block.at("address"), "is needed", about_key=True)
        return None
    socket, other = where.block("socket_address"), where.one_of(("socket_address", "pipe", "envoy_internal_address"))
    where.unsupported({"pipe": "use socket_address", "envoy_internal_address": "use socket_address"})
    where.done()
    if socket is None:
        if other is None:
            where.found.refuse(where.path, "must have socket_address", about_key=True)
        return None
    host, port = socket.text("address", needed=True), socket.whole("port_value", 0, most=_PORT_MOST)
    if not socket.has("port_value") and not socket.has("named_port"):
        socket.found.refuse(socket.at("port_value"), "is needed; 0 is any that is free", about_key=True)
    if socket.word("protocol", ("TCP", "UDP"), "TCP") == "UDP":
        socket.refuse("protocol", "is not supported here", "TCP is")
    socket.unsupported({"named_port": "use port_value", "resolver_name": "", "network_namespace_filepath": ""})
    socket.noticed("ipv4_compat")
    socket.done()
    if host and not is_numeric(host):
        socket.refuse("address", "must be a numeric address", "0.0.0.0 for all")
        return None
    return Address(host, port) if host else None


def _more(block: Block) -> Address | None:
    found = bound(block)
    block.unsupported({"socket_options": "", "tcp_keepalive": ""})
    block.done()
    return found


def _inspectors(block: Block) -> dict[str, bool]:
    found = {"tls": False, "http": False, "proxy": False}
    kinds = {_TLS: "tls", _HTTP: "http", _PROXY: "proxy"}
    for each in block.blocks("listener_filters"):
        each.text("name", needed=True)
        typed = each.typed("typed_config")
        each.unsupported({"config_discovery": "write typed_config", "filter_disabled": ""})
        each.done()
        kind = None if typed is None else kinds.get(typed[0])
        if typed is None or kind is None:
            rule = (
                "must have a typed_config" if typed is None else f"is not supported here: {typed[0].rpartition('.')[2]}"
            )
            each.found.refuse(each.path, rule, "tls_inspector, http_inspector and proxy_protocol are", about_key=True)
            continue
        found[kind] = True
        config = typed[1]
        config.noticed(
            "enable_ja3_fingerprinting", "enable_ja4_fingerprinting", "initial_read_buffer_size", "stat_prefix"
        )
        config.noticed("close_connection_on_client_hello_parsing_errors", "max_client_hello_size")
        if kind == "proxy":
            config.unsupported(
                {
                    "rules": "",
                    "allow_requests_without_proxy_protocol": "",
                    "pass_through_tlvs": "",
                    "disallowed_versions": "",
                }
            )
        config.done()
    return found


def _chain(block: Block, known: Mapping[str, Secret]) -> FilterChain | None:
    rule, handler = block.block("filter_chain_match"), _handler(block)
    tls = downstream(block.block("transport_socket"), known)
    found_match = ChainMatch() if rule is None else _match(rule)
    name = block.text("name")
    timeout = block.seconds("transport_socket_connect_timeout", 0.0, least=0)
    block.aside("metadata")
    block.unsupported({"use_proxy_proto": "use the listener filter proxy_protocol", "on_demand_configuration": ""})
    block.done()
    if handler is None:
        return None
    return FilterChain(name=name, match=found_match, tls=tls, handler=handler, handshake_timeout=timeout)


def _handler(block: Block) -> HttpManager | TcpProxy | None:
    """The one filter that takes over; the others have no place here."""
    filters = block.blocks("filters")
    found: HttpManager | TcpProxy | None = None
    for each in filters:
        each.text("name", needed=True)
        typed = each.typed("typed_config")
        each.unsupported({"config_discovery": "write typed_config"})
        each.done()
        kind = "" if typed is None else typed[0]
        if typed is not None and kind in (MANAGER, TCP_PROXY) and each is filters[-1]:
            found = manager(typed[1]) if kind == MANAGER else tcp_proxy(typed[1])
        elif kind in (MANAGER, TCP_PROXY):
            each.found.refuse(each.path, "must be the last filter of its chain", about_key=True)
        else:
            rule = "must have a typed_config" if typed is None else f"is not supported here: {kind.rpartition('.')[2]}"
            each.found.refuse(each.path, rule, "http_connection_manager and tcp_proxy are", about_key=True)
    if not filters:
        block.found.refuse(block.at("filters"), "must hold http_connection_manager or tcp_proxy", about_key=True)
    return found


def _match(block: Block) -> ChainMatch:
    names = tuple(each.lower() for each in block.texts("server_names"))
    for each in names:
        if not _SERVER_NAME.fullmatch(each):
            block.refuse("server_names", "must be names or *.suffix")
    found = ChainMatch(
        port=block.maybe("destination_port", least=1, most=_PORT_MOST),
        to=_networks(block, "prefix_ranges"),
        server_names=tuple("" if each in ("*", "*.") else each for each in names),
        transport=block.text("transport_protocol"),
        alpn=block.texts("application_protocols"),
        directly_from=_networks(block, "direct_source_prefix_ranges"),
        source_type=block.word("source_type", _SOURCES, "ANY"),
        source=_networks(block, "source_prefix_ranges"),
        source_ports=_ports(block),
    )
    block.unsupported({"address_suffix": "", "suffix_len": ""})
    block.done()
    return found


def _networks(block: Block, name: str) -> tuple[Network, ...]:
    return tuple(each for one in block.blocks(name) if (each := network(one)) is not None)


def _ports(block: Block) -> tuple[int, ...]:
    found = []
    for at, each in enumerate(block.values("source_ports")):
        if isinstance(each, bool) or not isinstance(each, int) or not 1 <= each <= _PORT_MOST:
            block.found.refuse((*block.at("source_ports"), at), f"must be a port from 1 to {_PORT_MOST}")
        else:
            found.append(each)
    return tuple(found)


def _asks_of_tls(chain: FilterChain) -> bool:
    return bool(chain.match.server_names or chain.match.alpn or chain.match.transport == "tls")


def _check_chains(block: Block, chains: tuple[FilterChain, ...]) -> None:
    """That no two chains take the same connections."""
    seen: set[ChainMatch] = set()
    for at, each in enumerate(chains):
        if each.match in seen:
            path = (*block.at("filter_chains"), at)
            block.found.refuse(path, "takes the same connections as one before it", about_key=True)
        seen.add(each.match)
