"""What a peer says, frame by frame, and what it comes to: events, and frames that answer it. Written for `Connection` alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from reachline.model import Seconds
from reachline.proxy.http2 import fields, frames, settings
from reachline.proxy.http2.blocks import Blocks
from reachline.proxy.http2.compress import Heard
from reachline.proxy.http2.cutting import Cutter
from reachline.proxy.http2.events import Answered, Asked, Body, Ended, Event, Field, Gone, Pong, Reset
from reachline.proxy.http2.floods import Floods
from reachline.proxy.http2.frames import ACK, END_STREAM, PADDED, BrokenError, frame, unpadded
from reachline.proxy.http2.limits import MAX_WINDOW, Code, Limits
from reachline.proxy.http2.room import Room
from reachline.proxy.http2.sending import Sender
from reachline.proxy.http2.settings import Setting
from reachline.proxy.http2.streams import Stream

__all__ = ["Hearing"]

_WINDOW: Final = 65_535
"""Of streams to begin with (RFC 9113, 6.9.2)."""
_UNTOLD: Final = 100
"""Streams at once, before the peer says how many: no peer should take fewer (RFC 9113, 6.5.2)."""
_FINAL: Final = 200
_BODILESS: Final = frozenset({204, 304})
_DRAINING: Final = b"draining"
"""Of the ping whose answer says that the peer knows of the first GOAWAY. Eight bytes."""


class Hearing:
    """One connection's state."""

    __slots__ = (
        "blocks", "counts", "cutter", "events", "floods", "is_client", "is_dead", "is_final", "is_told", "is_warned", "last", "limits", "most", "next",
        "now", "peer_last", "room", "sender", "streams", "takes_connect", "window",
    )  # fmt: skip

    def __init__(self, limits: Limits, counts: Counter[str], *, is_client: bool) -> None:
        self.counts: Final[Counter[str]] = counts
        self.limits: Final = limits
        self.is_client: Final = is_client
        self.cutter: Final = Cutter(is_client=is_client)
        self.blocks: Final = Blocks(limits)
        self.floods: Final = Floods(limits, counts)
        self.sender: Final = Sender(limits.table)
        self.room: Final = Room(limits, self.sender)
        self.streams: Final[dict[int, Stream]] = {}
        """Open: where one side has more to say."""
        self.events: list[Event] = []
        self.now: Seconds = 0.0
        self.window = _WINDOW
        """Of what we say on a new stream."""
        self.most = min(limits.streams, _UNTOLD)
        """Of streams of ours at once."""
        self.last = 0
        """The peer's last stream that was taken."""
        self.next = 1
        """The next stream of ours."""
        self.peer_last: int | None = None
        """Our last stream that the peer takes, once it says that it goes away."""
        self.is_told = False
        """Whether the peer has said its settings."""
        self.is_warned = self.is_final = self.is_dead = False
        """Whether the peer was told that no more streams will be taken; whether none are; whether nothing at all is."""
        self.takes_connect = False
        """Whether the peer takes extended CONNECT (RFC 8441)."""
        self.sender.put(
            (frames.PREFACE if is_client else b"") + settings.said(limits, is_client=is_client) + self.room.opening()
        )

    def take(self, data: bytes) -> None:
        """Bytes of the peer; BrokenError where it broke the protocol."""
        blocks = self.blocks
        for kind, flags, stream, payload in self.cutter.feed(data):
            if blocks.stream and kind != frames.CONTINUATION:
                raise BrokenError(Code.PROTOCOL_ERROR, "headers are interrupted")
            handler = _HANDLERS.get(kind)
            if handler is not None:
                handler(self, flags, stream, payload)
        if self.sender.said:
            self.reap()
        self.floods.outbound(self.sender)

    # Ends, as both sides make them.

    def warn(self) -> None:
        """No more streams will be taken."""
        self.is_warned = True
        self.go_away(MAX_WINDOW, Code.NO_ERROR)
        self.sender.put(frame(frames.PING, 0, 0, _DRAINING))

    def known(self) -> list[Stream]:
        """Open streams that were told of."""
        return [each for each in self.streams.values() if each.has_head or self.is_client]

    def reap(self) -> None:
        """Streams on which all is said: they are over where all is heard. Who was answered is asked for no more."""
        said, self.sender.said = self.sender.said, []
        for stream in said:
            if stream.id not in self.streams:
                continue
            if stream.is_heard:
                self._close(stream)
            elif not self.is_client:
                self.say_reset(stream, Code.NO_ERROR)
                self._close(stream)

    def _close(self, stream: Stream) -> None:
        self.remove(stream)
        if not self.is_client:
            self.floods.closed(is_early=False)

    def remove(self, stream: Stream) -> None:
        del self.streams[stream.id]
        self.sender.forget(stream)
        if stream.owed:
            self.room.give_connection(stream.owed)

    def _fail(self, stream: Stream, code: Code) -> None:
        """A stream that broke the protocol."""
        self.say_reset(stream, code)
        if stream.has_head or self.is_client:
            self.events.append(Reset(stream.id, code, is_ours=True))
        self.remove(stream)

    def say_reset(self, stream: Stream, code: int) -> None:
        self.counts["tx_reset"] += 1
        self.sender.control(frame(frames.RST_STREAM, 0, stream.id, frames.pack_code(code)))

    def _check_closed(self, number: int) -> None:
        """What comes on a stream that is over was on its way; on one that never began it is an error."""
        begun = number < self.next if self.is_client else number <= self.last or self.is_final
        if not number & 1 or not begun:
            raise BrokenError(Code.PROTOCOL_ERROR, f"a frame on stream {number}, which never began")

    def end_streams(self) -> None:
        self.is_final = True
        self.go_away(self.last, Code.NO_ERROR)

    def go_away(self, last: int, code: int, words: str = "") -> None:
        self.counts["goaway_sent"] += 1
        self.sender.put(frames.goaway(last, code, words))

    # Frames.

    def data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self.room.take(size)
        if flags & PADDED:
            payload = unpadded(payload)
        ends = flags & END_STREAM
        self.floods.empty(is_empty=not payload and not ends)
        stream = self.streams.get(number)
        if stream is None:
            self._check_closed(number)
            self.room.give_connection(size)
            return
        if stream.is_heard:
            raise BrokenError(Code.STREAM_CLOSED, "DATA behind the end of its message")
        self.room.take_of(stream, size)
        if not stream.has_head:
            self._fail(stream, Code.PROTOCOL_ERROR)
            return
        if stream.expected is not None:
            stream.expected -= len(payload)
            if stream.expected < 0:
                self._fail(stream, Code.PROTOCOL_ERROR)
                return
        if payload:
            self.events.append(Body(number, payload))
        if ends:
            self._end(stream, [])

    def headers(self, flags: int, number: int, payload: bytes) -> None:
        self.floods.empty(is_empty=not payload and not flags & END_STREAM)
        whole = self.blocks.begin(flags, number, payload)
        if whole is not None:
            self._message(number, whole[1], ends=bool(whole[0] & END_STREAM))

    def continuation(self, flags: int, number: int, payload: bytes) -> None:
        self.floods.empty(is_empty=not payload)
        whole = self.blocks.go_on(flags, number, payload)
        if whole is not None:
            self._message(number, whole[1], ends=bool(whole[0] & END_STREAM))

    def reset(self, _: int, number: int, payload: bytes) -> None:
        stream = self.streams.get(number)
        if stream is None:
            self._check_closed(number)
            return
        self.counts["rx_reset"] += 1
        is_known = stream.has_head or self.is_client
        is_early = not stream.is_answered and self.now - stream.began < self.limits.early
        if is_known:
            self.events.append(Reset(number, int.from_bytes(payload, "big")))
        self.remove(stream)
        if not self.is_client:
            self.floods.closed(is_early=is_early)

    def priority(self, _: int, __: int, ___: bytes) -> None:
        self.floods.priority()

    def settings(self, flags: int, _: int, payload: bytes) -> None:
        if flags & ACK:
            if payload:
                raise BrokenError(Code.FRAME_SIZE_ERROR, "an acknowledgement that says something")
            return
        found = settings.heard(payload, is_client=self.is_client)
        sender = self.sender
        if Setting.TABLE in found:
            sender.encoder.resize(found[Setting.TABLE])
        if Setting.STREAMS in found:
            self.most = min(self.limits.streams, found[Setting.STREAMS])
        elif not self.is_told:
            self.most = self.limits.streams
        self.is_told = True
        if Setting.CONNECT in found:
            self.takes_connect = bool(found[Setting.CONNECT])
        sender.control(frame(frames.SETTINGS, ACK, 0))
        window = found.get(Setting.WINDOW, self.window)
        change, self.window = window - self.window, window
        if not change:
            return
        for stream in self.streams.values():
            stream.room += change
            if stream.room > MAX_WINDOW:
                raise BrokenError(Code.FLOW_CONTROL_ERROR, "a window beyond 31 bits")
            sender.wake(stream)
        sender.pump()

    def push(self, _: int, __: int, ___: bytes) -> None:
        raise BrokenError(Code.PROTOCOL_ERROR, "PUSH_PROMISE, which nobody agreed to")

    def ping(self, flags: int, _: int, payload: bytes) -> None:
        if not flags & ACK:
            self.sender.control(frame(frames.PING, ACK, 0, payload))
        elif payload != _DRAINING:
            self.events.append(Pong(payload))
        elif self.is_warned and not self.is_final:
            self.end_streams()

    def goaway(self, _: int, __: int, payload: bytes) -> None:
        last, code = int.from_bytes(payload[:4], "big") & MAX_WINDOW, int.from_bytes(payload[4:8], "big")
        self.peer_last = last if self.peer_last is None else min(last, self.peer_last)
        self.events.append(Gone(last, code))
        if self.is_client:
            for stream in [each for each in self.streams.values() if each.id > last]:
                self.events.append(Reset(stream.id, Code.REFUSED_STREAM))
                self.remove(stream)

    def update(self, _: int, number: int, payload: bytes) -> None:
        sender = self.sender
        more = int.from_bytes(payload, "big") & MAX_WINDOW
        self.floods.update(sender.data_frames)
        if not more:
            raise BrokenError(Code.PROTOCOL_ERROR, "a window update of nothing")
        if not number:
            sender.room += more
            if sender.room > MAX_WINDOW:
                raise BrokenError(Code.FLOW_CONTROL_ERROR, "a window beyond 31 bits")
            sender.pump()
            return
        stream = self.streams.get(number)
        if stream is None:
            self._check_closed(number)
            return
        stream.room += more
        if stream.room > MAX_WINDOW:
            self._fail(stream, Code.FLOW_CONTROL_ERROR)
            return
        sender.wake(stream)
        sender.pump()

    # Messages.

    def _message(self, number: int, heard: Heard, *, ends: bool) -> None:
        """Headers are here whole."""
        stream = self.streams.get(number)
        if stream is None:
            if self.is_client or (number & 1 and number <= self.last):
                self._check_closed(number)
                return
            stream = self._open(number)
            if stream is None:
                return
        elif stream.is_heard:
            raise BrokenError(Code.STREAM_CLOSED, "HEADERS behind the end of their message")
        limits = self.limits
        if heard.number > limits.headers or heard.size > limits.head:
            self.counts["header_list_size_too_large" if heard.size > limits.head else "header_overflow"] += 1
            self._fail(stream, Code.INTERNAL_ERROR)
            return
        try:
            if stream.has_head:
                self._take_trailers(stream, heard.fields, ends=ends)
            else:
                self._take_head(stream, heard.fields, ends=ends)
        except fields.MalformedError as error:
            self.counts["rx_messaging_error"] += 1
            if not limits.is_stream_error:
                raise BrokenError(Code.PROTOCOL_ERROR, f"malformed: {error}") from error
            self._fail(stream, Code.PROTOCOL_ERROR)

    def _open(self, number: int) -> Stream | None:
        """A stream that the peer begins; None where it is not taken."""
        if not number & 1:
            raise BrokenError(Code.PROTOCOL_ERROR, "a stream of an even number")
        if self.is_final or self.is_dead:
            return None
        self.last = number
        self.floods.streams += 1
        stream = Stream(number, self.window, self.limits.stream_window, self.now)
        if len(self.streams) >= self.limits.streams:
            self.say_reset(stream, Code.REFUSED_STREAM)
            return None
        self.streams[number] = stream
        return stream

    def _take_head(self, stream: Stream, found: list[Field], *, ends: bool) -> None:
        head: Asked | Answered
        length: int | None
        if self.is_client:
            head = fields.response(stream.id, found)
            if head.status < _FINAL:
                if ends:
                    raise fields.MalformedError("an interim answer that is the last")
                self.events.append(head)
                return
            # A body where there is none would be the next answer to whoever speaks HTTP/1.1.
            length = 0 if stream.is_head or head.status in _BODILESS else head.length
        else:
            head = fields.request(stream.id, found, allow_connect=self.limits.allow_connect)
            length = head.length
        if ends and length:
            raise fields.MalformedError("a length, and no body")
        stream.expected = length
        stream.has_head = True
        self.events.append(head)
        if ends:
            self._end(stream, [])

    def _take_trailers(self, stream: Stream, found: list[Field], *, ends: bool) -> None:
        if not ends:
            raise fields.MalformedError("trailers that end nothing")
        self.counts["trailers"] += 1
        self._end(stream, fields.trailers(found))

    def _end(self, stream: Stream, trailers: list[Field]) -> None:
        """The peer has said all."""
        if stream.expected:
            self._fail(stream, Code.PROTOCOL_ERROR)  # less than its length
            return
        stream.is_heard = True
        self.events.append(Ended(stream.id, trailers))
        if stream.is_said:
            self._close(stream)


_HANDLERS: Final[dict[int, Callable[[Hearing, int, int, bytes], None]]] = {
    frames.DATA: Hearing.data,
    frames.HEADERS: Hearing.headers,
    frames.PRIORITY: Hearing.priority,
    frames.RST_STREAM: Hearing.reset,
    frames.SETTINGS: Hearing.settings,
    frames.PUSH_PROMISE: Hearing.push,
    frames.PING: Hearing.ping,
    frames.GOAWAY: Hearing.goaway,
    frames.WINDOW_UPDATE: Hearing.update,
    frames.CONTINUATION: Hearing.continuation,
}
