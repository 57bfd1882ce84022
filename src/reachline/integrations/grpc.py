"""gRPC by lines: `channel(client, "payments")` is a channel that chooses a line for each call; `xds` helps those who prefer xDS.

gRPC picks inside a channel, out of reach of its interceptors: so there is one channel a line behind the one that callers see.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Self

import grpc
import grpc.aio

from reachline.errors import LocalProtocolError
from reachline.integrations.exchange import Exchange, Lines, Route, aim, place, way
from reachline.integrations.pools import Lease, Pools
from reachline.model import Seconds
from reachline.upstream import Attempt, Pick
from reachline.upstream.tries import TRIES, Plan

__all__ = ["AioChannel", "LinesChannel", "aio_channel", "channel", "xds_bootstrap"]

Options = Sequence[tuple[str, Any]]

_OWN_CONNECTIONS: Final = ("grpc.use_local_subchannel_pool", 1)
"""Channels to one address share connections unless told not to: a new one would come with that of before the line was open."""
_FAILURES: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_ERRORS: Final = (
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""The server answered, and ill. All other codes are the answer to this very call, and the line carried it."""


class _Route:
    """What both kinds of channel share: the cluster, and channels by line."""

    def __init__(
        self,
        lines: Lines,
        cluster: str,
        make: Callable[[str, Options], Any],
        *,
        idempotent: Collection[str],
        tries: int,
        deadline: Seconds | None,
        options: Options,
    ) -> None:
        if cluster not in lines.clusters:
            raise LocalProtocolError(
                f"cluster {cluster!r} was not named at connect(); known: {', '.join(lines.clusters)}"
            )
        self._route: Final = Route(lines, tries=tries, deadline=deadline)
        self._cluster: Final = cluster
        self._idempotent: Final = idempotent
        self.pools: Final[Pools[Any]] = Pools(lambda pick: make(_place(pick), (*options, *_options(pick))))

    def exchange(self, method: str) -> Exchange:
        """One call's."""
        plan = Plan(idempotent=method in self._idempotent)
        found = self._route.exchange(self._cluster, method, plan, is_replayable=True)
        assert found is not None
        return found

    def begin(self, exchange: Exchange) -> tuple[Lease[Any], Any]:
        """The line's channel for one try, and one to be closed."""
        pick = exchange.begin()
        if pick is None:
            raise LocalProtocolError(f"cluster {self._cluster!r} has no line to offer")
        return self.pools.borrow(pick)


class LinesChannel(grpc.Channel):
    """For stubs of generated code. Unary calls of `idempotent` methods are tried again; streams never."""

    def __init__(self, route: _Route) -> None:
        self._route: Final = route

    def unary_unary(self, method: str, *arguments: Any, **more: Any) -> Any:
        return _Unary(self._route, method, arguments, more)

    def unary_stream(self, method: str, *arguments: Any, **more: Any) -> Any:
        return _once(self._route, "unary_stream", method, arguments, more)

    def stream_unary(self, method: str, *arguments: Any, **more: Any) -> Any:
        return _Streamed(self._route, method, arguments, more)

    def stream_stream(self, method: str, *arguments: Any, **more: Any) -> Any:
        return _once(self._route, "stream_stream", method, arguments, more)

    def subscribe(self, callback: Any, try_to_connect: bool | None = False) -> None:
        """Nothing: a line's state is Reachline's to know, and no one state is that of all lines."""

    def unsubscribe(self, callback: Any) -> None:
        """Nothing."""

    def close(self) -> None:
        for each in self._route.pools.take_all():
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AioChannel:
    """`LinesChannel` for `grpc.aio` stubs: a unary call is a coroutine, a stream the call that gRPC makes."""

    def __init__(self, route: _Route) -> None:
        self._route: Final = route

    def unary_unary(self, method: str, *arguments: Any, **more: Any) -> Callable[..., Any]:
        async def call(request: Any, *, timeout: Seconds | None = None, **how: Any) -> Any:
            exchange = self._route.exchange(method)

            async def send() -> Any:
                lease, closing = self._route.begin(exchange)
                try:
                    if closing is not None:
                        await closing.close()
                    made = lease.pool.unary_unary(method, *arguments, **more)
                    calling = made(request, timeout=exchange.timeout(timeout), **how)
                    return await _loaded(exchange.call, calling)
                except grpc.RpcError as error:
                    _say(exchange.call, error.code())
                    raise
                finally:
                    if (closing := self._route.pools.give_back(lease)) is not None:
                        await closing.close()

            answer = await exchange.run_async(send, status=lambda _: 200, close=_nothing)
            exchange.ended()
            return answer

        return call

    def unary_stream(self, method: str, *arguments: Any, **more: Any) -> Callable[..., Any]:
        return _once(self._route, "unary_stream", method, arguments, more)

    def stream_unary(self, method: str, *arguments: Any, **more: Any) -> Callable[..., Any]:
        return _once(self._route, "stream_unary", method, arguments, more)

    def stream_stream(self, method: str, *arguments: Any, **more: Any) -> Callable[..., Any]:
        return _once(self._route, "stream_stream", method, arguments, more)

    async def close(self, grace: Seconds | None = None) -> None:
        """Close the channels of all lines."""
        for each in self._route.pools.take_all():
            await each.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class _Unary:
    """As grpc.UnaryUnaryMultiCallable, which is generic for type checkers alone."""

    def __init__(self, route: _Route, method: str, arguments: Any, more: Any) -> None:
        self._route, self._method, self._arguments, self._more = route, method, arguments, more

    def __call__(self, request: Any, timeout: Seconds | None = None, **how: Any) -> Any:
        return self.with_call(request, timeout, **how)[0]

    def with_call(self, request: Any, timeout: Seconds | None = None, **how: Any) -> Any:
        exchange = self._route.exchange(self._method)

        def send() -> Any:
            lease, closing = self._route.begin(exchange)
            try:
                if closing is not None:
                    closing.close()
                made = lease.pool.unary_unary(self._method, *self._arguments, **self._more)
                return _loading(exchange.call, made.with_call(request, exchange.timeout(timeout), **how))
            except grpc.RpcError as error:
                _say(exchange.call, error.code())
                raise
            finally:
                if (closing := self._route.pools.give_back(lease)) is not None:
                    closing.close()

        answer = exchange.run(send, status=lambda _: 200, close=lambda _: None)
        exchange.ended()
        return answer

    def future(self, request: Any, timeout: Seconds | None = None, **how: Any) -> Any:
        return _once(self._route, "unary_unary", self._method, self._arguments, self._more, way="future")(
            request, timeout=timeout, **how
        )


class _Streamed:
    """As grpc.StreamUnaryMultiCallable."""

    def __init__(self, route: _Route, method: str, arguments: Any, more: Any) -> None:
        self._rest = (route, "stream_unary", method, arguments, more)

    def __call__(self, requests: Any, timeout: Seconds | None = None, **how: Any) -> Any:
        return self.future(requests, timeout, **how).result()

    def with_call(self, requests: Any, timeout: Seconds | None = None, **how: Any) -> Any:
        call = self.future(requests, timeout, **how)
        return call.result(), call

    def future(self, requests: Any, timeout: Seconds | None = None, **how: Any) -> Any:
        return _once(*self._rest, way="future")(requests, timeout=timeout, **how)


def channel(
    lines: Lines,
    cluster: str,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    idempotent: Collection[str] = (),
    tries: int = TRIES,
    deadline: Seconds | None = None,
    options: Options = (),
) -> LinesChannel:
    """A channel to the lines of one cluster; LocalProtocolError if `connect` was not given its name.

    `idempotent` are full names of methods that may be called twice, `/package.Service/Method`.
    """

    def make(address: str, all_options: Options) -> grpc.Channel:
        if credentials is None:
            return grpc.insecure_channel(address, all_options)
        return grpc.secure_channel(address, credentials, all_options)

    return LinesChannel(
        _Route(lines, cluster, make, idempotent=idempotent, tries=tries, deadline=deadline, options=options)
    )


def aio_channel(
    lines: Lines,
    cluster: str,
    *,
    credentials: grpc.ChannelCredentials | None = None,
    idempotent: Collection[str] = (),
    tries: int = TRIES,
    deadline: Seconds | None = None,
    options: Options = (),
) -> AioChannel:
    """`channel` for `grpc.aio`, made and used in one loop."""

    def make(address: str, all_options: Options) -> grpc.aio.Channel:
        if credentials is None:
            return grpc.aio.insecure_channel(address, all_options)
        return grpc.aio.secure_channel(address, credentials, all_options)

    return AioChannel(
        _Route(lines, cluster, make, idempotent=idempotent, tries=tries, deadline=deadline, options=options)
    )


def xds_bootstrap(server: str, *, node: str, cluster: str = "") -> str:
    """What gRPC's own xDS client reads from GRPC_XDS_BOOTSTRAP_CONFIG, set before the first `xds:` channel; then `xds:///NAME` works.

    `server` is host:port of a control plane, reached without TLS; `node` is who asks, `cluster` which group of clients it is of.
    """
    server_row = {"server_uri": server, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    return json.dumps({"xds_servers": [server_row], "node": {"id": node, "cluster": cluster}})


def _once(route: _Route, kind: str, method: str, arguments: Any, more: Any, *, way: str = "") -> Callable[..., Any]:
    """One call without retries, that is still under way when it is handed out; its end is told to the line.

    Channels that are used no more close themselves when they are dropped: here nobody could await it.
    """

    def call(*request: Any, timeout: Seconds | None = None, **how: Any) -> Any:
        exchange, lease = route.exchange(method), None
        try:
            lease, _ = route.begin(exchange)
            made: Any = getattr(lease.pool, kind)(method, *arguments, **more)
            found = (getattr(made, way) if way else made)(*request, timeout=exchange.timeout(timeout), **how)
        except BaseException as error:
            if lease is not None:
                route.pools.give_back(lease)
            exchange.failed(error)
            raise
        _watch(found, exchange, lambda: route.pools.give_back(lease))
        return found

    return call


def _watch(call: Any, exchange: Exchange, give_back: Callable[[], object]) -> None:
    """Tell the line once the call has ended, whoever ends it."""

    def ended(*_: object) -> None:
        give_back()
        code = call.code()
        # Of grpc.aio the code is awaited; once a call is done, what it will be is known.
        if code is not None and not isinstance(code, grpc.StatusCode):
            code = _code_of(code)
        _say(exchange.call, code)
        exchange.ended()

    if hasattr(call, "add_done_callback") and not hasattr(call, "add_callback"):
        call.add_done_callback(ended)
    elif not call.add_callback(ended):
        ended()


def _code_of(awaitable: Any) -> grpc.StatusCode | None:
    """The value of a coroutine that has nothing left to wait for."""
    try:
        awaitable.send(None)
    except StopIteration as done:
        found: grpc.StatusCode | None = done.value
        return found
    awaitable.close()
    return None


def _loading(call: Attempt, answer: Any) -> Any:
    """An answer with its call, whose trailers may say what the endpoint reports of its load."""
    call.load(dict(answer[1].trailing_metadata() or ()).get)
    return answer


async def _loaded(call: Attempt, calling: Any) -> Any:
    """`_loading`, awaited."""
    answer = await calling
    call.load(dict(await calling.trailing_metadata() or ()).get)
    return answer


def _say(call: Attempt, code: grpc.StatusCode | None) -> None:
    if code in _FAILURES:
        call.fail("timeout" if code is grpc.StatusCode.DEADLINE_EXCEEDED else "reset")
    elif code in _ERRORS:
        call.status(500)
    elif code is grpc.StatusCode.CANCELLED:
        call.fail("agent")
    else:
        call.ok()


def _place(pick: Pick) -> str:
    return place(*aim(pick, "http")[1:])


def _options(pick: Pick) -> Options:
    via = way(pick, "gRPC", "http")
    return (_OWN_CONNECTIONS, ("grpc.enable_http_proxy", 0) if via is None else ("grpc.http_proxy", via))


async def _nothing(_: object) -> None:
    """A unary answer holds nothing that must be closed."""
