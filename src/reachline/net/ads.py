"""One stream to an xDS control plane, kept up and shared by all who want resources of it. The protocol is `wire.ads`'.

Needs the extra `xds`; what it needs is imported when it runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from reachline.errors import ConfigError, LocalProtocolError, Problem, RemoteProtocolError
from reachline.model import Seconds
from reachline.net.waiting import within
from reachline.wire.ads import ALL, Client, News, Parcel, Parsed, Request, Told, pause

if TYPE_CHECKING:
    from reachline.net.rpc import Attached, Credentials
    from reachline.wire.xds import Node

__all__ = ["Ads", "Listener"]

_log: Final = logging.getLogger("reachline.discovery")

Listener = Callable[[Told | None], None]
"""Takes news of one resource; None: `Ads.trouble` is another. Called on the loop, and must not wait."""

_SERVICE: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService"
_SOTW: Final = f"{_SERVICE}/StreamAggregatedResources"
_DELTA: Final = f"{_SERVICE}/DeltaAggregatedResources"
_OPTIONS: Final = MappingProxyType(
    {
        # 64 MiB: two million endpoints; what is larger is no configuration.
        "grpc.max_receive_message_length": 64 << 20,
        # Control planes allow a ping each 15 to 30 s; more often they end the connection ("too_many_pings").
        "grpc.keepalive_time_ms": 60_000,
        "grpc.keepalive_timeout_ms": 20_000,
        "grpc.http2.ping_timeout_ms": 20_000,
    }
)
_NO_MORE: Final[Mapping[str, Callable[[Parcel], Parsed]]] = MappingProxyType({})
_REST: Final[Seconds] = 3_600.0
"""The longest nap: timers of a loop need an end."""


class Ads:
    """A control plane as its subscribers see it. One task keeps `run` running; written by that task's loop only."""

    def __init__(
        self,
        address: str,
        *,
        node: Node,
        rng: Random,
        delta: bool = False,
        timeout: Seconds = 5.0,
        credentials: Callable[[], Credentials] | None = None,
        parsers: Mapping[str, Callable[[Parcel], Parsed]] = _NO_MORE,
    ) -> None:
        """`address` as gRPC names it; `timeout` for connecting and for handing over one message; `credentials` turn TLS on;
        `parsers` read more types than endpoints, by type URL.

        ConfigError where `node` cannot be said; ImportError says what to install where the extra `xds` is missing.
        """
        from reachline.wire import xds  # noqa: PLC0415  (protobuf, and only xDS needs it)

        try:
            xds.encode(Request("", (), is_first=True), node)
        except (TypeError, ValueError) as error:
            raise ConfigError(Problem(place="ads", path="node", value="", rule=f"cannot be said: {error}")) from error
        self.address: Final = address
        self.trouble = "not connected yet"
        """Why nothing newer can be known, in words; empty while a stream is up and answers."""
        self._node, self._rng, self._delta = node, rng, delta
        self._timeout, self._credentials = timeout, credentials
        self._client: Final = Client({**xds.PARSERS, **parsers}, delta=delta)
        self._decode: Final = xds.decode_delta if delta else xds.decode
        self._encode: Final = xds.encode
        self._listeners: Final[dict[tuple[str, str], list[Listener]]] = {}
        self._latest: Final[dict[tuple[str, str], object]] = {}
        self._stirred = asyncio.Event()
        self._failures = 0

    @property
    def refused(self) -> int:
        """Responses answered by a NACK."""
        return self._client.refused

    @property
    def ignored(self) -> int:
        """Responses that repeated a nonce, or that nobody had asked for."""
        return self._client.ignored

    def subscribe(self, type_url: str, name: str, listener: Listener) -> Callable[[], None]:
        """Tell `listener` all news of one resource, or of `ALL` of a type, from now on; what is returned ends that.

        What other subscribers were told already comes before this returns.
        """
        key = (type_url, name)
        self._client.subscribe(type_url, name)
        self._listeners.setdefault(key, []).append(listener)
        self._stirred.set()
        here = [each for each in self._latest if each[0] == type_url] if name == ALL else [key]
        for each in here:
            if (value := self._latest.get(each)) is not None:
                listener(Told(News.HERE, *each, value))
        return partial(self._unsubscribe, key, listener)

    def _unsubscribe(self, key: tuple[str, str], listener: Listener) -> None:
        listeners = self._listeners.get(key, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._stirred.set()

    def _let_go(self) -> None:
        """Want no more what nobody listens to.

        Only now that it is said: who wants it again before that is told what is at hand, for the control plane says it once.
        """
        for key in [key for key, listeners in self._listeners.items() if not listeners]:
            del self._listeners[key]
            self._client.unsubscribe(*key)
            gone = [each for each in self._latest if each[0] == key[0]] if key[1] == ALL else [key]
            for each in gone:
                if not self._is_wanted(each):
                    self._latest.pop(each, None)

    def _is_wanted(self, key: tuple[str, str]) -> bool:
        return key in self._listeners or (key[0], ALL) in self._listeners

    async def run(self) -> None:
        """Keep a stream up until cancelled; after one that failed wait, longer each time, by chance."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._stream()
            except* (OSError, RemoteProtocolError, LocalProtocolError) as group:
                self._failures += 1
                self._set_trouble(_words(group) or f"{self.address} does not answer")
            until = loop.time() + pause(self._failures, self._rng)
            while (left := until - loop.time()) > 0:
                await self._tended(left)

    async def _stream(self) -> None:
        from reachline.net.rpc import attach  # noqa: PLC0415  (grpc, and only xDS needs it)

        call = await attach(
            self.address,
            timeout=self._timeout,
            credentials=self._credentials() if self._credentials else None,
            method=_DELTA if self._delta else _SOTW,
            options=_OPTIONS,
        )
        self._client.opened()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._hear(call))
                group.create_task(self._say(call))
        finally:
            await call.close()

    async def _hear(self, call: Attached) -> None:
        async for data in call.frames():
            response = self._decode(data)
            for told in self._client.received(response, asyncio.get_running_loop().time()):
                self._tell(told)
            self._failures = 0
            self._set_trouble("")
            self._stirred.set()
        raise ConnectionError(f"{self.address}: the control plane ended the stream")

    async def _say(self, call: Attached) -> None:
        while True:
            self._let_go()
            for request in self._client.requests():
                await call.send(self._encode(request, self._node), self._timeout)
            await self._tended(_REST)

    async def _tended(self, limit: Seconds) -> None:
        """Until something stirs or `limit` is over, with times to live kept."""
        loop = asyncio.get_running_loop()
        due = self._client.deadline()
        await within(self._stirred, limit if due is None else min(limit, due - loop.time()))
        self._stirred.clear()
        for told in self._client.turn(loop.time()):
            self._tell(told)

    def _tell(self, told: Told) -> None:
        key = (told.type_url, told.name)
        match told.news:
            case News.HERE:
                self._latest[key] = told.value
            case News.GONE | News.EXPIRED:
                self._latest.pop(key, None)
            case News.REFUSED:
                extra = {"type_url": told.type_url, "resource": told.name, "reason": told.reason}
                _log.warning("resource_refused", extra=extra)
        all_of_it = (told.type_url, ALL)
        keys = [key, all_of_it] if told.name else [each for each in self._listeners if each[0] == told.type_url]
        for listener in [each for key in keys for each in self._listeners.get(key, ())]:
            listener(told)

    def _set_trouble(self, trouble: str) -> None:
        if trouble == self.trouble:
            return
        if trouble:
            _log.warning("control_plane_lost", extra={"address": self.address, "reason": trouble})
        elif self.trouble:
            _log.info("control_plane_answers", extra={"address": self.address})
        self.trouble = trouble
        for listener in [each for listeners in self._listeners.values() for each in listeners]:
            listener(None)


def _words(group: BaseExceptionGroup[Exception]) -> str:
    """The first of the errors, in one line."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return " ".join(str(first).split())
