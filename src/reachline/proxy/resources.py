"""Documents of resources, as control planes send them, in a file: listeners, clusters, route configurations. Text to values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from reachline.doors.envoy.bootstrap import examined
from reachline.doors.envoy.chain import Listener, Upstream
from reachline.doors.envoy.cluster import cluster
from reachline.doors.envoy.fields import Block, Findings
from reachline.doors.envoy.listening import listener
from reachline.doors.envoy.routes import RouteConfig
from reachline.doors.envoy.speaking import upstream
from reachline.doors.envoy.values import Cluster
from reachline.doors.envoy.vhosts import route_config
from reachline.wire.ads import CDS, LDS, RDS

__all__ = ["clusters", "listeners", "routes"]

T = TypeVar("T")

_ROOT: Final = "must be a DiscoveryResponse: version_info, resources"


def clusters(text: str, name: str) -> dict[str, tuple[Cluster, Upstream]]:
    """The clusters of a document, by name; ConfigError with all that is wrong. `name` is the file's in places."""

    def read(block: Block) -> tuple[str, tuple[Cluster, Upstream]] | None:
        how, found = upstream(block, {}), cluster(block, is_whole=True)
        return None if found is None else (found.name, (found, how))

    return _read(text, name, CDS, read)


def listeners(text: str, name: str) -> dict[str, Listener]:
    """The listeners of a document, by name."""

    def read(block: Block) -> tuple[str, Listener] | None:
        found = listener(block, {})
        if found is not None and not found.name:
            block.refuse("name", "is needed", "a listener without one cannot be changed")
        return None if found is None else (found.name, found)

    return _read(text, name, LDS, read)


def routes(text: str, name: str) -> dict[str, RouteConfig]:
    """The route configurations of a document, by name."""

    def read(block: Block) -> tuple[str, RouteConfig]:
        found = route_config(block, is_static=False)
        return found.name, found

    return _read(text, name, RDS, read)


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
