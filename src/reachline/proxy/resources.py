"""Documents of resources, as control planes send them, in a file or by ADS: listeners, clusters, route configurations. Text to values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from reachline.doors.envoy.bootstrap import examined
from reachline.doors.envoy.chain import Listener, Upstream
from reachline.doors.envoy.cluster import cluster
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.listening import listener
from reachline.doors.envoy.routes import RouteConfig
from reachline.doors.envoy.speaking import upstream
from reachline.doors.envoy.values import Cluster
from reachline.doors.envoy.vhosts import route_config
from reachline.doors.findings import Findings
from reachline.errors import ConfigError, RemoteProtocolError
from reachline.proxy.refusing import of_resource
from reachline.wire.ads import CDS, LDS, RDS, Parcel, Parsed

__all__ = ["clusters", "listeners", "parsers", "routes"]

T = TypeVar("T")

_ROOT: Final = "must be a DiscoveryResponse: version_info, resources"


def cluster_in(block: Block) -> tuple[str, tuple[Cluster, Upstream]] | None:
    """A cluster and how it is spoken to, by its name; what is wrong is left in the block's findings."""
    how, found = upstream(block, {}), cluster(block, is_whole=True)
    return None if found is None else (found.name, (found, how))


def listener_in(block: Block) -> tuple[str, Listener] | None:
    """A listener, by its name."""
    found = listener(block, {})
    if found is not None and not found.name:
        block.refuse("name", "is needed", "a listener without one cannot be changed")
    return None if found is None else (found.name, found)


def routes_in(block: Block) -> tuple[str, RouteConfig] | None:
    """A route configuration, by its name."""
    found = route_config(block, is_static=False)
    return found.name, found


def clusters(text: str, name: str) -> dict[str, tuple[Cluster, Upstream]]:
    """The clusters of a document, by name; ConfigError with all that is wrong. `name` is the file's in places."""
    return _read(text, name, CDS, cluster_in)


def listeners(text: str, name: str) -> dict[str, Listener]:
    """The listeners of a document, by name."""
    return _read(text, name, LDS, listener_in)


def routes(text: str, name: str) -> dict[str, RouteConfig]:
    """The route configurations of a document, by name."""
    return _read(text, name, RDS, routes_in)


def parsers() -> dict[str, Callable[[Parcel], Parsed]]:
    """What reads resources as control planes send them, by type URL. ImportError where the extra `xds` is missing."""
    from reachline.wire.plain import plain  # noqa: PLC0415  (protobuf, and only ADS needs it)

    def reading(read: Callable[[Block], tuple[str, object] | None]) -> Callable[[Parcel], Parsed]:
        def parse(parcel: Parcel) -> Parsed:
            try:
                given = plain(parcel.type_url, parcel.body)
            except RemoteProtocolError as error:
                return Parsed(parcel.name, error=str(error))
            del given["@type"]  # which is known already
            name = str(given.get("name", ""))
            try:
                made, _ = examined(given, name, lambda value, found: read(Block(value, (), found)))
            except ConfigError as error:
                return Parsed(name, error="; ".join(map(str, error.problems)))
            if made is None:
                return Parsed(name, error="is empty")
            if not_done := "; ".join(map(str, of_resource(made[1], name))):
                return Parsed(name, error=not_done)
            return Parsed(name, made[1])

        return parse

    return {CDS: reading(cluster_in), LDS: reading(listener_in), RDS: reading(routes_in)}


def _read(text: str, name: str, kind: str, read: Callable[[Block], tuple[str, T] | None]) -> dict[str, T]:
    def make(value: object, found: Findings) -> dict[str, T]:
        made: dict[str, T] = {}
        if not isinstance(value, Mapping):
            found.refuse((), _ROOT, about_key=True)
            return made
        root = Block(value, (), found)
        for block in root.blocks("resources"):
            said = block.text("@type", needed=True)
            if said and said != kind:
                block.refuse("@type", f"is not {kind}")
                continue
            each = read(block)
            if each is not None and each[0] in made:
                block.refuse("name", "stands here a second time", "each resource has a name of its own")
            elif each is not None:
                made[each[0]] = each[1]
        root.aside("version_info", "type_url", "nonce", "control_plane", "canary")
        root.done()
        return made

    return examined(text, name, make)[0]
