"""One HTTP/2 connection, from either end (RFC 9113): bytes in, events out, bytes out. Refuses to know requests' meaning, sockets and clocks.

Memory is bounded: of heads by `Limits.head`, of bodies by the windows, of what is said by who says it (`pending`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from reachline.errors import LocalProtocolError
from reachline.model import Seconds
from reachline.proxy.http2 import frames
from reachline.proxy.http2.events import Event, Field, Reset
from reachline.proxy.http2.frames import BrokenError, frame
from reachline.proxy.http2.hearing import Hearing
from reachline.proxy.http2.limits import MAX_WINDOW, Code, Limits
from reachline.proxy.http2.sending import Sender
from reachline.proxy.http2.streams import Stream

__all__ = ["Connection"]

_FINAL: Final = 200
_PSEUDO: Final = 5
"""Pseudo-headers of a request at most."""
_STATUS: Final = {status: (b":status", b"%d" % status) for status in range(100, 1_000)}


class Connection:
    """Written by whoever holds it, one call at a time.

    After each turn: `while not full and (data := take()): write(data)`, then `writable()`; once `is_over`, close what carries it.
    """

    __slots__ = ("_hearing", "_sender", "broken", "counts")

    def __init__(self, limits: Limits, counts: Counter[str] | None = None, *, is_client: bool = False) -> None:
        """`counts`: Envoy's, by their names behind `http2.`, of all connections that share it."""
        self.counts: Final[Counter[str]] = Counter() if counts is None else counts
        self.broken = ""
        """How the peer broke the protocol."""
        self._hearing: Final = Hearing(limits, self.counts, is_client=is_client)
        self._sender: Final[Sender] = self._hearing.sender

    # What both ends do.

    def feed(self, data: bytes, now: Seconds = 0.0) -> list[Event]:
        """What came, as events, in order. A peer that breaks the protocol gets GOAWAY, and each open stream its `Reset`."""
        hearing = self._hearing
        if hearing.is_dead:
            return []
        hearing.now = now
        events: list[Event] = []
        hearing.events = events
        try:
            hearing.take(data)
        except BrokenError as error:
            self.broken = str(error)
            events += (Reset(each.id, error.code, is_ours=True) for each in hearing.known())
            self.close(error.code, self.broken)
        return events

    def take(self) -> bytes:
        """What is to be written next, some 64 KiB at most; empty: nothing for now."""
        data = self._sender.take()
        if self._sender.said:
            self._hearing.reap()
        return data

    def writable(self) -> list[int]:
        """Streams of which `body` said that something is pending, and nothing is any more. Each once."""
        drained = self._sender.drained
        if not drained:
            return []
        self._sender.drained = []
        return drained

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens: what `take` gives yet is the last."""
        hearing = self._hearing
        if hearing.is_dead:
            return True
        is_ending = hearing.is_final or (hearing.is_client and hearing.peer_last is not None)
        return is_ending and not hearing.streams

    @property
    def is_amid_head(self) -> bool:
        """Whether headers have begun that are not here whole."""
        return self._hearing.blocks.stream > 0 or self._hearing.cutter.is_amid_head

    @property
    def takes_connect(self) -> bool:
        """Whether the peer takes extended CONNECT (RFC 8441)."""
        return self._hearing.takes_connect

    @property
    def streams(self) -> int:
        """How many are open."""
        return len(self._hearing.streams)

    def pending(self, stream: int) -> int:
        """Bytes of a body that the peer does not take yet."""
        found = self._hearing.streams.get(stream)
        return 0 if found is None else found.pending

    def body(self, stream: int, data: bytes, end: bool = False) -> int:
        """Say some of a body; `pending` after it. What is said of a stream that is reset is lost. An empty piece says nothing but `end`."""
        found = self._speaks(stream)
        if found is None:
            return 0
        self._sender.body(found, data, is_last=end)
        if self._sender.said:
            self._hearing.reap()
        if found.pending:
            found.is_watched = True
        return found.pending

    def trailers(self, stream: int, headers: Sequence[Field]) -> None:
        """End a message by these, behind all of its body. LocalProtocolError where one cannot be said."""
        found = self._speaks(stream)
        if found is None:
            return
        self._sender.end(found, self._sender.encoder.checked(headers))
        if self._sender.said:
            self._hearing.reap()

    def reset(self, stream: int, code: int = Code.CANCEL) -> None:
        """End a stream now, whatever is not said yet; no event follows. NO_ERROR behind a whole answer: the rest of the request is not wanted."""
        found = self._hearing.streams.get(stream)
        if found is not None:
            self._hearing.say_reset(found, code)
            self._hearing.remove(found)

    def hold(self, stream: int) -> None:
        """Give no more room to a stream: what is on its way still comes, a window's worth at most."""
        if (found := self._hearing.streams.get(stream)) is not None:
            found.is_held = True

    def go_on(self, stream: int) -> None:
        """Give back the room of all that came meanwhile."""
        found = self._hearing.streams.get(stream)
        if found is None or not found.is_held:
            return
        found.is_held = False
        owed, found.owed = found.owed, 0
        self._hearing.room.give(found, owed)

    def ping(self, data: bytes) -> None:
        """Ask for a `Pong` with these eight bytes."""
        self._sender.put(frame(frames.PING, 0, 0, data))

    def drain(self) -> None:
        """Say that no more streams will be taken: first a warning, and once the peer has heard it, or on a second call, the last stream.

        `is_over` once those under way have ended.
        """
        hearing = self._hearing
        if hearing.is_dead or hearing.is_final:
            return
        if hearing.is_warned:
            hearing.end_streams()
        else:
            hearing.warn()

    def close(self, code: int = Code.NO_ERROR, words: str = "") -> None:
        """End the connection now: nothing more is heard, and no event follows."""
        hearing = self._hearing
        if hearing.is_dead:
            return
        hearing.go_away(hearing.last, code, words)
        hearing.is_dead = True
        for stream in tuple(hearing.streams.values()):
            hearing.remove(stream)

    # What a server does.

    def answer(self, stream: int, status: int, headers: Sequence[Field], end: bool = False) -> None:
        """Say a response's head, or an interim one. LocalProtocolError where a header cannot be said, or one was said before."""
        found = self._speaks(stream)
        if found is None:
            return
        if found.is_answered:
            raise LocalProtocolError("a second answer on a stream")
        self._sender.head(found, [_STATUS[status], *headers], is_last=end)
        found.is_answered = status >= _FINAL
        if end:
            self._hearing.reap()

    # What a client does.

    def can_ask(self) -> bool:
        """Whether the peer takes one more stream now."""
        hearing = self._hearing
        if hearing.is_dead or hearing.is_final or hearing.peer_last is not None:
            return False
        return len(hearing.streams) < hearing.most and hearing.next <= MAX_WINDOW

    def ask(self, headers: Sequence[Field], end: bool = False) -> int:
        """Say a request's head, pseudo-headers first; its stream. LocalProtocolError where a header cannot be said, or nobody would hear it."""
        if not self.can_ask():
            raise LocalProtocolError("the peer takes no more streams now")
        hearing = self._hearing
        stream = Stream(hearing.next, hearing.window, hearing.limits.stream_window, hearing.now)
        stream.is_head = (b":method", b"HEAD") in headers[:_PSEUDO]
        self._sender.head(stream, headers, is_last=end)
        self._sender.said.clear()  # nothing is heard yet
        hearing.streams[stream.id] = stream
        hearing.next += 2
        hearing.floods.streams += 1
        return stream.id

    def _speaks(self, stream: int) -> Stream | None:
        """A stream on which there is more to say; None where it is reset."""
        found = self._hearing.streams.get(stream)
        if found is not None and found.has_end:
            raise LocalProtocolError("a message goes on behind its end")
        return found
