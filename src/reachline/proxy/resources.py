"""Resources that do not stand in the bootstrap, as this proxy takes them: of a file, all of one kind; by ADS, what it can do."""

from __future__ import annotations

from collections.abc import Callable

from reachline.discovery import chained
from reachline.doors.envoy.chain import Listener, Upstream
from reachline.doors.envoy.resources import CDS, LDS, RDS, read
from reachline.doors.envoy.routes import RouteConfig
from reachline.doors.envoy.values import Cluster
from reachline.proxy.refusing import of_resource
from reachline.wire.ads import Parcel, Parsed

__all__ = ["clusters", "listeners", "parsers", "routes"]


def clusters(text: str, name: str) -> dict[str, tuple[Cluster, Upstream]]:
    """The clusters of a document, by name; ConfigError with all that is wrong. `name` is the file's in places."""
    found = read(text, name=name, kinds=(CDS,))
    return {key: (each, found.upstreams[key]) for key, each in found.clusters.items()}


def listeners(text: str, name: str) -> dict[str, Listener]:
    """The listeners of a document, by name."""
    return dict(read(text, name=name, kinds=(LDS,)).listeners)


def routes(text: str, name: str) -> dict[str, RouteConfig]:
    """The route configurations of a document, by name."""
    return dict(read(text, name=name, kinds=(RDS,)).routes)


def parsers() -> dict[str, Callable[[Parcel], Parsed]]:
    """What reads resources as control planes send them, by type URL. ImportError where the extra `xds` is missing."""

    def able(parse: Callable[[Parcel], Parsed]) -> Callable[[Parcel], Parsed]:
        def parsed(parcel: Parcel) -> Parsed:
            found = parse(parcel)
            if found.error:
                return found
            not_done = "; ".join(map(str, of_resource(found.value, found.name)))
            return found._replace(value=None, error=not_done) if not_done else found

        return parsed

    return {kind: able(parse) for kind, parse in chained.parsers().items()}
