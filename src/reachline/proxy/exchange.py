"""One request and its answer: routed, tried, perhaps tried again, answered, told. The proxy's fast path is the straight line through it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from reachline.errors import Shed
from reachline.model import Seconds
from reachline.proxy import flags
from reachline.proxy.flags import LocalReply, Lost
from reachline.proxy.grpc import as_grpc, code_of, is_grpc
from reachline.proxy.message import Answer, Headers, Request
from reachline.proxy.retries import Retries
from reachline.proxy.way import Way
from reachline.upstream.listing import Pick
from reachline.upstream.outcome import Column, column_of

if TYPE_CHECKING:
    from reachline.proxy.carried import EndpointStream
    from reachline.proxy.channel import EndpointChannel
    from reachline.proxy.downstream import Downstream
    from reachline.proxy.front import Front
    from reachline.proxy.stream import Stream

__all__ = ["Exchange"]

_SWITCHING: Final = 101


class Exchange:
    """Written by its two connections and the front's timers, in one thread. Ends exactly once, by `_end`."""

    __slots__ = (
        "_answer", "_channel", "_counted", "_handle", "_try_began", "_waits", "active_at", "bytes_out", "code",
        "details", "down", "flag", "front", "headers_out", "host", "is_begun", "is_over", "is_raw", "key", "pick", "request", "retries",
        "sent_at", "service_ms", "way",
    )  # fmt: skip

    def __init__(self, front: Front, down: Downstream | Stream, request: Request) -> None:
        self.front: Final[Front] = front
        self.down: Final[Downstream | Stream] = down
        self.request: Final[Request] = request
        self.way: Way | None = None
        self.pick: Pick | None = None
        self.retries: Retries | None = None
        self.host: bytes = request.authority
        """As the endpoint was told."""
        self.key: int | None = None
        """What keeps it together with others, under hash policies."""
        self.code: int = 0
        self.flag: str = ""
        self.details: str = "via_upstream"
        self.bytes_out: int = 0
        self.headers_out: Headers = []
        """Of the answer, as the client got it."""
        self.service_ms: int | None = None
        self.active_at = request.began
        self.sent_at: Seconds | None = None
        """When the request was here whole, and sent."""
        self.is_begun = self.is_over = self.is_raw = False
        self._answer: Answer | None = None
        self._channel: EndpointChannel | EndpointStream | None = None
        self._waits = self._counted = False
        """Whether a connection is waited for; whether the backend counts this request."""
        self._try_began: Seconds = 0.0
        self._handle: asyncio.TimerHandle | None = None
        """Of the wait before a retry."""

    @property
    def trailers(self) -> Headers:
        """Of the answer."""
        return [] if self._answer is None else self._answer.trailers

    def begin(self) -> None:
        """Route it, and send it on."""
        front, request = self.front, self.request
        if request.expects and not front.manager.proxy_100_continue:
            self.down.go_ahead()
        decided = front.decide(request, self.down.peer)
        if isinstance(decided, LocalReply):
            self.reply(decided)
            return
        self.way = way = decided
        if request.upgrade and not self._upgrades(way):
            return
        if not way.backend.admit(high=way.high):
            self.reply(flags.reset_reply(flags.OVERFLOW, retried=False))
            return
        self._counted = True
        if way.hash:
            self.key = front.key_of(way, request, self.down.peer)
        if way.retry is not None:
            self.retries = Retries(way.retry, way.backend, high=way.high, limit=way.buffer_limit)
        self._try()

    def more(self) -> None:
        """There is more of the request's body, or its end."""
        self.active_at = self.front.now()
        channel, request = self._channel, self.request
        if channel is None:
            if not self.is_over and request.size > self.front.buffer_limit:
                self.down.hold(True)
            return
        body = self._take_body()
        if request.is_complete:
            self._whole()
        channel.more(request, body)

    def gone(self, details: str = "downstream_remote_disconnect", flag: str = "DC") -> None:
        """The client, or its wish for an answer, is no more."""
        if not self.is_over:
            self.flag, self.details = flag, details
            self._give_up()
            self._end(keep=False)

    # What the pool tells.

    def connected(self, channel: EndpointChannel | EndpointStream) -> None:
        self._waits = False
        self._send(channel)

    def unconnected(self, lost: Lost) -> None:
        self._waits = False
        self._fail(lost)

    # What the channel tells.

    def heard(self) -> None:
        answer = self._answer
        if answer is None or not answer.is_begun:
            return
        self.active_at = self.front.now()
        headers: Headers | None = None
        if not self.is_begun:
            if answer.status == _SWITCHING and not self.request.upgrade:
                self._drop_channel()
                self._fail(flags.PROTOCOL)
                return
            if self.retries is not None and self._throws_away(answer, self.retries):
                return
            headers = self.front.answered(self, answer)
        chunks, answer.chunks = answer.chunks, []
        if chunks:
            self.bytes_out += sum(map(len, chunks))
        self.down.answer(self, answer, headers, chunks)
        if answer.status == _SWITCHING:
            self._switch()
        elif answer.is_complete:
            self._complete(answer)

    def lost(self, lost: Lost) -> None:
        self._channel = None
        if self.is_raw:
            self._end(keep=False)
        else:
            self._fail(lost)

    def raw(self, data: bytes) -> None:
        self.active_at = self.front.now()
        self.bytes_out += len(data)
        self.down.write_raw(data)

    def endpoint_writable(self, is_so: bool, /) -> None:
        self.down.hold(not is_so)

    # What the client's connection tells.

    def client_writable(self, is_so: bool, /) -> None:
        if self._channel is not None:
            self._channel.hold(not is_so)

    def raw_from_client(self, data: bytes) -> None:
        """After an upgrade; empty: the client sends no more."""
        self.active_at = self.front.now()
        self.request.size += len(data)
        if self._channel is not None:
            self._channel.write_raw(data)

    # What timers tell.

    def late(self) -> None:
        if self.way is not None:
            self.way.backend.counts["upstream_rq_timeout"] += 1
        self.over(flags.TIMED_OUT)

    def try_late(self) -> None:
        if self.way is not None:
            self.way.backend.counts["upstream_rq_per_try_timeout"] += 1
        if self.is_begun:
            self.over(flags.TIMED_OUT)
        else:
            self._drop_channel()
            self._fail(flags.TIMEOUT)

    def reply(self, reply: LocalReply) -> None:
        """Answer it here."""
        if is_grpc(self.request):
            reply = as_grpc(reply, head_only=self.request.method == b"HEAD")
        keep = not reply.closes and self.request.is_complete and self.request.keeps and not self.front.is_draining
        self.code, self.flag, self.details = reply.status, reply.flag, reply.details or "direct_response"
        self.bytes_out = 0 if self.request.method == b"HEAD" else len(reply.body)
        self.is_begun = True
        self.down.reply(self, reply, self.front.replied(self, reply), closes=not keep)
        self._end(keep=keep)

    # Inside.

    def _upgrades(self, way: Way) -> bool:
        """Whether to go on: with the upgrade, or without it where nobody here knows the protocol."""
        request = self.request
        if request.upgrade.decode("latin-1") in way.upgrades:
            return True
        if request.upgrade in self.front.known_upgrades or not self.down.no_upgrade():
            self.reply(flags.UPGRADE_FORBIDDEN)
            return False
        request.upgrade = b""
        return True

    def _try(self) -> None:
        way, retries = self.way, self.retries
        assert way is not None
        kept, pick = way.backend.kept, None
        try:
            if retries is not None and retries.tried and retries.policy.other_endpoint:
                pick = kept.another(retries.tried, self.key, way.subset)
            self.pick = pick = kept.begin(self.key, way.subset, pick)
        except Shed:
            self.reply(flags.DROPPED)
            return
        self._try_began = self.front.now()
        if pick is None:
            way.backend.counts["upstream_cx_none_healthy"] += 1
            self.reply(flags.NO_ENDPOINT)
            return
        authority, version = self.request.authority.decode("latin-1"), self.request.version
        channel = way.backend.pool.take(pick, authority, version)
        if channel is not None:
            self._send(channel)
        elif way.backend.pool.wait(pick, self, authority, version):
            self._waits = True
        else:
            self._fail(flags.OVERFLOW)

    def _send(self, channel: EndpointChannel | EndpointStream) -> None:
        request = self.request
        assert self.way is not None
        self.way.backend.counts["upstream_rq_total"] += 1
        self._channel = channel
        headers = self.front.asked(self)
        # What was sent before, whole, and what came since, also where the two are too much to be kept for one more try.
        before = [] if self.retries is None or self.retries.body is None else list(self.retries.body)
        body = before + self._take_body()
        if request.is_complete:
            self._whole()
        else:
            self.down.hold(False)
        self._answer = channel.ask(self, request, headers, body)

    def _take_body(self) -> list[bytes]:
        request = self.request
        chunks, request.chunks = request.chunks, []
        if chunks and self.retries is not None:
            self.retries.keep(chunks, request.size)
        return chunks

    def _whole(self) -> None:
        """The request is here whole: from now on the answer is waited for."""
        way, front, request = self.way, self.front, self.request
        assert way is not None
        if self.sent_at is None:
            self.sent_at = self.active_at
            # After an upgrade either end may speak as long as it likes.
            if way.timeout is not None and not request.upgrade:
                front.route_alarm(way.timeout).set(self)
        if way.retry is not None and way.retry.per_try_timeout is not None:
            front.try_alarm(way.retry.per_try_timeout).set(self)

    def _throws_away(self, answer: Answer, retries: Retries) -> bool:
        """Whether there is another try in an answer's place."""
        if not retries.want_after(answer, self.front.matcher(retries.policy)):
            if retries.is_over_limit:
                self.flag = "URX"
            return False
        code = code_of(self.request, answer)
        self._finish_try(flags.column(code), code)
        channel, self._channel = self._channel, None
        if channel is not None:
            self._let_go(channel, answer)
        self._again(retries)
        return True

    def _again(self, retries: Retries) -> None:
        way = self.way
        assert way is not None
        self._answer = None
        self._clear_try(way)
        wait = retries.next(self.pick, self.front.rng)
        self._handle = self.front.loop.call_later(wait, self._try)

    def _fail(self, lost: Lost) -> None:
        if self.is_over:
            return
        answer = self._answer
        self._finish_try(column_of(lost.failure))
        if self.is_begun:
            self.flag, self.details = lost.flag, "upstream_reset_after_response_started"
            self.down.cut()
            self._end(keep=False)
            return
        retries = self.retries
        if retries is not None and retries.want_without(lost, is_sent=answer is not None):
            self._again(retries)
            return
        tried_again = retries is not None and retries.count > 0
        reply = flags.reset_reply(lost, retried=tried_again)
        is_over_limit = retries is not None and retries.is_over_limit
        self.reply(reply if is_over_limit else reply._replace(flag=lost.flag))

    def over(self, reply: LocalReply) -> None:
        """End it now: by this reply, or where the answer has begun, by cutting it off."""
        if self.is_over:
            return
        self._give_up(Column.LATE if reply is flags.TIMED_OUT else Column.NONE)
        if not self.is_begun:
            self.reply(reply)
            return
        self.flag, self.details = reply.flag, reply.details
        self.down.cut()
        self._end(keep=False)

    def _complete(self, answer: Answer) -> None:
        code = code_of(self.request, answer)
        self._finish_try(flags.column(code), code)
        channel, self._channel = self._channel, None
        self._end(keep=self.front.keeps(self.down, self.request))
        if channel is not None:
            self._let_go(channel, answer)

    def _let_go(self, channel: EndpointChannel | EndpointStream, answer: Answer) -> None:
        if answer.is_complete and answer.keeps and self.request.is_complete:
            channel.release()
        else:
            channel.abort()

    def _switch(self) -> None:
        assert self.way is not None
        self._clear_try(self.way)
        self.is_raw = True
        self._finish_try(Column.OK, _SWITCHING)
        rest = self.down.switch(self)
        if rest:
            self.raw_from_client(rest)

    def _give_up(self, column: Column = Column.NONE) -> None:
        self._finish_try(column)
        if self._waits and self.way is not None:
            self._waits = False
            self.way.backend.pool.leave(self)
        if self._handle is not None:
            self._handle.cancel()
        self._drop_channel()

    def _drop_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.abort()

    def _finish_try(self, column: Column, code: int | None = None) -> None:
        """What this try came to, for those who judge endpoints. Once a try."""
        pick, way = self.pick, self.way
        if pick is None or way is None or self._try_began < 0:
            return
        began, self._try_began = self._try_began, -1.0
        took, answer = self.front.now() - began, self._answer
        way.backend.ended(pick, column, took, code, answer)

    def _clear_try(self, way: Way) -> None:
        if way.retry is not None and way.retry.per_try_timeout is not None:
            self.front.try_alarm(way.retry.per_try_timeout).clear(self)

    def _end(self, *, keep: bool) -> None:
        self.is_over = True
        way, front = self.way, self.front
        if way is not None:
            if self.sent_at is not None and way.timeout is not None:
                front.route_alarm(way.timeout).clear(self)
            self._clear_try(way)
            if self._counted:
                way.backend.leave(high=way.high)
            if self.retries is not None:
                self.retries.end()
        front.told(self)
        self.down.ended(keep=keep)
