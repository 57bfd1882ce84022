"""Streams of clients that ask this center what to do (ADS): one state machine each, no queue, one wake-up for whatever is newest.

A stream that takes nothing holds the one answer that it was sent last, and costs nobody else anything. Decides nothing: what
clients are told is rendered elsewhere, and the protocol is `wire.ads_serving`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from reachline.center.published import Published
from reachline.center.xds.admission import first
from reachline.center.xds.resources import Audience, Cells, Resources, audience_of
from reachline.errors import RemoteProtocolError, one_line
from reachline.model import Seconds
from reachline.net.rpc import Call, Conversation, Write
from reachline.wire.ads import DeltaRequest, Request
from reachline.wire.ads_serving import Heard, Subscriber
from reachline.wire.resources import Differences
from reachline.wire.xds import Node
from reachline.wire.xds_serving import Splicer, read, read_delta

__all__ = ["MOST_STREAMS", "Serving", "Stream"]

log = logging.getLogger("reachline.center.xds")

MOST_STREAMS: Final = 5_000
"""At once: ten times what one core serves within 20 ms; a gRPC process opens one for each target."""


class Stream:
    """One client's stream, for operators to read. Written by `Serving`."""

    __slots__ = (
        "asked_ms", "audience", "cell", "end", "failure", "is_over", "is_returning", "node", "peer", "since_ms", "subscriber", "told",
        "write", "writing",
    )  # fmt: skip

    def __init__(
        self, node: Node, audience: Audience, peer: str, subscriber: Subscriber, *, now_ms: int, write: Write
    ) -> None:
        self.node, self.audience, self.peer, self.subscriber = node, audience, peer, subscriber
        self.write = write
        self.writing: asyncio.Task[None] | None = None
        """While there is something to tell. It ends with the stream."""
        self.end = asyncio.timeout(None)
        """Rescheduled to now where the stream is to end though its client says nothing."""
        self.cell: Published[Resources | None] = Published(None)
        """What its audience is told, once it has joined."""
        self.since_ms = self.asked_ms = now_ms
        """When it began, and when it was heard last."""
        self.told = 0
        """Answers."""
        self.is_returning = False
        """It was told something before this stream, by us or by a center before us."""
        self.is_over = False
        self.failure: Exception | None = None
        """Why nothing can be told any more."""


class Serving:
    """All streams. On one loop."""

    def __init__(
        self,
        cells: Cells,
        *,
        clock: Callable[[], int],
        counts: Counter[tuple[str, str]],
        admit: Callable[[Call, Node], None] = lambda _, __: None,
        audience: Callable[[Node], Audience] = audience_of,
        settled: Published[bool] | None = None,
        most: int = MOST_STREAMS,
    ) -> None:
        """`clock` gives ms; `most` streams at once; `admit` raises PermissionError. While `settled` is false, who was told something before this center
        began is told nothing: it would be less than it has.
        """
        self._cells, self._clock, self._counts = cells, clock, counts
        self._admit, self._audience = admit, audience
        self._settled, self._most = settled or Published(True), most
        self._streams: dict[int, Stream] = {}
        self._number = self._beginning = 0
        self._differences, self._splicer = Differences(), Splicer()
        self._is_closing = False

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Those open now, oldest first."""
        return tuple(self._streams.values())

    @property
    def is_settled(self) -> bool:
        """Whether everybody is told the newest state."""
        return self._settled.value

    async def run(self) -> None:
        """Wakes those who wait for the center to settle; returns then."""
        while not self._settled.value:
            await self._settled.changed(within=_LOOK)
        self._cells.wake()

    def close(self) -> None:
        """Streams end, and no new one begins. Clients go on with what they have."""
        self._is_closing = True
        for stream in self._streams.values():
            _finish(stream)

    @property
    def sotw(self) -> Conversation:
        """Streams of the state of the world."""
        return Conversation(partial(self._hold, read, delta=False))

    @property
    def delta(self) -> Conversation:
        """Streams of changes."""
        return Conversation(partial(self._hold, read_delta, delta=True))

    async def _hold(
        self, parse: _Parse, frames: AsyncIterator[bytes], call: Call, write: Write, *, delta: bool
    ) -> None:
        # Those that have not said yet who they are take room too: after a restart all come at once.
        if len(self._streams) + self._beginning >= self._most:
            self._counts["xds_refused", "full"] += 1
            raise ConnectionError(f"{self._most} streams are open, no more are served")
        number = self._number = self._number + 1
        self._beginning += 1
        try:
            stream = await self._begun(frames, call, parse, write, delta=delta)
        finally:
            self._beginning -= 1
        if self._is_closing:
            raise ConnectionError("the center stops")
        self._streams[number] = stream
        wake = partial(self._stir, stream)
        try:
            stream.cell = self._cells.join(stream.audience, wake)
            wake()
            await self._listen(stream, frames, parse)
        finally:
            stream.is_over = True
            try:
                await _last(stream)
            finally:
                self._streams.pop(number, None)
                self._cells.leave(stream.audience, wake)
                log.info("client_left", extra={"node": stream.node.id, "peer": call.peer, "told": stream.told})

    async def _begun(
        self, frames: AsyncIterator[bytes], call: Call, parse: _Parse, write: Write, *, delta: bool
    ) -> Stream:
        """The stream after its first request."""
        try:
            request, node = parse(await first(frames))
            if node is None:
                raise RemoteProtocolError("the first request of a stream must say who asks (node)")
            self._admit(call, node)
        except (PermissionError, RemoteProtocolError) as error:
            kind = "token" if isinstance(error, PermissionError) else "malformed"
            self._counts["xds_refused", kind] += 1
            log.warning("client_refused", extra={"peer": call.peer, "reason": str(error)})
            raise
        subscriber = Subscriber(self._differences, delta=delta)
        stream = Stream(node, self._audience(node), call.peer, subscriber, now_ms=self._clock(), write=write)
        self._take(stream, request)
        extra = {"node": node.id, "audience": stream.audience.kind.value, "peer": call.peer, "delta": delta}
        log.info("client_came", extra=extra)
        return stream

    async def _listen(self, stream: Stream, frames: AsyncIterator[bytes], parse: _Parse) -> None:
        """Until the client ends its half, breaks the protocol, or cannot be told anything any more."""
        try:
            async with stream.end:
                async for data in frames:
                    self._take(stream, parse(data)[0])
                    self._stir(stream)
        except TimeoutError:
            if stream.failure is not None:
                raise stream.failure from None

    def _stir(self, stream: Stream) -> None:
        """Whatever is due is told, unless it is being told. By a task of its own, for the peer may speak while an answer waits for it."""
        if stream.writing is None and not stream.is_over:
            resources = self._resources(stream)
            if resources is not None and stream.subscriber.may_owe(resources):
                stream.writing = asyncio.create_task(self._tell(stream), name="xds")

    async def _tell(self, stream: Stream) -> None:
        """Each answer is looked for only once the last one was taken by the transport: it is the newest then."""
        try:
            while not stream.is_over and (answer := stream.subscriber.due(self._resources(stream))) is not None:
                stream.told += 1
                self._counts["xds_answers", answer.type_url.rpartition(".")[2]] += 1
                await stream.write(self._splicer.bytes_of(answer))
                del answer  # while the client takes its time it would be kept twice
        except Exception as error:  # noqa: BLE001  (whose stream it is raises it)
            stream.failure = error
            _finish(stream)
        finally:
            stream.writing = None

    def _take(self, stream: Stream, request: Request | DeltaRequest) -> None:
        stream.asked_ms = self._clock()
        try:
            heard = stream.subscriber.received(request)
        except RemoteProtocolError as error:
            self._counts["xds_refused", "malformed"] += 1
            log.warning("client_refused", extra={"node": stream.node.id, "peer": stream.peer, "reason": str(error)})
            raise
        self._counts["xds_requests", heard.value] += 1
        has = request.version if isinstance(request, Request) else request.versions
        stream.is_returning = stream.is_returning or (not stream.told and bool(has))
        if heard is Heard.NACK:
            extra = {"node": stream.node.id, "type": request.type_url.rpartition(".")[2]}
            log.warning("resource_refused", extra={**extra, "reason": one_line(request.error[:_REASON_LOGGED])})

    def _resources(self, stream: Stream) -> Resources | None:
        return stream.cell.value if self._settled.value or not stream.is_returning else None


def _finish(stream: Stream) -> None:
    if not stream.is_over:
        stream.is_over = True
        stream.end.reschedule(asyncio.get_running_loop().time())


async def _last(stream: Stream) -> None:
    """Lets an answer on its way arrive: gRPC cannot say how a stream ended while its first message is being sent, and would keep it."""
    if (writing := stream.writing) is not None:
        try:
            await asyncio.wait((writing,), timeout=_ARRIVES)
        finally:
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing


_Parse = Callable[[bytes], tuple[Request | DeltaRequest, Node | None]]
_LOOK: Final[Seconds] = 60.0
"""A bound, not a poll: the cell says when."""
_ARRIVES: Final[Seconds] = 5.0
"""As long as a client has for its first word: one that takes nothing is not waited for."""
_REASON_LOGGED: Final = 300
"""Characters: the view has more."""
