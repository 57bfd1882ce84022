"""What the door reads and this proxy does not do: refused by name, for it would be missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reachline.doors.envoy.chain import HttpManager, Listener, TcpProxy, Upstream
from reachline.doors.envoy.routes import Forward, RetryPolicy, RouteConfig
from reachline.errors import Problem

__all__ = ["of_listener", "of_resource", "of_routes", "of_upstream"]

_NOT_DONE: Final = "is not done by this proxy"
_SPKI: Final = "validation_context.verify_certificate_spki"
_HASHES: Final = "write verify_certificate_hash"


def of_resource(value: object, place: str) -> Iterator[Problem]:
    """Of a resource as a control plane sends it: to be refused before it is taken, so that the control plane hears of it."""
    match value:
        case (_, Upstream() as upstream):
            yield from of_upstream(upstream, place)
        case Listener():
            yield from of_listener(value, place)
        case RouteConfig():
            yield from of_routes(value, place)
        case _:
            return


def of_upstream(upstream: Upstream, place: str) -> Iterator[Problem]:
    """Of how a cluster's endpoints are spoken to."""
    if any(each.trusted is not None and each.trusted.spki for each in upstream.secured):
        yield Problem(place=place, path=_SPKI, value="", rule=_NOT_DONE, hint=_HASHES)


def of_listener(listener: Listener, place: str) -> Iterator[Problem]:
    """Of a listener, with the routes that stand in it."""
    at = f"listeners.{listener.name}"
    if listener.proxy_protocol:
        yield Problem(place=place, path=f"{at}.listener_filters", value="proxy_protocol", rule=_NOT_DONE)
    if listener.access_logs:
        yield Problem(place=place, path=f"{at}.access_log", value="", rule=_NOT_DONE, hint="log in the manager")
    for each in (*listener.chains, *(() if listener.default is None else (listener.default,))):
        handler = each.handler
        if each.tls is not None and each.tls.trusted is not None and each.tls.trusted.spki:
            yield Problem(place=place, path=f"{at}.{_SPKI}", value="", rule=_NOT_DONE, hint=_HASHES)
        if isinstance(handler, TcpProxy):
            if handler.access_logs:
                yield Problem(place=place, path=f"{at}.tcp_proxy.access_log", value="", rule=_NOT_DONE)
            continue
        for name, value in _of_manager(handler):
            yield Problem(place=place, path=f"{at}.{name}", value=value, rule=_NOT_DONE)
        if isinstance(handler.routes, RouteConfig):
            yield from of_routes(handler.routes, place)


def _of_manager(manager: HttpManager) -> Iterator[tuple[str, str]]:
    if manager.client_certificate not in ("SANITIZE", "FORWARD_ONLY", "ALWAYS_FORWARD_ONLY"):
        yield "forward_client_cert_details", manager.client_certificate
    if manager.trusted_hops:
        yield "xff_num_trusted_hops", str(manager.trusted_hops)
    if manager.upstream_logs:
        yield "router.upstream_log", ""
    if manager.proper_case:
        yield "http_protocol_options.header_key_format", "proper_case_words"
    if manager.allow_chunked_length:
        yield "http_protocol_options.allow_chunked_length", "true"
    if manager.proxy_100_continue:
        yield "proxy_100_continue", "true"
    if manager.add_user_agent:
        yield "add_user_agent", "true"


def of_routes(config: RouteConfig, place: str) -> Iterator[Problem]:
    """Of a route configuration."""
    for host in config.hosts:
        at = f"routes.{config.name or host.name}.{host.name}"
        if host.timeout_retry_in_request:
            yield Problem(place=place, path=f"{at}.include_is_timeout_retry_header", value="true", rule=_NOT_DONE)
        policies = [host.retry, *(each.action.retry for each in host.routes if isinstance(each.action, Forward))]
        for policy in policies:
            for name in () if policy is None else _of_policy(policy):
                yield Problem(place=place, path=f"{at}.retry_policy.{name}", value="", rule=_NOT_DONE)
        if any(isinstance(each.action, Forward) and each.action.hash_cookies for each in host.routes):
            hint = "hash a cookie that the service itself sets, without a ttl"
            yield Problem(place=place, path=f"{at}.hash_policy.cookie.ttl", value="", rule=_NOT_DONE, hint=hint)


def _of_policy(policy: RetryPolicy) -> Iterator[str]:
    if policy.per_try_idle_timeout is not None:
        yield "per_try_idle_timeout"
    if policy.reset_headers:
        yield "rate_limited_retry_back_off"
