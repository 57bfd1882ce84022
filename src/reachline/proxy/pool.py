"""Connections to the endpoints of one cluster, kept between requests; and who waits for one. Bounded as its circuit breakers say."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

from reachline.doors.envoy.chain import Upstream
from reachline.doors.envoy.values import Thresholds
from reachline.model import Failure, Seconds
from reachline.proxy import flags
from reachline.proxy.agreeing import Agreeing
from reachline.proxy.carried import EndpointStream
from reachline.proxy.carrier import Carrier
from reachline.proxy.channel import EndpointChannel
from reachline.proxy.ends import reading_room
from reachline.proxy.flags import Lost
from reachline.upstream.listing import Pick
from reachline.upstream.outcome import failure_of

__all__ = ["Place", "Pool", "Secured", "Securing", "Waiter"]


_TWO: Final = "2"
"""The version of a request by HTTP/2."""


class Secured(NamedTuple):
    """TLS of one connection: its context, and the name that is asked for, if any."""

    context: ssl.SSLContext
    name: str
    distrust: Callable[[ssl.SSLObject], str] = lambda _: ""
    """Why the certificate that was shown will not do; empty: it does."""


class Securing(Protocol):
    """How TLS of new connections comes about."""

    def __call__(self, pick: Pick, authority: str, *, is_two: bool = False) -> Secured | None:
        """That of a connection to a pick, for a request to an authority, of HTTP/2 or not; None: plain text."""


class Waiter(Protocol):
    """Who waits for a connection."""

    def connected(self, channel: EndpointChannel | EndpointStream) -> None:
        """Here is one, or room on one."""

    def unconnected(self, lost: Lost) -> None:
        """There will be none."""


class Place:
    """One endpoint's connections. `idle` is a stack: the one used last is used next, as in Envoy."""

    __slots__ = (
        "connecting",
        "each",
        "idle",
        "is_left",
        "is_two",
        "key",
        "open",
        "pick",
        "secured",
        "shared",
        "waiting",
    )

    def __init__(self, key: str, pick: Pick, secured: Secured | None, *, is_two: bool | None, each: int) -> None:
        self.key: Final = key
        self.pick: Final = pick
        self.secured = secured
        self.idle: Final[list[EndpointChannel]] = []
        self.shared: Final[list[Carrier]] = []
        """Those of HTTP/2, which many requests share."""
        self.open: Final[set[EndpointChannel | Carrier]] = set()
        self.is_two: Final = is_two
        """Whether it is spoken to by HTTP/2; None: it is asked, by ALPN."""
        self.connecting = 0
        self.each = each
        """Requests that a connection which is being made will take, as far as is known."""
        self.is_left = False
        """Connections of it are used no more once they are free."""
        self.waiting: Final[deque[Waiter]] = deque()


class Pool:
    """All connections of a cluster. Of one loop's thread."""

    def __init__(
        self,
        upstream: Upstream,
        thresholds: Thresholds,
        counts: Counter[str],
        *,
        connect_timeout: Seconds,
        secure: Securing | None,
    ) -> None:
        """`secure`: None where all is plain text."""
        self._upstream: Final = upstream
        self._thresholds: Final = thresholds
        self._counts: Final = counts
        self._connect_timeout: Final = connect_timeout
        self._secure: Final = secure
        self._per_authority: Final = any(each.auto_sni for each in upstream.secured)
        self._is_by_target: Final = not self._per_authority and upstream.protocol != "DOWNSTREAM"
        self._loop: Final = asyncio.get_running_loop()
        self._places: Final[dict[str, Place]] = {}
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._connections = 0
        self._pending = 0
        self._is_closed = False
        self._left = 0
        self.http2: Final[Counter[str]] = Counter()
        """Figures of HTTP/2, by Envoy's names behind `http2.`."""
        self.room: Final = reading_room()

    @property
    def connections(self) -> int:
        """Open ones, and those that are being made."""
        return self._connections

    @property
    def pending(self) -> int:
        """Requests that wait for one."""
        return self._pending

    def open_to(self, key: str) -> int:
        """Connections to one endpoint."""
        place = self._places.get(key)
        return 0 if place is None else len(place.open)

    def take(self, pick: Pick, authority: str = "", version: str = "1.1") -> EndpointChannel | EndpointStream | None:
        """A kept connection that is free, or room on one, for a request of this version of HTTP; None: `wait` for it."""
        place = self._places.get(pick.target if self._is_by_target else self._key(pick, authority, version))
        if place is None:
            return None
        for carrier in place.shared:
            if carrier.is_free:
                return carrier.begin()
        while place.idle:
            channel = place.idle.pop()
            if channel.is_open:
                return channel
        return None

    def wait(self, pick: Pick, who: Waiter, authority: str = "", version: str = "1.1") -> bool:
        """Have `who` told of a connection, later; False where too many wait already."""
        if self._pending >= self._thresholds.max_pending_requests:
            self._counts["upstream_rq_pending_overflow"] += 1
            return False
        key = self._key(pick, authority, version)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self._place(key, pick, version)
        if self._secure is not None:  # each time, for its files may have changed
            place.secured = self._secure(pick, authority, is_two=bool(place.is_two))
        self._pending += 1
        self._counts["upstream_rq_pending_total"] += 1
        place.waiting.append(who)
        self._connect_more(place)
        return True

    def leave(self, who: Waiter) -> None:
        """It waits no longer."""
        for place in self._places.values():
            if who in place.waiting:
                place.waiting.remove(who)
                self._pending -= 1
                return

    def give(self, channel: EndpointChannel) -> None:
        """It is free again: for the one that waits longest, else it is kept."""
        place, most = channel.place, self._upstream.max_requests_per_connection
        if not channel.is_open:
            return
        is_spent = bool(most) and channel.uses >= most
        if place.waiting and not is_spent:
            self._pending -= 1
            place.waiting.popleft().connected(channel)
        elif self._is_closed or is_spent or place.is_left or place.key not in self._places:
            channel.close()
        else:
            channel.idle_since = self._loop.time()
            place.idle.append(channel)

    def freed(self, carrier: Carrier) -> None:
        """There may be room on it: for those that wait longest. What is of no more use ends with its streams."""
        place = carrier.place
        while place.waiting and carrier.is_free:
            self._pending -= 1
            place.waiting.popleft().connected(carrier.begin())
        if self._is_closed or place.is_left or place.key not in self._places:
            carrier.wind_up()

    def drop(self, channel: EndpointChannel | Carrier) -> None:
        """It is closed."""
        place = channel.place
        if channel in place.open:
            place.open.discard(channel)
            self._connections -= 1
        if isinstance(channel, Carrier):
            if channel in place.shared:
                place.shared.remove(channel)
        elif channel in place.idle:
            place.idle.remove(channel)
        if place.waiting:
            self._connect_more(place)

    def tend(self, keys: Collection[str]) -> None:
        """Close what was idle too long, is too old, or leads to an endpoint that is not among `keys` (`address:port`) any more."""
        now, idle, age = self._loop.time(), self._upstream.idle_timeout, self._upstream.max_connection_duration
        for key, place in list(self._places.items()):
            is_gone = place.pick.target not in keys
            for channel in list(place.idle):
                is_idle = idle and now - channel.idle_since >= idle
                if is_gone or is_idle or (age and now - channel.since >= age):
                    place.idle.remove(channel)
                    channel.close()
            for carrier in list(place.shared):
                is_idle = idle and carrier.is_idle and now - carrier.idle_since >= idle
                if is_gone or is_idle or (age and now - carrier.since >= age):
                    carrier.wind_up()
                carrier.sweep(now)
            if not (place.open or place.connecting or place.waiting):
                del self._places[key]

    def leave_place(self, target: str) -> None:
        """The endpoint (`address:port`) is spoken to otherwise now: what leads there is used no more once it is free."""
        for key, place in [each for each in self._places.items() if each[1].pick.target == target]:
            if place.is_left:
                continue
            place.is_left = True
            _part(place)
            del self._places[key]
            if place.open or place.connecting or place.waiting:
                self._left += 1
                self._places[f"{key} {self._left}"] = place

    def retire(self) -> None:
        """Its cluster is no more: idle connections end now, others once their exchange is over; who waits is still connected."""
        self._is_closed = True
        for place in self._places.values():
            _part(place)

    def close(self) -> None:
        """Idle connections end now, others once their exchange is over; nobody is connected any more."""
        for task in self._tasks:
            task.cancel()
        self.retire()

    def _key(self, pick: Pick, authority: str, version: str) -> str:
        key = f"{pick.target} {authority}" if self._per_authority else pick.target
        return f"{key} {_TWO}" if version == _TWO and self._upstream.protocol == "DOWNSTREAM" else key

    def _place(self, key: str, pick: Pick, version: str) -> Place:
        upstream = self._upstream
        match upstream.protocol:
            case "AUTO":
                is_two = None
            case "DOWNSTREAM":
                is_two = version == _TWO
            case spoken:
                is_two = spoken == "HTTP2"
        return Place(key, pick, None, is_two=is_two, each=upstream.http2.max_concurrent_streams if is_two else 1)

    def _connect_more(self, place: Place) -> None:
        """A connection for each that waits, as far as there may be more."""
        thresholds = self._thresholds
        while place.connecting * place.each < len(place.waiting):
            if self._connections >= thresholds.max_connections and (place.open or place.connecting):
                self._counts["upstream_cx_overflow"] += 1
                return
            most = thresholds.max_connections_per_endpoint
            if most is not None and len(place.open) + place.connecting >= most:
                return
            place.connecting += 1
            self._connections += 1
            task = self._loop.create_task(self._connect(place))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _made(self, place: Place, *, is_two: bool) -> EndpointChannel | Carrier:
        upstream, counts = self._upstream, self._counts
        counts["upstream_cx_http2_total" if is_two else "upstream_cx_http1_total"] += 1
        place.each = upstream.http2.max_concurrent_streams if is_two else 1
        if is_two:
            return Carrier(self, place, upstream, self.http2)
        return EndpointChannel(
            self,
            place,
            most_headers=upstream.max_headers,
            most_bytes=upstream.max_response_headers_kib << 10,
            trailers=upstream.enable_trailers,
        )

    async def _connect(self, place: Place) -> None:
        counts = self._counts
        counts["upstream_cx_total"] += 1
        found = await self._dialled(place)
        place.connecting -= 1
        if not isinstance(found, Lost):
            channel = found
            channel.since = self._loop.time()
            place.open.add(channel)
            if not channel.is_open:  # gone already
                self.drop(channel)
            elif isinstance(channel, Carrier):
                channel.idle_since = channel.since
                place.shared.append(channel)
                self.freed(channel)
            else:
                self.give(channel)
            return
        self._connections -= 1
        counts["upstream_cx_connect_timeout" if found is flags.CONNECT_TIMEOUT else "upstream_cx_connect_fail"] += 1
        # As in Envoy all that wait for this endpoint fail by one connection that could not be made.
        waiting = list(place.waiting)
        place.waiting.clear()
        self._pending -= len(waiting)
        for each in waiting:
            each.unconnected(found)

    async def _dialled(self, place: Place) -> EndpointChannel | Carrier | Lost:
        """The connection, or why there is none."""
        address, secured = place.pick.address, place.secured
        if address is None:
            return flags.LOCAL

        def make() -> Agreeing | EndpointChannel | Carrier:
            if place.is_two is None:
                return Agreeing(lambda is_two: self._made(place, is_two=is_two))
            return self._made(place, is_two=place.is_two)

        try:
            async with asyncio.timeout(self._connect_timeout):
                transport, made = await self._loop.create_connection(
                    make,
                    *address,
                    ssl=None if secured is None else secured.context,
                    server_hostname=None if secured is None else secured.name,
                )
                channel = made.channel if isinstance(made, Agreeing) else made
                if secured is not None and (why := secured.distrust(transport.get_extra_info("ssl_object"))):
                    transport.abort()
                    return flags.tls_failed(why)
        except TimeoutError:
            return flags.CONNECT_TIMEOUT
        except ssl.SSLError as error:
            return flags.tls_failed(error.reason or "handshake failed")
        except OSError as error:
            failure = failure_of(error)
            return flags.LOCAL if failure in (None, Failure.AGENT) else flags.REFUSED
        assert channel is not None  # there was a handshake
        return channel


def _part(place: Place) -> None:
    """Idle connections end now, others with what is under way."""
    for channel in list(place.idle):
        channel.close()
    for carrier in list(place.shared):
        carrier.wind_up()
