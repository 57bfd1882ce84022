"""Configurations by which an Envoy or a gRPC process follows a center, as plain data. Pure; standard library only."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from reachline.errors import ConfigError, Problem
from reachline.model import Locality

__all__ = ["Way", "envoy", "grpc", "locality_of", "split"]

_CENTER: Final = "_reachline"
"""The center's cluster; no cluster of a document can have a name that begins so (`wire.xds_rendering.CONTROL`)."""
_HTTP2: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_TLS: Final = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
_URL: Final = "type.googleapis.com/"
_PARTS: Final = ("region", "zone", "sub_zone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Who comes, and how the center is reached."""

    node: str
    center: str
    """host:port or unix:/path, its port for agents."""
    locality: Locality = Locality()
    token: str = ""
    tls: bool = False
    ca: str = ""
    """PEM file that signed the center's certificate, on the machine where the configuration is used; empty: its system's."""
    certificate: str = ""
    key: str = ""


def locality_of(text: str) -> Locality:
    """`zone`, `region/zone` or `region/zone/sub-zone`; ConfigError for anything else."""
    parts = text.split("/") if text else []
    if len(parts) > len(_PARTS) or (text and not all(parts)):
        raise _refused("--locality", text, "must be zone, region/zone or region/zone/sub-zone", "r1/az1")
    names = _PARTS[1:2] if len(parts) == 1 else _PARTS
    return Locality(**dict(zip(names, parts, strict=False)))


def split(address: str, option: str = "--center") -> tuple[str, int]:
    """Host and port; ConfigError where it is none."""
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or "@" in address or "/" in address:
        raise _refused(option, address, "must be host:port", "127.0.0.1:7600")
    return host, port


def _refused(option: str, value: str, rule: str, hint: str) -> ConfigError:
    return ConfigError(Problem(place="option", path=option, value=repr(value), rule=rule, hint=hint))


# Envoy.


def envoy(
    way: Way, *, admin: str = "", delta: bool = False, hds: bool = False, lrs: bool = False, als: bool = False
) -> dict[str, Any]:
    """A bootstrap: listeners and clusters from the center over one stream; `hds`, `lrs`, `als`: what it reports back."""
    node: dict[str, Any] = {"id": way.node, "cluster": "reachline"}
    if where := _where(way.locality):
        node["locality"] = where
    if als:
        # The center configures the access log, and puts no secret into what it tells: the token comes with the node.
        node["metadata"] = {"reachline": {"als": True} | ({"token": way.token} if way.token else {})}
    found: dict[str, Any] = {"node": node}
    if admin:
        found["admin"] = {"address": _socket(*split(admin, "--admin"))}
    found["dynamic_resources"] = {
        "ads_config": _source(way, "DELTA_GRPC" if delta else "GRPC", set_node_on_first_message_only=True),
        "lds_config": {"resource_api_version": "V3", "ads": {}},
        "cds_config": {"resource_api_version": "V3", "ads": {}},
    }
    if hds:
        found["hds_config"] = _source(way, "GRPC")
    if lrs:
        found["cluster_manager"] = {"load_stats_config": _source(way, "GRPC")}
    found["static_resources"] = {"clusters": [_center(way)]}
    return found


def _where(locality: Locality) -> dict[str, str]:
    return {part: value for part in _PARTS if (value := getattr(locality, part))}


def _socket(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def _source(way: Way, kind: str, **more: bool) -> dict[str, Any]:
    service: dict[str, Any] = {"envoy_grpc": {"cluster_name": _CENTER}}
    if way.token:
        service["initial_metadata"] = [{"key": "authorization", "value": f"Bearer {way.token}"}]
    return {"api_type": kind, "transport_api_version": "V3", **more, "grpc_services": [service]}


def _center(way: Way) -> dict[str, Any]:
    """The center as a cluster: HTTP/2, pinged, so that one that is gone without a word is noticed."""
    if way.center.startswith("unix:"):
        kind, address, host = "STATIC", {"pipe": {"path": way.center.removeprefix("unix:")}}, ""
    else:
        host, port = split(way.center)
        kind, address = "STATIC" if _is_address(host) else "STRICT_DNS", _socket(host, port)
    found: dict[str, Any] = {
        "name": _CENTER,
        "type": kind,
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            _HTTP2: {
                "@type": _URL + _HTTP2,
                "explicit_http_config": {
                    # The center's own pace with agents: both notice the other's end within ten seconds.
                    "http2_protocol_options": {"connection_keepalive": {"interval": "5s", "timeout": "5s"}}
                },
            }
        },
        "load_assignment": {
            "cluster_name": _CENTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
    if way.tls:
        found["transport_socket"] = _secured(way, host)
    return found


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _secured(way: Way, host: str) -> dict[str, Any]:
    is_address = _is_address(host)
    names = {"san_type": "IP_ADDRESS" if is_address else "DNS", "matcher": {"exact": host}}
    validation = {
        "trusted_ca": {"filename": way.ca or "/etc/ssl/certs/ca-certificates.crt"},
        "match_typed_subject_alt_names": [names],
    }
    context: dict[str, Any] = {"alpn_protocols": ["h2"], "validation_context": validation}
    if way.certificate:
        shown = {"certificate_chain": {"filename": way.certificate}, "private_key": {"filename": way.key}}
        context["tls_certificates"] = [shown]
    config: dict[str, Any] = {"@type": _URL + _TLS, "common_tls_context": context}
    if not is_address:
        config["sni"] = host
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}


# gRPC.


def grpc(way: Way) -> dict[str, Any]:
    """What `GRPC_XDS_BOOTSTRAP` names. A token goes with the node: gRPC sends no metadata of ours on this stream."""
    node: dict[str, Any] = {"id": way.node, "cluster": "reachline"}
    if where := _where(way.locality):
        node["locality"] = where
    if way.token:
        node["metadata"] = {"reachline": {"token": way.token}}
    server = {
        "server_uri": way.center if way.center.startswith("unix:") else "{}:{}".format(*_bracketed(way.center)),
        "channel_creds": [_credentials(way)],
        "server_features": ["xds_v3"],
    }
    return {"xds_servers": [server], "node": node}


def _bracketed(center: str) -> tuple[str, int]:
    host, port = split(center)
    return f"[{host}]" if ":" in host else host, port


def _credentials(way: Way) -> dict[str, Any]:
    if not way.tls:
        return {"type": "insecure"}
    files = {
        "ca_certificate_file": way.ca,
        "certificate_file": way.certificate,
        "private_key_file": way.key,
    }
    config = {name: value for name, value in files.items() if value}
    return {"type": "tls", **({"config": config} if config else {})}
