"""Where a request goes, as Envoy decides it: virtual host, first route that fits, cluster, and what is changed on the way.

table = routes(config)
decision = decide(table, Request(authority="shop.example", path="/cart"), chance=rng.getrandbits(64))

Pure: chance is an argument. Knows no endpoints: who of a cluster gets the request is its picker's choice, by `Sent.hash`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reachline.core.pick.keying import Asked, HashPolicy, key_of
from reachline.doors.envoy.asked import Request
from reachline.doors.envoy.domains import Domains, domains, host_for
from reachline.doors.envoy.fitting import misfit, value_of
from reachline.doors.envoy.resolving import Times, retry_of, times
from reachline.doors.envoy.rewriting import authority_of, location, path_of
from reachline.doors.envoy.routes import (
    DirectResponse,
    Forward,
    HostRewrite,
    Mutations,
    PathKind,
    PathMatch,
    Redirect,
    RetryPolicy,
    Route,
    RouteConfig,
    VirtualHost,
    WeightedCluster,
)

__all__ = ["Answered", "Decision", "Missing", "Redirected", "Routes", "Sent", "decide", "hashed", "routes", "shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """A configuration ready to decide by."""

    config: RouteConfig
    domains: Domains
    respect_expected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The request goes to a cluster. Whether there is one of that name is the caller's to see: else `action.not_found`."""

    host: VirtualHost
    route: Route
    action: Forward
    cluster: str
    """Empty: the header that names it is not there."""
    path: str
    """With its query, rewritten."""
    is_rewritten: bool
    """Whether the route rewrites paths, also where nothing came of it: x-envoy-original-path says what it was."""
    authority: str | None
    """In place of the request's, which x-envoy-original-host then says; None: it stays."""
    auto_host: bool
    """Whether it is the picked endpoint's hostname, where that has one."""
    mutations: tuple[Mutations, ...]
    """In the order in which they are made."""
    metadata_match: Mapping[str, str]
    times: Times
    retry: RetryPolicy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirected:
    """The request is answered by `status` with `location`."""

    status: int
    location: str
    host: VirtualHost
    route: Route | None = None
    """None: the virtual host wants TLS."""
    mutations: tuple[Mutations, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The request is answered by the route itself."""

    answer: DirectResponse
    host: VirtualHost
    route: Route
    mutations: tuple[Mutations, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """There is no virtual host (None), or none of its routes fits: 404; or the one that does is not to be taken: 503."""

    host: VirtualHost | None = None
    status: int = 404


Decision = Sent | Redirected | Answered | Missing
_NOWHERE: Final = Missing()
_ANY: Final = PathMatch(kind=PathKind.PREFIX, text="/")


def routes(config: RouteConfig, *, respect_expected: bool = False) -> Routes:
    """The table of a configuration: once for all requests. `respect_expected`: the router's `respect_expected_rq_timeout`."""
    return Routes(config=config, domains=domains(config), respect_expected=respect_expected)


def decide(table: Routes, request: Request, *, chance: int) -> Decision:
    """What becomes of a request. `chance`: 64 random bits; the same for fractions and shares, as in Envoy."""
    host = host_for(table.domains, request.authority)
    if host is None:
        return _NOWHERE
    if _wants_tls(host, request):
        action = Redirect(scheme="https")
        where = location(_ANY, action, request)
        return Redirected(status=301, location=where, host=host)
    ignore = table.config.ignore_path_parameters
    for route in host.routes:
        if misfit(route.match, request, chance, without_parameters=ignore) is None:
            return _taken(table, host, route, request, chance)
    return Missing(host=host)


def _wants_tls(host: VirtualHost, request: Request) -> bool:
    if host.require_tls == "NONE" or request.scheme == "https":
        return False
    return host.require_tls == "ALL" or not request.is_internal


def _taken(table: Routes, host: VirtualHost, route: Route, request: Request, chance: int) -> Decision:
    config = table.config
    match route.action:
        case None:
            return Missing(host=host, status=503)
        case DirectResponse() as answer:
            return Answered(answer=answer, host=host, route=route, mutations=_levels(config, host, route, None))
        case Redirect() as action:
            where = location(route.match.path, action, request)
            levels = _levels(config, host, route, None)
            return Redirected(status=action.status, location=where, host=host, route=route, mutations=levels)
        case Forward() as action:
            share = shared(action, request, chance) if action.weighted else None
            policy = retry_of(action, host, request)
            is_literal = share is not None and bool(share.host_rewrite)
            return Sent(
                host=host,
                route=route,
                action=action,
                cluster=_cluster(action, share, request),
                path=path_of(route.match.path, action, request.path),
                is_rewritten=bool(action.prefix_rewrite or action.regex_rewrite),
                authority=share.host_rewrite if share and is_literal else authority_of(action, request),
                auto_host=action.host_rewrite is HostRewrite.AUTO and not is_literal,
                mutations=_levels(config, host, route, share),
                metadata_match={**action.metadata_match, **(share.metadata_match if share else {})},
                times=times(action, policy, request, respect_expected=table.respect_expected),
                retry=policy,
            )


def _cluster(action: Forward, share: WeightedCluster | None, request: Request) -> str:
    if share is not None:
        return share.name
    return value_of(request, action.cluster_header) or "" if action.cluster_header else action.cluster


def shared(action: Forward, request: Request, chance: int) -> WeightedCluster:
    """The one of the weighted clusters whose turn it is."""
    total = sum(each.weight for each in action.weighted)
    drawn = chance
    if action.weighted_header:
        said = value_of(request, action.weighted_header)
        drawn = int(said) if said and said.isascii() and said.isdecimal() and len(said) < _DIGITS else chance
    elif action.weighted_by_hash:
        key = hashed(action.hash, request)
        drawn = chance if key is None else key
    left = drawn % total
    for each in action.weighted:
        if left < each.weight:
            return each
        left -= each.weight
    raise AssertionError("weights sum to their total")


_DIGITS: Final = 21
"""Of a number of 64 bits, and one."""


def hashed(policies: tuple[HashPolicy, ...], request: Request) -> int | None:
    """The key that keeps a request together with others; None: there is none."""
    return key_of(policies, Asked(headers=request.headers, path=request.path, source_ip=request.source_ip))


def _levels(
    config: RouteConfig, host: VirtualHost, route: Route, share: WeightedCluster | None
) -> tuple[Mutations, ...]:
    """Header changes from the most specific level to the least, or the reverse; levels without any are left out."""
    levels = (*((share.mutations,) if share else ()), route.mutations, host.mutations, config.mutations)
    kept = tuple(each for each in levels if each != _NONE)
    return tuple(reversed(kept)) if config.most_specific_wins else kept


_NONE: Final = Mutations()
