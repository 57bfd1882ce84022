"""One HTTP request through a cluster: which line, how often, and how it ended. What all adapters share; it knows no library."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Final, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from reachline.errors import LocalProtocolError
from reachline.model import Failure, Seconds
from reachline.upstream import Cluster, Pick
from reachline.upstream.attempt import Attempt
from reachline.upstream.kept import KeptCluster
from reachline.upstream.outcome import failure_of
from reachline.upstream.tries import IDEMPOTENT, TRIES, Plan, Tries, checked, first, sleep

__all__ = ["LIMIT", "Exchange", "Later", "Lines", "Route", "aim", "is_proxy", "place", "placed", "way"]

_KNOWN: Final = 4_096
"""Addresses that are kept taken apart: as many lines as one process calls at a time, and more."""
_ERRORS_FROM: Final = 500
_SHORTEST: Final[Seconds] = 0.001

AnyCluster = Cluster | KeptCluster
R = TypeVar("R")

LIMIT: Final[ContextVar[Callable[[], None] | None]] = ContextVar("reachline_limit", default=None)
"""`Exchange.limit` of the call that is being made, for libraries that connect far below where the line was chosen."""


class Lines(Protocol):
    """A client, as `connect` and `connect_sync` return it."""

    @property
    def clusters(self) -> Mapping[str, AnyCluster]:
        """By name."""


class Later(Exception):  # noqa: N818 - a signal between an adapter and its library's connecting
    """The line takes no new connection now, for it returns and has had its fifty of this second."""


class Route:
    """What an adapter was told once: whose lines, and what holds for every request that says nothing else."""

    def __init__(
        self, lines: Lines, *, tries: int = TRIES, deadline: Seconds | None = None, keep_host: bool = False
    ) -> None:
        self._clusters: Final = {name.lower(): each for name, each in lines.clusters.items()}
        self._usual: Final = Plan(tries=tries, deadline=deadline)
        self._twice: Final = Plan(idempotent=True, tries=tries, deadline=deadline)
        self.keep_host: Final = keep_host
        """Whether the far side is told the name in the URL, not the line's own."""

    def knows(self, host: str) -> bool:
        """Whether `host` is a cluster of ours."""
        return host in self._clusters or host.lower() in self._clusters

    def exchange(self, host: str, method: str, said: object, *, is_replayable: bool) -> Exchange | None:
        """One request's, or None where `host` is no cluster of ours: then the library does what it always does.

        `said` is what the caller attached to this request: a `Plan`. A body that cannot be sent twice is sent once.
        """
        cluster = self._clusters.get(host) or self._clusters.get(host.lower())
        if cluster is None:
            return None
        is_idempotent = method in IDEMPOTENT
        if isinstance(said, dict):
            plan = checked({**self._usual, **cast(Plan, said)})
            is_idempotent = plan.get("idempotent", is_idempotent)
            plan["idempotent"] = is_idempotent and is_replayable
        else:
            plan = self._twice if is_idempotent and is_replayable else self._usual
        return Exchange(cluster, plan)


class Exchange:
    """One request from its first try to the end of its answer. Written by the one thread or task that makes it."""

    __slots__ = ("_cluster", "_is_ended", "_is_paced", "_plan", "_tries", "call", "has_deadline")

    call: Attempt
    """The present try."""

    def __init__(self, cluster: AnyCluster, plan: Plan) -> None:
        self._cluster, self._plan = cluster, plan
        # Made once there is a second try: most calls have none.
        self.has_deadline: Final = plan.get("deadline") is not None
        self._tries = Tries(cluster, plan) if self.has_deadline else None
        self._is_paced, self._is_ended = True, True

    def begin(self) -> Pick | None:
        """The line of the next try; None where the cluster has none: then the request goes where its URL says."""
        tries = self._tries
        self.call = call = first(self._cluster, self._plan) if tries is None else tries.begin()
        self._is_ended = False
        return call.pick

    def run(self, send: Callable[[], R], *, status: Callable[[R], int], close: Callable[[R], None]) -> R:
        """The answer: `send` makes one try, having called `begin`; an answer that is not the last one is closed."""
        try:
            return self._run(send, status, close)
        except BaseException:
            self.give_up()
            raise

    async def run_async(
        self, send: Callable[[], Awaitable[R]], *, status: Callable[[R], int], close: Callable[[R], Awaitable[None]]
    ) -> R:
        """`run`, awaited under asyncio or trio."""
        try:
            return await self._run_async(send, status, close)
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """The request is over, whatever was to be tried yet."""
        if self._tries is not None:
            self._tries.give_up()

    @property
    def limit(self) -> Callable[[], None] | None:
        """To be called before a new connection is made, which raises `Later` if it must not be; None where any may."""
        pick = self.call.pick
        return self._ask if self._is_paced and pick is not None and pick.care is not None else None

    def timeout(self, usual: Seconds | None) -> Seconds | None:
        """The caller's own timeout, or what is left of the deadline if that is less."""
        left = self.call.remaining
        if left is None:
            return usual
        # 0 is no timeout to a socket, but a promise not to wait.
        left = max(left, _SHORTEST)
        return left if usual is None else min(usual, left)

    def failed(self, error: BaseException) -> Seconds | None:
        """A try has raised: how long to wait before the next one, or None where the error is the caller's."""
        if self._is_ended:  # it never began: the call is shed
            return None
        if isinstance(error, Later):
            self.call.fail("agent")
            self._end(None)
            self._is_paced = self._more().elsewhere(self.call)
            return 0.0
        self._end(error)
        return self._more().again(self.call) if isinstance(error, Exception) else None

    def answered(self, status: int, answer: object = None) -> Seconds | None:
        """A try is answered: how long to wait before the next one, or None where this is the answer. Then it is to be `ended`."""
        call = self.call
        call.answered(status)
        if self._cluster.told is not None:
            call.heed_load(answer)
        if status < _ERRORS_FROM or not call.is_retryable:
            return None
        self._end(None)
        return self._more().again(call)

    def ended(self, error: BaseException | None = None) -> None:
        """The answer was read to its end, or given up, or broke off by `error`. Only the first time counts."""
        if self._is_ended:
            return
        # A status was answered, so the line carried that much; a body that breaks off is the line's failure all the same.
        failure = None if error is None else failure_of(error)
        if failure is not None and failure is not Failure.AGENT:
            self.call.fail(failure)
        self._is_ended = True
        self.call.__exit__(None, None, None)

    def _run(self, send: Callable[[], R], status: Callable[[R], int], close: Callable[[R], None]) -> R:
        while True:
            try:
                answer = send()
            except BaseException as error:
                wait = self.failed(error)
                if wait is None:
                    raise
            else:
                wait = self.answered(status(answer), answer)
                if wait is None:
                    return answer
                close(answer)
            time.sleep(wait)

    async def _run_async(
        self, send: Callable[[], Awaitable[R]], status: Callable[[R], int], close: Callable[[R], Awaitable[None]]
    ) -> R:
        while True:
            try:
                answer = await send()
            except BaseException as error:
                wait = self.failed(error)
                if wait is None:
                    raise
            else:
                wait = self.answered(status(answer), answer)
                if wait is None:
                    return answer
                await close(answer)
            await sleep(wait)

    def _more(self) -> Tries:
        if self._tries is None:
            self._tries = Tries(self._cluster, self._plan)
        return self._tries

    def _end(self, error: BaseException | None) -> None:
        self._is_ended = True
        self.call.__exit__(None if error is None else type(error), error, None)

    def _ask(self) -> None:
        pick = self.call.pick
        if pick is not None and pick.care is not None and not pick.care.may_connect():
            raise Later(pick.line)


def aim(pick: Pick, scheme: str) -> tuple[str, str, int | None]:
    """Scheme, host and port to call a line by; a line that names no scheme of HTTP is called by the request's own."""
    return placed(pick.url, pick.address, pick.target, scheme)


@lru_cache(maxsize=_KNOWN)
def placed(url: str, address: tuple[str, int] | None, target: str, scheme: str) -> tuple[str, str, int | None]:
    """`aim`, for who keeps what comes of it by these."""
    parts = urlsplit(url)
    if parts.scheme in ("http", "https") and parts.hostname:
        return parts.scheme, parts.hostname, parts.port
    return (scheme, target, None) if address is None else (scheme, *address)


def place(host: str, port: int | None) -> str:
    """`host:port` as URLs write it."""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def is_proxy(via: str) -> bool:
    """Whether a line is reached by way of another machine."""
    return via not in ("", "direct")


def way(pick: Pick, library: str, *schemes: str) -> str | None:
    """The proxy that a line is reached by, or None; LocalProtocolError where the library cannot go by such a one."""
    if not is_proxy(pick.via):
        return None
    scheme, _, rest = pick.via.partition("://")
    if scheme not in schemes or "," in rest:
        known = " and ".join(f"{each}://" for each in schemes)
        raise LocalProtocolError(
            f"line {pick.line}: {library} goes through {known} proxies alone, not {scheme}://{rest.rpartition('@')[2]}"
        )
    return pick.via
