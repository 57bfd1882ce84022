"""Where resources come from that do not stand in the document: files and ADS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reachline.doors.envoy.chain import Ads, Node, Source
from reachline.doors.envoy.fields import Block
from reachline.model import Locality

__all__ = ["ads", "node", "source"]

_KINDS: Final = ("path", "path_config_source", "api_config_source", "ads", "self")
_VERSIONS: Final = ("AUTO", "V2", "V3")
_APIS: Final = ("DEPRECATED_AND_UNAVAILABLE_DO_NOT_USE", "REST", "GRPC", "DELTA_GRPC", "AGGREGATED_GRPC", "AGGREGATED_DELTA_GRPC")  # fmt: skip


def source(block: Block | None) -> Source | None:
    """A ConfigSource; None where there is none, or it is refused."""
    if block is None:
        return None
    kind = block.one_of(_KINDS)
    path, by_path, by_ads = block.text("path"), block.block("path_config_source"), block.block("ads")
    watched = ""
    if by_path is not None:
        path = by_path.text("path", needed=True)
        directory = by_path.block("watched_directory")
        watched = "" if directory is None else directory.text("path", needed=True)
        if directory is not None:
            directory.done()
        by_path.done()
    if by_ads is not None:
        by_ads.done()
    block.unsupported(
        {"api_config_source": "use ads, with ads_config", "self": "use ads", "authorities": "names are plain here"}
    )
    timeout = block.seconds("initial_fetch_timeout", 15.0, least=0)
    if block.word("resource_api_version", _VERSIONS, "AUTO") == "V2":
        block.refuse("resource_api_version", "is no version that is spoken today", "V3")
    block.done()
    if kind is None:
        block.found.refuse(block.path, "must have ads or path_config_source", about_key=True)
        return None
    if kind == "path" and not path:
        block.refuse("path", "must not be empty")
    return None if kind in ("api_config_source", "self") else Source(path, timeout, watched)


def ads(block: Block | None) -> Ads | None:
    """`ads_config`."""
    if block is None:
        return None
    api = block.word("api_type", _APIS, _APIS[0])
    version = block.word("transport_api_version", _VERSIONS, "AUTO")
    if api not in ("GRPC", "DELTA_GRPC"):
        block.found.refuse(block.at("api_type"), "must be GRPC or DELTA_GRPC", about_key=not block.has("api_type"))
    if version != "V3":
        block.found.refuse(block.at("transport_api_version"), "must be V3", about_key=not block.has("transport_api_version"))  # fmt: skip
    services = block.blocks("grpc_services")
    once = block.flag("set_node_on_first_message_only")
    block.noticed("rate_limit_settings", "request_timeout", "refresh_delay", why="requests are few")
    block.unsupported({"cluster_names": "write grpc_services", "config_validators": ""})
    block.done()
    if len(services) != 1:
        for each in services:
            each.aside("envoy_grpc", "google_grpc", "timeout", "initial_metadata", "retry_policy")
        block.found.refuse(block.at("grpc_services"), "must be one service", about_key=True)
        return None
    return _service(services[0], delta=api == "DELTA_GRPC", once=once)


def _service(block: Block, *, delta: bool, once: bool) -> Ads:
    kind = block.one_of(("envoy_grpc", "google_grpc"))
    own = block.block("envoy_grpc")
    cluster = authority = ""
    if own is not None:
        cluster, authority = own.text("cluster_name", needed=True), own.text("authority")
        own.noticed("retry_policy", "max_receive_message_length", "skip_envoy_headers")
        own.done()
    elif kind is None:
        block.found.refuse(block.path, "must have envoy_grpc", about_key=True)
    metadata = []
    for each in block.blocks("initial_metadata"):
        metadata.append((each.text("key", needed=True).lower(), each.text("value")))
        each.unsupported({"raw_value": "use value"})
        each.done()
    block.noticed("timeout", "retry_policy", why="a stream is opened anew until it holds")
    block.unsupported({"google_grpc": "use envoy_grpc, with a cluster"})
    block.done()
    return Ads(cluster=cluster, delta=delta, authority=authority, metadata=tuple(metadata), set_node_once=once)


def node(block: Block | None) -> Node:
    """Who this process says that it is."""
    if block is None:
        return Node()
    where = block.block("locality")
    locality = Locality()
    if where is not None:
        locality = Locality(region=where.text("region"), zone=where.text("zone"), sub_zone=where.text("sub_zone"))
        where.done()
    metadata = block.raw("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        block.refuse("metadata", "must be a block of fields")
        metadata = None
    found = Node(id=block.text("id"), cluster=block.text("cluster"), locality=locality, metadata=dict(metadata or {}))
    block.aside(
        "dynamic_parameters", "user_agent_name", "user_agent_version", "user_agent_build_version", "extensions",
        "client_features", "listening_addresses",
    )  # fmt: skip
    block.done()
    return found
