"""How a cluster's endpoints are spoken to: protocol, limits, TLS; the part of a cluster that is not about who is picked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from reachline.doors.envoy.chain import Upstream
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.managing import http2
from reachline.doors.envoy.secured import SocketMatch, UpstreamTls
from reachline.doors.envoy.securing import Secret
from reachline.doors.envoy.securing import upstream as tls_of

__all__ = ["upstream"]

_KEY: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_TYPE: Final = f"type.googleapis.com/{_KEY}"
_KINDS: Final = ("explicit_http_config", "use_downstream_protocol_config", "auto_config")
_VERSIONS: Final = ("http_protocol_options", "http2_protocol_options", "http3_protocol_options")
_SELECTIONS: Final = ("USE_CONFIGURED_PROTOCOL", "USE_DOWNSTREAM_PROTOCOL")
_UNDERSCORES: Final = ("ALLOW", "REJECT_REQUEST", "DROP_HEADER")


def upstream(block: Block, known: Mapping[str, Secret]) -> Upstream:
    """Of a cluster's block, whose other fields are read elsewhere."""
    found = Upstream(
        tls=tls_of(block.block("transport_socket"), known),
        by_match=_matches(block, known),
        buffer_limit=block.whole("per_connection_buffer_limit_bytes", 1 << 20),
        keepalive=_keepalive(block.block("upstream_connection_options")),
        max_requests_per_connection=block.whole("max_requests_per_connection"),
    )
    options = block.raw("typed_extension_protocol_options")
    typed = block.named("typed_extension_protocol_options", _KEY)
    if isinstance(options, Mapping):
        for name in options:
            if name != _KEY:
                path = (*block.at("typed_extension_protocol_options"), str(name))
                block.found.refuse(path, "is not supported here", f"{_KEY} is", about_key=True)
    found = _old(block, found) if typed is None else _options(typed, found)
    if found.protocol == "AUTO" and not found.secured:
        hint = "give it a transport_socket with TLS"
        block.found.refuse(
            block.path, "has auto_config, which asks by ALPN, and speaks plain text", hint, about_key=True
        )
    return found


def _matches(block: Block, known: Mapping[str, Secret]) -> tuple[SocketMatch, ...]:
    found: list[SocketMatch] = []
    for each in block.blocks("transport_socket_matches"):
        name = each.text("name", needed=True)
        wanted = each.raw("match")
        if wanted is not None and not isinstance(wanted, Mapping):
            each.refuse("match", "must be a block: what an endpoint's metadata must hold")
            wanted = None
        if not each.has("transport_socket"):
            each.found.refuse(each.at("transport_socket"), "is needed", about_key=True)
        found.append(SocketMatch(name, wanted or {}, tls_of(each.block("transport_socket"), known)))
        each.done()
    return tuple(found)


def _old(block: Block, found: Upstream) -> Upstream:
    """The fields of a cluster itself, as they were before HttpProtocolOptions."""
    common, first, second = (
        block.block(name)
        for name in ("common_http_protocol_options", "http_protocol_options", "http2_protocol_options")
    )
    names = block.block("upstream_http_protocol_options")
    found = found if common is None else _common(common, found)
    found = found if names is None else _names(names, found)
    found = found if first is None else _first(first, found)
    if second is not None:
        found = replace(found, protocol="HTTP2", http2=http2(second))
    if block.word("protocol_selection", _SELECTIONS, _SELECTIONS[0]) == "USE_DOWNSTREAM_PROTOCOL":
        found = replace(found, protocol="DOWNSTREAM")
    return found


def _options(block: Block, found: Upstream) -> Upstream:
    """An HttpProtocolOptions."""
    if block.text("@type") != _TYPE:
        block.found.refuse(block.at("@type"), f"must be {_TYPE}", about_key=not block.has("@type"))
    kind = block.one_of(_KINDS)
    common, names = block.block("common_http_protocol_options"), block.block("upstream_http_protocol_options")
    found = found if common is None else _common(common, found)
    found = found if names is None else _names(names, found)
    inner = {name: block.block(name) for name in _KINDS}
    own = inner.get(kind or "")
    if kind is None or own is None:
        block.found.refuse(block.path, f"must have one of {', '.join(_KINDS)}", about_key=True)
    else:
        found = _by_kind(kind, own, found)
    block.unsupported(
        {
            "http_filters": "there is no filter chain here", "header_validation_config": "",
            "outlier_detection": "which answers are errors is not to be chosen here", "request_mirror_policies": "",
            "hash_policy": "write it at the route", "retry_policy": "write it at the route",
        }
    )  # fmt: skip
    block.done()
    return found


def _by_kind(kind: str, own: Block, found: Upstream) -> Upstream:
    if kind == "explicit_http_config" and own.one_of(_VERSIONS) is None:
        own.found.refuse(own.path, f"must have one of {', '.join(_VERSIONS[:2])}", about_key=True)
    first, second = own.block("http_protocol_options"), own.block("http2_protocol_options")
    if kind != "explicit_http_config":
        found = replace(found, protocol="AUTO" if kind == "auto_config" else "DOWNSTREAM")
    elif second is not None:
        found = replace(found, protocol="HTTP2")
    if first is not None:
        found = _first(first, found)
    if second is not None:
        found = replace(found, http2=http2(second))
    own.unsupported({"http3_protocol_options": "HTTP/3 is not spoken here", "alternate_protocols_cache_options": ""})
    own.done()
    return found


def _common(block: Block, found: Upstream) -> Upstream:
    found = replace(
        found,
        idle_timeout=block.seconds("idle_timeout", 3600.0, least=0),
        max_connection_duration=block.seconds("max_connection_duration", 0.0, least=0),
        max_stream_duration=block.seconds("max_stream_duration", 0.0, least=0),
        max_headers=block.whole("max_headers_count", 100, least=1),
        max_response_headers_kib=block.whole("max_response_headers_kb", 60, least=1, most=8_192),
        max_requests_per_connection=block.whole("max_requests_per_connection", found.max_requests_per_connection),
    )
    if block.word("headers_with_underscores_action", _UNDERSCORES, "ALLOW") != "ALLOW":
        block.refuse("headers_with_underscores_action", "is a listener's", "write it at the connection manager")
    block.done()
    return found


def _names(block: Block, found: Upstream) -> Upstream:
    """`auto_sni` and `auto_san_validation`: without TLS they have no effect."""
    auto_sni, auto_san = block.flag("auto_sni"), block.flag("auto_san_validation")
    block.unsupported({"override_auto_sni_header": "SNI is the authority"})
    block.done()

    def automatic(tls: UpstreamTls | None) -> UpstreamTls | None:
        return None if tls is None else replace(tls, auto_sni=auto_sni, auto_san=auto_san or tls.auto_san)

    by_match = tuple(each._replace(tls=automatic(each.tls)) for each in found.by_match)
    return replace(found, tls=automatic(found.tls), by_match=by_match)


def _first(block: Block, found: Upstream) -> Upstream:
    """Http1ProtocolOptions towards endpoints."""
    found = replace(found, accept_http_10=block.flag("accept_http_10"), enable_trailers=block.flag("enable_trailers"))
    block.aside("allow_absolute_url", "default_host_for_http_10", "use_balsa_parser", "allow_chunked_length")
    block.aside("override_stream_error_on_invalid_http_message")
    block.unsupported(
        {
            "header_key_format": "names go to endpoints in lower case", "send_fully_qualified_url": "",
            "allow_custom_methods": "", "ignore_http_11_upgrade": "",
        }
    )  # fmt: skip
    block.done()
    return found


def _keepalive(block: Block | None) -> tuple[int, int, int] | None:
    if block is None:
        return None
    inner = block.block("tcp_keepalive")
    block.noticed("set_local_interface_name_on_upstream_connections", "happy_eyeballs_config")
    block.done()
    if inner is None:
        return None
    found = tuple(inner.whole(name) for name in ("keepalive_probes", "keepalive_time", "keepalive_interval"))
    inner.done()
    return found[0], found[1], found[2]
