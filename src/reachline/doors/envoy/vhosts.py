"""A route configuration, its virtual hosts and their routes, each field read, left aside or refused by name."""

from __future__ import annotations

from typing import Final

from reachline.doors.envoy.actions import direct, forward, redirect
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.matches import match
from reachline.doors.envoy.mutating import mutations
from reachline.doors.envoy.retries import retry
from reachline.doors.envoy.routes import DirectResponse, Forward, Redirect, Route, RouteConfig, VirtualHost

__all__ = ["clusters_of", "route_config"]

_ACTIONS: Final = ("route", "redirect", "direct_response", "filter_action", "non_forwarding_action")
_TLS: Final = ("NONE", "EXTERNAL_ONLY", "ALL")
_BODY_MOST: Final = 4_096
_CONFIG_UNSUPPORTED: Final = {
    "vhds": "write the virtual hosts", "cluster_specifier_plugins": "name the clusters",
    "request_mirror_policies": "requests are sent to one place here", "vhost_header": "the authority names the virtual host",
    "typed_per_filter_config": "there is no filter chain here",
}  # fmt: skip
_HOST_UNSUPPORTED: Final = {
    "matcher": "write routes", "cors": "there is no CORS filter here", "hedge_policy": "requests are not hedged here",
    "retry_policy_typed_config": "write retry_policy", "request_mirror_policies": "requests are sent to one place here",
    "typed_per_filter_config": "there is no filter chain here",
}  # fmt: skip
_RATES: Final = "there is no rate limit filter to read it"


def route_config(block: Block, *, is_static: bool = True) -> RouteConfig:
    """A RouteConfiguration. `is_static`: it stands in the document itself, where its clusters must exist."""
    name = block.text("name")
    most = block.whole("max_direct_response_body_size_bytes", _BODY_MOST)
    blocks = block.blocks("virtual_hosts")
    hosts = tuple(_host(each, most) for each in blocks)
    _check_hosts(blocks, hosts)
    found = RouteConfig(
        name=name,
        hosts=hosts,
        mutations=mutations(block),
        most_specific_wins=block.flag("most_specific_header_mutations_wins"),
        internal_only_headers=tuple(each.lower() for each in block.texts("internal_only_headers")),
        ignore_port=block.flag("ignore_port_in_host_matching"),
        ignore_path_parameters=block.flag("ignore_path_parameters_in_path_matching"),
        validate_clusters=block.flag("validate_clusters", default=is_static),
    )
    block.aside("metadata")
    block.unsupported(_CONFIG_UNSUPPORTED)
    block.done()
    return found


def _check_hosts(blocks: tuple[Block, ...], hosts: tuple[VirtualHost, ...]) -> None:
    """That no name and no domain stands in two virtual hosts."""
    names: set[str] = set()
    domains: dict[str, str] = {}
    for block, host in zip(blocks, hosts, strict=True):
        if host.name in names and host.name:
            block.found.refuse((*block.path, "name"), "names a virtual host a second time")
        names.add(host.name)
        for domain in host.domains:
            if domain in domains:
                rule = f"holds {domain}, which stands in the virtual host {domains[domain]} already"
                block.found.refuse((*block.path, "domains"), rule)
            domains.setdefault(domain, host.name)


def _host(block: Block, most: int) -> VirtualHost:
    name = block.text("name", needed=True)
    domains = tuple(each.lower() for each in block.texts("domains"))
    if not domains:
        block.found.refuse(block.at("domains"), "is needed and must not be empty", about_key=not block.has("domains"))
    for each in domains:
        if not each or "*" in each[1:-1] or (each != "*" and each.startswith("*") and each.endswith("*")):
            block.refuse("domains", "must be names, *.suffix, prefix.* or *")
    found = VirtualHost(
        name=name,
        domains=domains,
        routes=tuple(_route(each, most) for each in block.blocks("routes")),
        require_tls=block.word("require_tls", _TLS, "NONE"),
        mutations=mutations(block),
        retry=retry(block.block("retry_policy")),
        attempt_count_in_request=block.flag("include_request_attempt_count"),
        attempt_count_in_response=block.flag("include_attempt_count_in_response"),
        timeout_retry_in_request=block.flag("include_is_timeout_retry_header"),
        buffer_limit=_buffer_limit(block),
    )
    block.noticed("virtual_clusters", why="no figures are kept by them")
    block.noticed("rate_limits", why=_RATES)
    block.aside("metadata")
    block.unsupported(_HOST_UNSUPPORTED)
    block.done()
    return found


def _buffer_limit(block: Block) -> int | None:
    block.one_of(("per_request_buffer_limit_bytes", "request_body_buffer_limit"))
    old, new = block.maybe("per_request_buffer_limit_bytes"), block.maybe("request_body_buffer_limit", most=2**63)
    return old if new is None else new


def _route(block: Block, most: int) -> Route:
    rule = block.block("match")
    if rule is None:
        block.found.refuse(block.at("match"), "is needed", about_key=True)
        rule = Block({"prefix": "/"}, block.path, block.found)
    found = Route(
        name=block.text("name"),
        match=match(rule),
        action=_action(block, most),
        mutations=mutations(block),
        buffer_limit=_buffer_limit(block),
    )
    block.noticed("decorator", "tracing", why="requests are not traced")
    block.noticed("stat_prefix", why="no figures are kept by route")
    block.aside("metadata")
    block.unsupported({"typed_per_filter_config": "there is no filter chain here"})
    block.done()
    _check_rewrite(block, found)
    return found


def _check_rewrite(block: Block, route: Route) -> None:
    """`prefix_rewrite` needs a beginning that it takes the place of."""
    action = route.action
    is_prefix = route.match.path.kind.value in ("prefix", "path", "path_separated_prefix")
    has_rewrite = isinstance(action, Forward | Redirect) and bool(action.prefix_rewrite)
    if has_rewrite and not is_prefix and route.match.path.kind.value != "safe_regex":
        block.found.refuse(block.path, "has prefix_rewrite without a prefix or path to match", about_key=True)


def _action(block: Block, most: int) -> Forward | Redirect | DirectResponse | None:
    kind = block.one_of(_ACTIONS)
    inner = {name: block.block(name) for name in (*_ACTIONS[:3], _ACTIONS[4])}
    block.unsupported({"filter_action": "there is no filter chain here"})
    own = inner.get(kind or "")
    match kind:
        case "route" if own is not None:
            return forward(own)
        case "redirect" if own is not None:
            return redirect(own)
        case "direct_response" if own is not None:
            return direct(own, most=most)
        case None:
            block.found.refuse(block.path, f"must have one of {', '.join(_ACTIONS[:3])}", about_key=True)
        case _:
            if own is not None:
                own.done()
    return None


def clusters_of(config: RouteConfig) -> frozenset[str]:
    """Every cluster that its routes name; not those that a header names."""
    actions = [route.action for host in config.hosts for route in host.routes]
    forwards = [each for each in actions if isinstance(each, Forward)]
    return frozenset(
        name
        for each in forwards
        for name in (each.cluster, *(share.name for share in each.weighted if share.weight))
        if name
    )
