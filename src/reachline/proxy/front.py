"""What all connections of one connection manager share: its settings made ready, its timers, its figures and its logs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from reachline.core.pick.keying import Asked, key_of
from reachline.doors.envoy.chain import HttpManager
from reachline.doors.envoy.routes import RetryPolicy
from reachline.model import Seconds
from reachline.proxy import flags
from reachline.proxy.alarms import Alarm
from reachline.proxy.arrival import Arrivals, Peer
from reachline.proxy.changes import request_changes, response_changes
from reachline.proxy.downstream import Downstream
from reachline.proxy.ends import Leaving, reading_room
from reachline.proxy.exchange import Exchange
from reachline.proxy.flags import LocalReply
from reachline.proxy.heads import Dates
from reachline.proxy.message import Answer, Headers, Request, first
from reachline.proxy.multiplexed import Multiplexed
from reachline.proxy.requests import Limits
from reachline.proxy.stream import Stream
from reachline.proxy.way import Way

__all__ = ["Decide", "Front"]

Decide = Callable[[Request, Peer, bool], Way | LocalReply]
"""What a request comes to; the truth says whether it came from inside."""
_FIRST: Final[Seconds] = 1.0
"""For the first request of a connection that is new when all of them end: it is on its way, and a second is the longest of ways."""
Told = Callable[[Exchange], None]
"""Hears of each exchange that is over."""


class Front:
    """Written by its connections, in one thread."""

    def __init__(
        self,
        manager: HttpManager,
        decide: Decide,
        *,
        counts: Counter[str],
        rng: Random,
        wall: Callable[[], Seconds],
        retriable: Callable[[RetryPolicy, Answer], bool] = lambda _policy, _answer: False,
        buffer_limit: int = 1 << 20,
        logs: Sequence[Told] = (),
    ) -> None:
        self.manager: Final = manager
        self.decide_route = decide
        """Replaced whole where routes change."""
        self.counts: Final = counts
        self.codes: Final[Counter[int]] = Counter()
        self.http2: Final[Counter[str]] = Counter()
        """What clients did by it, by Envoy's names."""
        self.rng: Final = rng
        self.buffer_limit: Final = buffer_limit
        self.logs: Final = tuple(logs)
        self.loop: Final = asyncio.get_running_loop()
        self.now: Final[Callable[[], Seconds]] = time.monotonic
        """The loop's own clock, without its call."""
        self.room: Final = reading_room()
        self._ends_idle = False
        self.is_draining = False
        """Whether connections end with their next answer."""
        self.limits: Final = _limits(manager)
        self.known_upgrades: Final = frozenset({b"websocket"} | {each.kind.encode() for each in manager.upgrades})
        """What is refused where it is not let through; all others are requests without an upgrade."""
        self.leaving: Final = Leaving(self.loop, manager.delayed_close_timeout)
        self.connections: Final[set[Downstream | Multiplexed]] = set()
        self._wall: Final = wall
        self._retriable: Final = retriable
        self._dates: Final = Dates()
        self._arrivals: Final = Arrivals(manager, rng.getrandbits)
        own = {b"server"} if manager.server_header == "OVERWRITE" else set[bytes]()
        self._own: Final = own if manager.suppress_envoy_headers else own | {b"x-envoy-upstream-service-time"}
        """Headers of answers that are ours alone."""
        self._server_name: Final = manager.server_name.encode()
        self._server: Final = b"server: " + manager.server_name.encode() + b"\r\n"
        self._routes: Final[dict[Seconds, Alarm[Exchange]]] = {}
        self._tries: Final[dict[Seconds, Alarm[Exchange]]] = {}

    # What exchanges ask.

    def decide(self, request: Request, peer: Peer) -> Way | LocalReply:
        """Where a request goes."""
        manager = self.manager
        if request.path[:1] == b"/" and (path := self._arrivals.path_of(request)) != request.path:
            if path is None:
                return flags.BAD_PATH
            if manager.escaped_slashes == "UNESCAPE_AND_REDIRECT" and b"%" in request.path:
                return LocalReply(307, headers=((b"location", path),), details="path_normalization_redirect")
            request.path = path
        internal = self._arrivals.take(request, peer)
        return self.decide_route(request, peer, internal)

    def key_of(self, way: Way, request: Request, peer: Peer) -> int | None:
        """What keeps a request together with others."""
        headers: dict[str, list[str]] = {}
        for name, value in request.headers:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        headers[":authority"] = [request.authority.decode("latin-1")]
        headers[":path"] = [request.path.decode("latin-1")]
        headers[":method"] = [request.method.decode("latin-1")]
        return key_of(way.hash, Asked(headers=headers, path=headers[":path"][0], source_ip=peer.address))

    def asked(self, exchange: Exchange) -> Headers:
        """The request's headers for the endpoint that was picked, and in the exchange how it calls that."""
        request, way, pick = exchange.request, exchange.way, exchange.pick
        assert way is not None
        host = way.host
        if not host:
            host = pick.hostname.encode() if way.auto_host and pick and pick.hostname else request.authority
        exchange.host = host
        more: Headers = []
        retries = 0 if exchange.retries is None else exchange.retries.count
        if way.counts_tries:
            more.append((b"x-envoy-attempt-count", b"%d" % (retries + 1)))
        if way.expected:
            spent = 0 if not retries or exchange.sent_at is None else int((self.now() - exchange.sent_at) * 1_000)
            more.append(
                (
                    b"x-envoy-expected-rq-timeout-ms",
                    b"%d" % max(1, int(way.expected) - spent) if spent else way.expected,
                )
            )
        if way.original:
            more.append((b"x-envoy-original-path", way.original))
        if host != request.authority:
            if not self.manager.suppress_envoy_headers:
                more.append((b"x-envoy-original-host", request.authority))
            if way.tell_host:
                more.append((b"x-forwarded-host", request.authority))
        headers = _overwritten(request.headers, more)
        if way.changes:
            headers = request_changes(headers, way.changes, exchange)
            if request.length is not None and first(headers, b"content-length") is None:
                request.length = -1  # taken away: without it nobody would know where the body ends
        return headers

    def answered(self, exchange: Exchange, answer: Answer) -> Headers:
        """The answer's headers for the client."""
        manager, request, way = self.manager, exchange.request, exchange.way
        assert way is not None
        headers = [each for each in answer.headers if each[0] not in self._own]
        if not manager.suppress_envoy_headers:
            began = exchange.sent_at
            exchange.service_ms = 0 if began is None else int((exchange.active_at - began) * 1_000)
            headers.append((b"x-envoy-upstream-service-time", b"%d" % exchange.service_ms))
        if manager.request_id_in_response and (said := first(request.headers, b"x-request-id")) is not None:
            headers = _overwritten(headers, [(b"x-request-id", said)])
        if way.tells_tries:
            count = 1 if exchange.retries is None else exchange.retries.count + 1
            headers = _overwritten(headers, [(b"x-envoy-attempt-count", b"%d" % count)])
        exchange.code, exchange.is_begun, exchange.headers_out = answer.status, True, headers
        if way.changes:
            exchange.headers_out = headers = response_changes(headers, way.changes, exchange)
            if answer.length is not None and first(headers, b"content-length") is None:
                answer.length = -1
        return headers

    def replied(self, exchange: Exchange, reply: LocalReply) -> Headers:
        """The headers of an answer of our own."""
        headers = list(reply.headers)
        changes = reply.changes or (() if exchange.way is None else exchange.way.changes)
        if changes:
            headers = response_changes(headers, changes, exchange)
        exchange.headers_out = headers
        return headers

    def matcher(self, policy: RetryPolicy) -> Callable[[Answer], bool]:
        """Whether an answer has one of the policy's headers."""
        return lambda answer: self._retriable(policy, answer)

    def route_alarm(self, after: Seconds) -> Alarm[Exchange]:
        """For requests that may take so long."""
        found = self._routes.get(after)
        if found is None:
            found = self._routes[after] = Alarm(self.loop, after, Exchange.late)
        return found

    def try_alarm(self, after: Seconds) -> Alarm[Exchange]:
        """For tries that may take so long."""
        found = self._tries.get(after)
        if found is None:
            found = self._tries[after] = Alarm(self.loop, after, Exchange.try_late)
        return found

    def keeps(self, down: Downstream | Stream, request: Request) -> bool:
        """Whether a connection may go on after the answer to this request of it."""
        most = self.manager.max_requests_per_connection
        return request.is_complete and request.keeps and not self.is_draining and (not most or down.requests < most)

    def told(self, exchange: Exchange) -> None:
        """An exchange is over."""
        self.codes[exchange.code] += 1
        for log in self.logs:
            log(exchange)

    def date(self) -> bytes:
        """The line of now."""
        return self._dates.at(self._wall())

    def signed(self, headers: Headers) -> Headers:
        """An answer's headers with when and by whom it is given, where they do not say so."""
        found = list(headers)
        if first(headers, b"date") is None:
            found.append((b"date", self._dates.text_at(self._wall())))
        if self.server_line(headers):
            found.append((b"server", self._server_name))
        return found

    def server_line(self, headers: Headers) -> bytes:
        """The line of an answer with these headers that says who answers; empty: theirs does."""
        if self.manager.server_header == "OVERWRITE":
            return self._server
        if self.manager.server_header == "PASS_THROUGH" or any(name == b"server" for name, _ in headers):
            return b""
        return self._server

    def wall(self) -> Seconds:
        """Seconds since 1970."""
        return self._wall()

    # What connections tell.

    def came(self, down: Downstream | Multiplexed) -> None:
        """A client connected."""
        self.connections.add(down)
        self.counts["downstream_cx_total"] += 1

    def left(self, down: Downstream) -> None:
        """Another protocol takes its connection over, and tells of it anew."""
        self.connections.discard(down)
        self.counts["downstream_cx_total"] -= 1

    def went(self, down: Downstream | Multiplexed, *, is_reset: bool) -> None:
        """Its connection is over."""
        self.connections.discard(down)
        self.counts["downstream_cx_destroy"] += 1
        if is_reset:
            self.counts["downstream_cx_destroy_remote"] += 1

    # What the role calls.

    def sweep(self, now: Seconds) -> None:
        """End what was silent for too long. To be called often, against the shortest of its times."""
        manager = self.manager
        for down in list(self.connections):
            exchanges = down.exchanges
            for exchange in exchanges:
                self._sweep_exchange(exchange, now)
            if isinstance(down, Multiplexed):
                down.sweep(now)
                if exchanges and self._is_old(down, now):
                    down.wind_up()
            if exchanges:
                continue
            if down.is_amid_head:
                if manager.request_headers_timeout and now - down.idle_since >= manager.request_headers_timeout:
                    down.refuse()
                elif manager.idle_timeout and now - down.idle_since >= manager.idle_timeout:
                    down.close()
            elif down.is_idle and self._is_due(down, now) and not down.has_asked:
                self.counts["downstream_cx_idle_timeout"] += 1
                down.close()

    def _is_old(self, down: Downstream | Multiplexed, now: Seconds) -> bool:
        most = self.manager.max_connection_duration
        return bool(most) and now - down.since >= most

    def _is_due(self, down: Downstream | Multiplexed, now: Seconds) -> bool:
        """Whether a connection ends if it is idle."""
        idle = self.manager.idle_timeout
        return self._is_leaving(down, now) or (bool(idle) and now - down.idle_since >= idle) or self._is_old(down, now)

    def _is_leaving(self, down: Downstream | Multiplexed, now: Seconds) -> bool:
        """Whether an idle connection ends; one that is new may have a request under way, which a close would reset."""
        return self._ends_idle and (down.requests > 0 or now - down.since >= _FIRST)

    def retire(self) -> None:
        """Connections end with their next answer; idle ones may still bring a request for that."""
        self.is_draining = True
        for down in self.connections:
            if isinstance(down, Multiplexed):
                down.wind_up()

    def drain(self) -> None:
        """Connections end with the answer of now, idle ones at once."""
        self.retire()
        self._ends_idle = True
        self.sweep(self.now())

    def close(self) -> None:
        """End everything at once."""
        for down in list(self.connections):
            down.abort()
        for alarm in (*self._routes.values(), *self._tries.values()):
            alarm.close()
        self.leaving.close()

    def _sweep_exchange(self, exchange: Exchange, now: Seconds) -> None:
        manager, way = self.manager, exchange.way
        idle = manager.stream_idle_timeout if way is None else way.idle_timeout
        most = manager.max_stream_duration if way is None else way.stream_duration
        began = exchange.request.began
        if most and now - began >= most:
            self.counts["downstream_rq_max_duration_reached"] += 1
            exchange.over(flags.DURATION)
        elif manager.request_timeout and now - began >= manager.request_timeout and not exchange.request.is_complete:
            self.counts["downstream_rq_timeout"] += 1
            exchange.over(flags.REQUEST_TIMEOUT)
        elif idle and now - exchange.active_at >= idle:
            self.counts["downstream_rq_idle_timeout"] += 1
            exchange.over(flags.STREAM_IDLE_AFTER if exchange.request.is_complete else flags.STREAM_IDLE)


def _limits(manager: HttpManager) -> Limits:
    return Limits(
        head=manager.max_request_headers_kib << 10,
        headers=manager.max_headers,
        accept_http_10=manager.accept_http_10,
        default_host=manager.default_host.encode(),
        allow_absolute_url=manager.allow_absolute_url,
        trailers=manager.enable_trailers,
        underscores=manager.headers_with_underscores,
    )


def _overwritten(headers: Headers, added: Headers) -> Headers:
    """Headers with these in the place of others of their names."""
    names = {name for name, _ in added}
    return [each for each in headers if each[0] not in names] + added
