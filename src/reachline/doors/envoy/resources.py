"""Resources that do not stand in a bootstrap: listeners, route configurations and clusters, one by one or as a DiscoveryResponse.

What a bootstrap may hold they may hold, and by the same rules; but that a route's clusters exist is theirs to see who has both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from reachline.doors.envoy.bootstrap import examined
from reachline.doors.envoy.chain import Listener, Upstream
from reachline.doors.envoy.cluster import cluster
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.listening import listener
from reachline.doors.envoy.routes import RouteConfig
from reachline.doors.envoy.securing import Secret
from reachline.doors.envoy.speaking import upstream
from reachline.doors.envoy.values import Cluster
from reachline.doors.envoy.vhosts import route_config
from reachline.doors.findings import Findings
from reachline.errors import Problem

__all__ = ["CDS", "LDS", "RDS", "Resources", "read", "read_one"]

_TYPE: Final = "type.googleapis.com/envoy.config."
LDS: Final = f"{_TYPE}listener.v3.Listener"
RDS: Final = f"{_TYPE}route.v3.RouteConfiguration"
CDS: Final = f"{_TYPE}cluster.v3.Cluster"
_ENVELOPE: Final = "type.googleapis.com/envoy.service.discovery.v3.Resource"
_NONE: Final[Mapping[str, Secret]] = {}
Resource = Listener | RouteConfig | tuple[Cluster, Upstream]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """By name, in the document's order."""

    listeners: Mapping[str, Listener] = field(default_factory=dict)
    routes: Mapping[str, RouteConfig] = field(default_factory=dict)
    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)
    version: str = ""
    notices: tuple[Problem, ...] = ()


def read(
    document: str | Mapping[str, object] | Sequence[object],
    *,
    name: str = "xds",
    secrets: Mapping[str, Secret] = _NONE,
    kinds: Sequence[str] = (LDS, RDS, CDS),
) -> Resources:
    """A DiscoveryResponse, or a list of resources, each with its `@type`, of these kinds; ConfigError with every problem found."""

    def make(value: object, found: Findings) -> Resources:
        return _resources(value, found, secrets, kinds)

    made, notices = examined(document, name, make)
    return replace(made, notices=notices)


def read_one(
    document: Mapping[str, object], *, name: str = "xds", secrets: Mapping[str, Secret] = _NONE
) -> tuple[Resource, tuple[Problem, ...]]:
    """One resource with its `@type`, and the notices; ConfigError with every problem found."""

    def make(value: object, found: Findings) -> Resource:
        one = _resource(Block(value, (), found), secrets)
        return RouteConfig() if one is None else one

    return examined(document, name, make)


def _resources(value: object, found: Findings, secrets: Mapping[str, Secret], kinds: Sequence[str]) -> Resources:
    if isinstance(value, Sequence) and not isinstance(value, str):
        blocks, version = tuple(Block(each, (at,), found) for at, each in enumerate(value)), ""
    else:
        root = Block(value, (), found)
        blocks, version = root.blocks("resources"), root.text("version_info")
        root.aside("@type", "type_url", "nonce", "control_plane", "canary", "resource_errors")
        root.done()
    listeners: dict[str, Listener] = {}
    routes: dict[str, RouteConfig] = {}
    clusters: dict[str, tuple[Cluster, Upstream]] = {}
    for block in blocks:
        match _resource(block, secrets, kinds):
            case Listener() as one:
                _put(listeners, one.name, one, block)
            case RouteConfig() as config:
                _put(routes, config.name, config, block)
            case (Cluster() as each, Upstream() as how):
                _put(clusters, each.name, (each, how), block)
            case None:
                pass
    return Resources(
        listeners=listeners,
        routes=routes,
        clusters={name: each for name, (each, _) in clusters.items()},
        upstreams={name: how for name, (_, how) in clusters.items()},
        version=version,
    )


def _put(into: dict[str, T], name: str, value: T, block: Block) -> None:
    if not name:
        block.found.refuse(block.at("name"), "is needed and must not be empty", about_key=not block.has("name"))
    elif name in into:
        block.refuse("name", "stands here a second time")
    into[name] = value


def _resource(block: Block, secrets: Mapping[str, Secret], kinds: Sequence[str] = (LDS, RDS, CDS)) -> Resource | None:
    """One of them; None where it is none, which is told."""
    kind = block.text("@type", needed=True)
    if kind == _ENVELOPE:
        inner = block.block("resource")
        block.aside("name", "version", "aliases", "ttl", "cache_control", "resource_name", "metadata")
        block.done()
        if inner is not None and inner.text("@type") != _ENVELOPE:
            return _resource(inner, secrets, kinds)
        block.found.refuse(block.at("resource"), "is needed", about_key=True)
        return None
    if kind in kinds:
        return _READERS[kind](block, secrets)
    if kind:
        block.refuse("@type", "is no resource that is read here", f"what is read: {', '.join(kinds)}")
    return None


def _routes(block: Block, secrets: Mapping[str, Secret]) -> RouteConfig:
    del secrets
    return route_config(block, is_static=False)


def _cluster(block: Block, secrets: Mapping[str, Secret]) -> tuple[Cluster, Upstream] | None:
    how, found = upstream(block, secrets), cluster(block, is_whole=True)
    return None if found is None else (found, how)


_READERS: Final[Mapping[str, Callable[[Block, Mapping[str, Secret]], Resource | None]]] = {
    LDS: listener, RDS: _routes, CDS: _cluster,
}  # fmt: skip
