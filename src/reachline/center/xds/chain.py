"""What leads to clusters, as values: clusters themselves, listeners and routes, by the dialect of their clients. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from reachline.center.xds.layout import Layout
from reachline.center.xds.resources import Kind
from reachline.doors.effective import effective
from reachline.doors.listening import SECURED, Listen, address_of, is_http, is_http2
from reachline.doors.settings import Document
from reachline.model import Seconds
from reachline.wire.xds_rendering import Api, Entrance, Retry, Route, Secured, Upstream

__all__ = ["Chain", "Form", "Hosts", "chained", "faults", "forms"]

_ANY: Final = "*"
_UNREACHED: Final = ("connect-failure", "refused-stream", "reset-before-request")
"""No service has seen the call: it may be made again, whatever its method."""
Hosts = tuple[tuple[str, tuple[Route, ...]], ...]
"""By host name (`*`: any other), the routes in the order they are tried."""


class Form(NamedTuple):
    """What the document says of a cluster to data planes."""

    connect_timeout: Seconds
    ca: str = ""
    verifies: bool = True
    listens: tuple[Listen, ...] = ()


class Chain(NamedTuple):
    """Everything but endpoints, each by its name."""

    upstreams: Mapping[str, Upstream] = {}
    entrances: Mapping[str, Entrance | Api] = {}
    routes: Mapping[str, Hosts] = {}


def forms(document: Document) -> dict[str, Form]:
    """Of every cluster, by name."""
    found = {}
    for name, cluster in document.clusters.items():
        xds = effective(document, name).settings.xds
        found[name] = Form(xds.connect_timeout, xds.ca, xds.verify, cluster.listen)
    return found


def chained(kind: Kind, offered: Mapping[str, tuple[Form, Layout]], *, logs_access: bool = False) -> Chain:
    """What leads clients of one kind to these clusters. `logs_access`: proxies tell each call to the center."""
    upstreams = {name: _upstream(name, *each, kind) for name, each in offered.items()}
    if kind is Kind.GRPC:
        apis = {name: Api(name) for name in offered}
        return Chain(upstreams, apis, {name: ((_ANY, (Route(name),)),) for name in offered})
    entrances: dict[str, Entrance | Api] = {}
    tables: dict[str, dict[str, list[Route]]] = {}
    for name, (form, layout) in offered.items():
        for listen in form.listens:
            is_plain = not is_http(layout.schemes, listen.protocol)
            to = name if is_plain else ""
            entrances[listen.at] = Entrance(listen.at, address_of(listen.at), to, logs_access)
            if not is_plain:
                route = _route(name, listen, layout)
                for host in listen.hosts or (_ANY,):
                    tables.setdefault(listen.at, {}).setdefault(host, []).append(route)
    return Chain(upstreams, entrances, {at: _ordered(table) for at, table in tables.items()})


def _upstream(name: str, form: Form, layout: Layout, kind: Kind) -> Upstream:
    secured = None
    # A gRPC client's channel has its own credentials; those of Envoy's kind would make it refuse the cluster.
    if kind is not Kind.GRPC and not layout.schemes.isdisjoint(SECURED):
        hosts = sorted({spot.hostname for spot in layout.spots if spot.is_secured})
        secured = Secured(tuple(hosts), form.ca, form.verifies, is_http2(layout.schemes))
    is_retried = kind is not Kind.GRPC and any(
        is_http(layout.schemes, listen.protocol) and listen.retries.most for listen in form.listens
    )
    return Upstream(
        name,
        form.connect_timeout,
        is_http2(layout.schemes),
        secured,
        reports_load=kind is Kind.GRPC,
        is_retried=is_retried,
    )


def _route(name: str, listen: Listen, layout: Layout) -> Route:
    timeout = listen.timeout
    if timeout is None and (listen.websocket or is_http2(layout.schemes)):
        timeout = 0.0
    most, also = listen.retries.most, listen.retries.also
    retry = Retry(most, (*_UNREACHED, *also)) if most else None
    return Route(name, listen.prefix, timeout, listen.rewrite_host, retry, listen.websocket)


def _ordered(table: Mapping[str, Iterable[Route]]) -> Hosts:
    """Hosts by name, the longest prefix first; what a host does not say is said by those without one."""
    rest = list(table.get(_ANY, ()))
    hosts = {host: [*routes, *(rest if host != _ANY else ())] for host, routes in table.items()}
    return tuple((host, tuple(_by_length(routes))) for host, routes in sorted(hosts.items()))


def _by_length(routes: Iterable[Route]) -> Iterator[Route]:
    seen = set()
    for route in sorted(routes, key=lambda route: -len(route.prefix)):  # a host's own stay before those of any host
        if route.prefix not in seen:
            seen.add(route.prefix)
            yield route


def faults(chain: Chain, assigned: Iterable[str]) -> Iterator[str]:
    """Every reference to what is not there: it would be refused, or fail calls."""
    assignments = frozenset(assigned)
    for name in chain.upstreams.keys() ^ assignments:
        yield f"cluster {name} has no assignment" if name in chain.upstreams else f"assignment {name} is of no cluster"
    for name, entrance in chain.entrances.items():
        is_routed = isinstance(entrance, Api) or not entrance.cluster
        if is_routed and name not in chain.routes:
            yield f"listener {name} has no routes"
        if isinstance(entrance, Entrance) and entrance.cluster and entrance.cluster not in chain.upstreams:
            yield f"listener {name} leads to {entrance.cluster}, which is no cluster"
    for name, hosts in chain.routes.items():
        for route in (route for _, routes in hosts for route in routes):
            if route.cluster not in chain.upstreams:
                yield f"routes {name} lead to {route.cluster}, which is no cluster"
