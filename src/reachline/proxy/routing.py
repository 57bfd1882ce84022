"""From a request as it came to the way it goes: asks the envoy door's pure routing, and remembers where that allows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from reachline.doors.envoy.asked import Request as Asked
from reachline.doors.envoy.chain import HttpManager
from reachline.doors.envoy.fitting import value_fits
from reachline.doors.envoy.resolving import CONSUMED, malformed
from reachline.doors.envoy.routes import (
    Append,
    DirectResponse,
    Forward,
    HeaderAdd,
    HostRewrite,
    Mutations,
    RetryPolicy,
    Route,
    RouteConfig,
)
from reachline.doors.envoy.routing import Answered, Missing, Redirected, Sent, decide, routes
from reachline.model import Seconds
from reachline.proxy import flags
from reachline.proxy.arrival import Peer
from reachline.proxy.backend import Backend
from reachline.proxy.flags import LocalReply
from reachline.proxy.message import Answer, Request, first, joined
from reachline.proxy.way import Way

__all__ = ["Router", "retriable"]

_REMEMBERED: Final = 4_096
"""Ways that are remembered at most: a few hundred bytes each. Beyond it all are forgotten at once."""
_LONGEST: Final = 1_024
"""Bytes of a path that is worth remembering: whoever sends longer ones sends others each time."""
_CONSUMED: Final = frozenset(name.encode() for name in CONSUMED)
_SOON: Final[Seconds] = 0.001
"""For a stream whose time was over before it began: the least that is timed."""
_BUFFER: Final = 1 << 20
"""Envoy's own limit of what is kept for a retry."""
_STRICT: Final = LocalReply(400, flag="IH", details="request_headers_failed_strict_check")

Key = tuple[bytes, bytes, bytes]
_SCHEMES: Final = frozenset({b"http", b"https"})


class Router:
    """One route configuration, ready. Made anew for another; `backend` finds clusters as they are now."""

    __slots__ = ("_backend", "_config", "_draw", "_hidden", "_manager", "_table", "_ways", "is_plain")

    def __init__(
        self,
        config: RouteConfig,
        manager: HttpManager,
        backend: Callable[[str], Backend | None],
        draw: Callable[[int], int],
    ) -> None:
        """`draw(bits)` is a random number of so many bits."""
        self._config: Final = config
        self._manager: Final = manager
        self._backend: Final = backend
        self._draw: Final = draw
        self._table: Final = routes(config, respect_expected=manager.respect_expected_timeout)
        self.is_plain: Final = not manager.strict_check_headers and all(
            _is_plain(route, host.retry, host.require_tls) for host in config.hosts for route in host.routes
        )
        """Whether authority, path and scheme decide everything: then what was decided once is decided."""
        self._hidden: Final = frozenset(name.encode() for name in config.internal_only_headers)
        """Headers that requests from outside must not have."""
        self._ways: Final[dict[Key, Way | LocalReply]] = {}

    def decide(self, request: Request, peer: Peer, internal: bool) -> Way | LocalReply:
        """Where a request goes, or what it is answered here."""
        if self._hidden and not internal:
            request.headers[:] = [each for each in request.headers if each[0] not in self._hidden]
        if not self.is_plain or internal or len(request.path) > _LONGEST or request.method == b"CONNECT":
            return self._decided(request, peer, internal=internal)
        key = (request.authority, request.path, self._scheme(request, peer))
        found = self._ways.get(key)
        if found is None:
            found = self._decided(request, peer, internal=internal)
            if len(self._ways) >= _REMEMBERED:
                self._ways.clear()
            self._ways[key] = found
        return found

    def forget(self) -> None:
        """Clusters came or went."""
        self._ways.clear()

    def _decided(self, request: Request, peer: Peer, *, internal: bool) -> Way | LocalReply:
        asked = self._asked(request, peer, internal=internal)
        if self._manager.strict_check_headers and malformed(asked, self._manager.strict_check_headers):
            return _STRICT
        if internal:
            request.headers[:] = [each for each in request.headers if each[0] not in _CONSUMED]
        match decide(self._table, asked, chance=self._draw(64)):
            case Sent() as sent:
                return self._way(sent, request)
            case Redirected() as found:
                headers = ((b"location", found.location.encode("latin-1", "replace")),)
                return LocalReply(found.status, headers=headers, details="direct_response", changes=found.mutations)
            case Answered() as found:
                try:
                    body = Path(found.answer.file).read_bytes() if found.answer.file else found.answer.body
                except OSError:  # it was there to be named, and is gone or hidden now
                    return LocalReply(500, details="direct_response", changes=found.mutations)
                return LocalReply(found.answer.status, body, details="direct_response", changes=found.mutations)
            case Missing():
                return flags.NO_ROUTE

    def _scheme(self, request: Request, peer: Peer) -> bytes:
        """What the request is taken to have come by: a proxy before this one may say so, if it says what there is."""
        if self._manager.scheme:
            return self._manager.scheme.encode()
        said = (first(request.headers, b"x-forwarded-proto") or b"").lower()
        if said in _SCHEMES:
            return said
        return b"https" if peer.is_tls else b"http"

    def _asked(self, request: Request, peer: Peer, *, internal: bool) -> Asked:
        headers: dict[str, list[str]] = {}
        for name, value in request.headers:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        forwarded = None if self._manager.use_remote_address else joined(request.headers, b"x-forwarded-for")
        return Asked(
            method=request.method.decode("latin-1"),
            scheme=self._scheme(request, peer).decode("latin-1"),
            authority=request.authority.decode("latin-1"),
            path=request.path.decode("latin-1"),
            headers=headers,
            certificate=peer.is_certified,
            validated=peer.is_certified,
            source_ip=peer.address if forwarded is None else forwarded.decode("latin-1").rpartition(",")[2].strip(),
            is_internal=internal,
        )

    def _way(self, sent: Sent, request: Request) -> Way | LocalReply:
        action, manager = sent.action, self._manager
        if request.method == b"CONNECT":
            return flags.UPGRADE_FORBIDDEN  # no listener here is a tunnel, whatever its routes match
        backend = self._backend(sent.cluster)
        if backend is None:
            return flags.no_cluster(action.not_found)
        path = sent.path.encode("latin-1", "replace")
        times, retry = sent.times, sent.retry
        if retry is not None and retry.per_try_timeout != times.per_try:
            retry = replace(retry, per_try_timeout=times.per_try)
        expected = times.total if times.per_try is None else times.per_try
        is_told = expected is not None and not manager.suppress_envoy_headers
        limit = sent.route.buffer_limit if sent.route.buffer_limit is not None else sent.host.buffer_limit
        return Way(
            backend=backend,
            path=path,
            original=request.path if sent.is_rewritten and not manager.suppress_envoy_headers else b"",
            route=sent.route.name,
            host=b"" if sent.authority is None else sent.authority.encode("latin-1", "replace"),
            auto_host=sent.auto_host,
            tell_host=action.append_x_forwarded_host,
            timeout=times.total,
            retry=retry,
            idle_timeout=_limit(action.idle_timeout, manager.stream_idle_timeout),
            stream_duration=_SOON if times.is_over else _limit(times.duration, manager.max_stream_duration),
            expected=b"%d" % round((expected or 0) * 1_000) if is_told else b"",
            hash=action.hash,
            subset=sent.metadata_match or None,
            high=action.high_priority,
            upgrades=_upgrades(manager, action),
            changes=(*sent.mutations, *_told(times.grpc)),
            buffer_limit=_BUFFER if limit is None else limit,
            counts_tries=sent.host.attempt_count_in_request,
            tells_tries=sent.host.attempt_count_in_response,
        )


def retriable(policy: RetryPolicy, answer: Answer) -> bool:
    """Whether an answer has one of a policy's headers."""
    return any(value_fits(each, _text(joined(answer.headers, each.name.encode()))) for each in policy.headers)


def _told(limit: Seconds | None) -> tuple[Mutations, ...]:
    """What a gRPC endpoint is told of its time."""
    if limit is None:
        return ()
    value = (f"{round(limit * 1_000)}m",)
    return (Mutations(request_add=(HeaderAdd(name="grpc-timeout", value=value, append=Append.OVERWRITE_OR_ADD),)),)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _limit(own: Seconds | None, usual: Seconds) -> Seconds | None:
    """A route's, else its manager's; None: no limit."""
    return (usual if own is None else own) or None


def _upgrades(manager: HttpManager, action: Forward) -> frozenset[str]:
    enabled = {each.kind: each.enabled for each in (*manager.upgrades, *action.upgrades)}
    return frozenset(kind for kind, is_so in enabled.items() if is_so)


def _is_plain(route: Route, retry: RetryPolicy | None, require_tls: str) -> bool:
    """Whether nothing but authority, path and scheme matters to a route."""
    match, action = route.match, route.action
    if match.headers or match.parameters or match.grpc or match.fraction is not None or require_tls == "EXTERNAL_ONLY":
        return False
    if match.tls_presented is not None or match.tls_validated is not None:
        return False
    if not isinstance(action, Forward):
        # What stands in a file is read for each request, so that it is what it is now.
        return not (isinstance(action, DirectResponse) and action.file)
    policy = action.retry or retry
    return not (
        action.weighted
        or action.cluster_header
        or action.host_rewrite is HostRewrite.HEADER
        or action.is_by_duration
        or action.grpc_timeout_most is not None
        or (policy is not None and policy.request_headers)
    )
