"""A whole bootstrap: clusters and everything that leads to them. Text or plain values to a `Chain`, all errors at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from reachline.doors.envoy.bootstrap import ASIDE, examined, managed, runtime
from reachline.doors.envoy.chain import Admin, Ads, Chain, HttpManager, Listener, RouteSource, Source, Upstream
from reachline.doors.envoy.cluster import cluster
from reachline.doors.envoy.fields import VARIABLE, Block
from reachline.doors.envoy.listening import bound, listener
from reachline.doors.envoy.logs import access_logs
from reachline.doors.envoy.routes import RouteConfig
from reachline.doors.envoy.securing import Secret, secrets
from reachline.doors.envoy.sources import ads, node, source
from reachline.doors.envoy.speaking import upstream as upstream_of
from reachline.doors.envoy.values import Cluster, Settings, Type
from reachline.doors.envoy.vhosts import clusters_of
from reachline.doors.findings import Findings
from reachline.doors.origin import Path

__all__ = ["read"]

R = TypeVar("R", RouteConfig, RouteSource)

_READ: Final = ("node", "admin")
_VARIABLES_MOST: Final = 16
"""Unfilled variables that are told one by one: a document that was not filled in has more."""
_DEEPEST: Final = 40


def read(document: str | Mapping[str, object], *, name: str = "envoy") -> Chain:
    """The chain of a bootstrap: YAML or JSON text, or its plain values; `name` is the file's name in places.

    ConfigError holds every problem found, in the document's order: what Envoy refuses, and what is not supported here.
    """
    chain, notices = examined(document, name, _chain)
    return replace(chain, notices=notices)


def _chain(value: object, found: Findings) -> Chain:
    if not isinstance(value, Mapping):
        rule = "is empty: a bootstrap is static_resources, dynamic_resources, node, admin"
        found.refuse((), rule if value is None else "must be a bootstrap, a block of fields", about_key=True)
        return Chain()
    root = Block(value, (), found)
    static, dynamic = root.block("static_resources"), root.block("dynamic_resources")
    known = {} if static is None else secrets(static.blocks("secrets"))
    clusters, upstreams = _clusters(() if static is None else static.blocks("clusters"), known)
    listeners = _listeners(() if static is None else static.blocks("listeners"), known)
    if static is not None:
        static.done()
    lds, cds, stream = _dynamic(dynamic)
    manager = root.block("cluster_manager")
    local, log = managed(manager)
    if local and local not in clusters and manager is not None:
        manager.refuse("local_cluster_name", "names no cluster of static_resources")
    runtime(root.block("layered_runtime"), frozenset(_keys(_but_runtime(value))))
    chain = Chain(
        settings=Settings(clusters=clusters, local_cluster=local, outlier_log=log),
        upstreams=upstreams,
        listeners=tuple(each for _, each in listeners),
        admin=_admin(root.block("admin")),
        node=node(root.block("node")),
        lds=lds,
        cds=cds,
        ads=stream,
    )
    root.aside(*(each for each in ASIDE if each not in _READ))
    root.done()
    _check(chain, listeners, found)
    _variables(value, found)
    return chain


def _clusters(blocks: Sequence[Block], known: Mapping[str, Secret]) -> tuple[dict[str, Cluster], dict[str, Upstream]]:
    found: dict[str, Cluster] = {}
    upstreams: dict[str, Upstream] = {}
    for block in blocks:
        how, each = upstream_of(block, known), cluster(block, is_whole=True)
        if each is not None and each.name in found:
            block.refuse("name", "stands here a second time", "each cluster has a name of its own")
        elif each is not None:
            found[each.name], upstreams[each.name] = each, how
    return found, upstreams


def _listeners(blocks: Sequence[Block], known: Mapping[str, Secret]) -> list[tuple[Path, Listener]]:
    found: list[tuple[Path, Listener]] = []
    names: set[str] = set()
    addresses: dict[object, str] = {}
    for block in blocks:
        each = listener(block, known)
        if each is None:
            continue
        if each.name and each.name in names:
            block.refuse("name", "stands here a second time", "each listener has a name of its own")
        names.add(each.name)
        for address in (each.address, *each.more_addresses) if each.bind else ():
            if address.port and address in addresses:
                block.refuse("address", f"is that of the listener {addresses[address] or 'before it'}")
            addresses[address] = each.name
        found.append((block.path, each))
    return found


def _dynamic(block: Block | None) -> tuple[Source | None, Source | None, Ads | None]:
    if block is None:
        return None, None, None
    stream = ads(block.block("ads_config"))
    lds, cds = source(block.block("lds_config")), source(block.block("cds_config"))
    block.unsupported({"lds_resources_locator": "use lds_config", "cds_resources_locator": "use cds_config"})
    block.done()
    return lds, cds, stream


def _admin(block: Block | None) -> Admin | None:
    if block is None:
        return None
    address = bound(block) if block.has("address") else None
    logs = access_logs(block)
    block.noticed("access_log_path", why="write access_log")
    block.aside("profile_path", "ignore_global_conn_limit")
    block.unsupported({"socket_options": "", "allow_paths": ""})
    block.done()
    return None if address is None else Admin(address=address, access_logs=logs)


def _check(chain: Chain, listeners: Sequence[tuple[Path, Listener]], found: Findings) -> None:
    """That what is named is there."""
    stream = chain.ads
    if stream is not None and stream.cluster and stream.cluster not in chain.settings.clusters:
        found.refuse(
            ("dynamic_resources", "ads_config"),
            f"names the cluster {stream.cluster}, which static_resources does not have",
            about_key=True,
        )
    if (stream is not None or _sources(chain)) and not (chain.node.id and chain.node.cluster):
        found.refuse(("node",), "must have id and cluster: something here comes from elsewhere", about_key=True)
    if stream is None and _needs_ads(chain):
        found.refuse(("dynamic_resources",), "must have ads_config: something here comes by ads", about_key=True)
    for path, each in listeners:
        for place in (*each.chains, *(() if each.default is None else (each.default,))):
            handler = place.handler
            if not isinstance(handler, HttpManager) or isinstance(handler.routes, RouteSource):
                continue
            missing = (
                clusters_of(handler.routes) - set(chain.settings.clusters) if handler.routes.validate_clusters else ()
            )
            for name in sorted(missing):
                found.refuse(
                    path, f"routes to the cluster {name}, which static_resources does not have", about_key=True
                )


def _sources(chain: Chain) -> list[Source]:
    """Of all that comes from elsewhere, but endpoints."""
    found = (chain.lds, chain.cds, *(one.source for each in chain.listeners for one in _routes(each, RouteSource)))
    return [each for each in found if each is not None]


def _needs_ads(chain: Chain) -> bool:
    by_eds = any(
        each.type is Type.EDS and each.eds is not None and not each.eds.path
        for each in chain.settings.clusters.values()
    )
    return by_eds or any(not each.path for each in _sources(chain))


def _routes(listener: Listener, kind: type[R]) -> Iterator[R]:
    """Of its managers, those that are of this kind."""
    for chain in (*listener.chains, listener.default):
        if chain is not None and isinstance(chain.handler, HttpManager) and isinstance(chain.handler.routes, kind):
            yield chain.handler.routes


def _but_runtime(value: Mapping[str, object]) -> object:
    """What may name runtime keys: all but the runtime itself."""
    return [each for name, each in value.items() if name not in ("layered_runtime", "layeredRuntime")]


def _keys(value: object, depth: int = 0) -> Iterator[str]:
    """Runtime keys that a document names; shares of clusters are named by a beginning and the cluster."""
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name in ("runtime_key", "runtimeKey") and isinstance(inner, str):
                yield inner
            elif name in ("runtime_key_prefix", "runtimeKeyPrefix") and isinstance(inner, str):
                clusters = value.get("clusters")
                items = clusters if isinstance(clusters, Sequence) else (clusters,)
                yield from (f"{inner}.{each.get('name')}" for each in items if isinstance(each, Mapping))
            else:
                yield from _keys(inner, depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _keys(inner, depth + 1)


def _variables(value: object, found: Findings) -> None:
    """Texts with `${NAME}` in them, which nothing fills in."""
    for count, (path, name) in enumerate(_unfilled(value, ())):
        if count == _VARIABLES_MOST:
            break
        found.notice(path, f"holds {name}, and nothing fills it in here", "run the document through envsubst first")


def _unfilled(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        variable = VARIABLE.search(value)
        if variable is not None:
            yield path, variable[0]
    elif len(path) > _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _unfilled(inner, (*path, str(key)))
    elif isinstance(value, Sequence):
        for at, inner in enumerate(value):
            yield from _unfilled(inner, (*path, at))
