"""What follows connect on a stream: proxies, TLS, then the talk, each phase timed at the interface where the kernel stamps it.

All three are the same two steps, a handshake where it is asked for and a conversation; the layers of TLS lie inside each other.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Sequence
from select import EPOLLIN, EPOLLOUT
from typing import Final

from reachline.errors import RemoteProtocolError
from reachline.model import Clock, Failure
from reachline.net.attempt import Attempt, Home
from reachline.net.hops import Passage
from reachline.net.kernel import SO_TIMESTAMPNS, failure_of, stamp, words_of
from reachline.net.laps import Lap, Laps
from reachline.net.tls import Tls
from reachline.net.tls import words_of as tls_words_of
from reachline.talk.secure import Secure
from reachline.talk.way import Way

__all__ = ["Speech"]

_CHUNK: Final = 16_384
"""Bytes read at once: of the most laborious protocol some ten milliseconds, and then it is another line's turn."""
_ANCILLARY: Final = 64
"""Bytes of control data: one timespec with its header is 32."""
_AGAIN: Final = frozenset((errno.EAGAIN, errno.EINTR))


class Speech:
    """One connection's conversation, from connected to settled. Written by the engine's thread only."""

    __slots__ = (
        "_attempt",
        "_home",
        "_laps",
        "_newest",
        "_newest_at",
        "_out",
        "_passage",
        "_secure",
        "_shaken",
        "_talk",
        "_tls",
        "_watched",
    )

    def __init__(self, home: Home, attempt: Attempt) -> None:
        probe = attempt.job.probe
        self._home = home
        self._attempt = attempt
        self._secure: Secure | None = probe.secure
        self._talk = attempt.talk
        self._passage: Passage | None = None
        """The proxies that are not passed yet; None: what is said now is the probe's own."""
        self._tls: Tls | None = None
        """The innermost layer…"""
        self._shaken = False
        """…and whether its handshake is over."""
        self._out = b""
        self._watched = EPOLLOUT
        self._laps = Laps(home.clocks, attempt)
        self._newest = Lap(None, Clock.APP, 0)
        self._newest_at: int | None = None

    def connected(self, rtt: int | None) -> None:
        """The handshake of TCP is over, in `rtt` us where that is known."""
        attempt, sock = self._attempt, self._attempt.sock
        self._laps.connected(rtt)
        assert sock is not None
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        attempt.step = _go_on
        self._watched = EPOLLOUT
        if not attempt.job.hops:
            self._enter(self._secure)
            return
        assert attempt.route is not None
        passage = self._passage = Passage(attempt.job.hops, attempt.route.places)
        # One small message after another: each must leave at once.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._enter(passage.hop.secure)

    def _enter(self, secure: Secure | None, rest: bytes = b"") -> None:
        """Begin with the next proxy or the endpoint, by a handshake where it asks for one. `rest`: it has spoken already."""
        attempt = self._attempt
        if secure is None:
            self._speak(rest)
            return
        # Nagle would hold the request back until the peer has acknowledged the end of the handshake.
        assert attempt.sock is not None
        attempt.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            context = self._home.contexts.of(secure, verify=secure.verify and attempt.verdict is None)
            self._tls = Tls(context, secure.server_name, self._tls)
        except (OSError, ValueError) as error:
            self._end(Failure.AGENT, f"TLS cannot be set up: {error}")
            return
        self._shaken = False
        self._tls.put(rest)
        self._laps.mark()
        self._shake(None)

    def ready(self, events: int) -> None:
        """Bytes have come, or can go, or (0) the time is up."""
        if not events:
            self._end(
                Failure.TIMEOUT,
                "no answer within the time" if self._laps.first_us is None else "the answer does not end",
            )
            return
        try:
            if events & EPOLLOUT and self._out:
                self._send(b"")
            if not self._attempt.over and events & ~EPOLLOUT:
                self._receive()
        except RemoteProtocolError as error:
            self._end(Failure.PROXY, f"proxy: {error}")

    def _receive(self) -> None:
        sock = self._attempt.sock
        assert sock is not None
        try:
            data, ancillary, _, _ = sock.recvmsg(_CHUNK, _ANCILLARY)
        except OSError as error:
            if error.errno not in _AGAIN:
                self._broken(error)
            return
        at = stamp(ancillary)
        if self._tls is None:
            self._hear(data, at)
            return
        self._tls.feed(data)
        if not self._shaken:
            self._shake(at, ended=not data)
        if self._shaken and not self._attempt.over:
            self._decipher(at)

    def _shake(self, at: int | None, *, ended: bool = False) -> None:
        tls = self._tls
        assert tls is not None
        try:
            over = tls.shake()
        except ssl.SSLError as error:
            self._misshaken(tls, error)
            return
        self._send(tls.outgoing())
        if self._attempt.over:
            return
        if not over:
            if ended:
                self._end(Failure.TLS, "closed during the TLS handshake")
            return
        self._shaken = True
        laps = self._laps
        lap = laps.since(at)
        if self._passage is not None:
            laps.passed(lap)
            self._speak()
            return
        laps.tls_us, laps.expires = lap.took, tls.expires()
        if lack := self._lack_of_alpn(tls):
            self._end(Failure.TLS, lack, at)
            return
        if self._attempt.verdict is not None or self._talk is None:
            self._end(None, "", at)
            return
        self._speak()

    def _misshaken(self, tls: Tls, error: ssl.SSLError) -> None:
        if isinstance(error, ssl.SSLCertVerificationError) and self._passage is None:
            self._distrust(tls_words_of(error))
            return
        self._send(tls.outgoing())
        if not self._attempt.over:
            self._end(Failure.TLS, tls_words_of(error))

    def _lack_of_alpn(self, tls: Tls) -> str:
        """Why the protocol that was agreed on will not do, in words."""
        expected = self._secure.expect_alpn if self._secure is not None else ""
        if not expected or self._attempt.verdict is not None or (agreed := tls.alpn()) == expected:
            return ""
        return f"ALPN: the peer chose {agreed or 'no protocol'}, {expected} is expected"

    def _distrust(self, note: str) -> None:
        """The certificate does not verify: the verdict stands, but when it ends is still to be read, by another connection."""
        attempt = self._attempt
        lap = self._laps.since(None)
        attempt.verdict = (Failure.TLS, self._took(lap), note)
        attempt.phases = self._laps.phases(lap.rtt, by_proxy=bool(attempt.job.hops), spoken=False)
        self._passage = self._tls = None
        self._out = b""
        self._home.reconnect(attempt)

    def _speak(self, rest: bytes = b"") -> None:
        """Open the conversation that is next; `rest` came before it."""
        talk = self._talk if self._passage is None else self._passage.talk
        assert talk is not None
        first = talk.begin()  # making up a call of gRPC takes a tenth of a millisecond that is not the line's
        self._laps.mark()
        self._say(first)
        if rest and not self._attempt.over:
            self._hear(rest, None)

    def _pass(self, passage: Passage, data: bytes, at: int | None) -> None:
        """What a proxy says: something to answer, its yes, or why not."""
        talk = passage.talk
        reply = talk.received(data) if data else None
        if reply == b"":
            return
        lap = self._laps.since(at)
        if reply:
            self._laps.passed(lap)
            self._laps.mark()
            self._say(reply)
            return
        if (failure := talk.closed()) is None:
            self._through(passage, lap, talk.rest)
            return
        if failure is Failure.REFUSED and passage.is_last and self._attempt.verdict is None:
            self._attempt.rtt, self._attempt.clock = lap.rtt, lap.clock
        self._end(failure, talk.note, at)

    def _through(self, passage: Passage, lap: Lap, rest: bytes) -> None:
        """The proxy reached what lies behind it: the next proxy, or the endpoint. `lap` is the time from asking to its yes."""
        attempt, took = self._attempt, self._took(lap)
        self._laps.passed(lap)
        if passage.advance():
            self._enter(passage.hop.secure, rest)
            return
        self._passage = None
        assert attempt.route is not None
        if attempt.route.way is Way.CONNECT and attempt.verdict is None:
            attempt.rtt, attempt.clock = lap.rtt, lap.clock
        if self._secure is None and self._talk is None:
            self._close(None, "", lap.rtt, took)
        else:
            self._enter(self._secure, rest)

    def _say(self, data: bytes) -> None:
        if data and self._tls is not None:
            try:
                data = self._tls.wrap(data)
            except ssl.SSLError as error:
                self._end(Failure.TLS, tls_words_of(error))
                return
        self._send(data)

    def _decipher(self, at: int | None) -> None:
        tls = self._tls
        assert tls is not None
        # A proxy's yes may begin a layer within this one: it draws what is left here by itself.
        while not self._attempt.over and self._tls is tls:
            try:
                plain = tls.unwrap()
            except ssl.SSLError as error:
                self._end(Failure.TLS, tls_words_of(error))
                return
            if plain is None:
                self._send(tls.outgoing())
                return
            self._hear(plain, at)

    def _hear(self, data: bytes, at: int | None) -> None:
        if self._passage is not None:
            self._pass(self._passage, data, at)
            return
        talk = self._talk
        if talk is None:
            return
        if not data:
            self._end(talk.closed(), talk.note, at)
            return
        reply = talk.received(data)
        if self._laps.first_us is None and talk.answered:
            self._first(at)
        if reply is None:
            self._end(talk.closed(), talk.note, at)
        elif reply:
            self._say(reply)

    def _first(self, at: int | None) -> None:
        lap = self._newest = self._laps.since(at)
        self._newest_at = at
        self._laps.first_us = lap.took
        route = self._attempt.route
        assert route is not None
        if route.way is Way.STREAM:
            self._attempt.rtt, self._attempt.clock = lap.rtt, lap.clock

    def _send(self, data: bytes) -> None:
        """Send what is waiting and `data`; what does not go now is watched for."""
        sock = self._attempt.sock
        assert sock is not None
        out = self._out + data if self._out else data
        if out:
            try:
                out = out[sock.send(out) :]
            except OSError as error:
                if error.errno not in _AGAIN:
                    self._broken(error)
                    return
            self._out = out
        wanted = EPOLLIN | EPOLLOUT if self._out else EPOLLIN
        if wanted != self._watched:
            self._watched = wanted
            self._home.epoll.modify(self._attempt.fd, wanted)

    def _broken(self, error: OSError) -> None:
        code = error.errno or 0
        failure = failure_of(code)
        self._end(failure, words_of(code))

    def _end(self, failure: Failure | None, note: str, at: int | None = None) -> None:
        """Over. `at` is the stamp of what ended it; the first piece of an answer is often also the last."""
        if self._passage is not None and failure is not None:
            failure, note = self._passage.blame(failure, note)
        lap = self._newest if at is not None and at == self._newest_at else self._laps.since(at)
        self._close(failure, note, None if failure is Failure.TIMEOUT else lap.rtt, self._took(lap))

    def _close(self, failure: Failure | None, note: str, measured: int | None, took: int) -> None:
        """Over, `measured` us after the phase that runs now began, where that is known; `took` by all we know."""
        attempt = self._attempt
        attempt.note = note
        if self._talk is not None:
            attempt.status = self._talk.status
        if attempt.phases is not None:
            attempt.phases = attempt.phases._replace(expires=self._laps.expires)
        else:
            is_through = bool(attempt.job.hops) and self._passage is None
            attempt.phases = self._laps.phases(measured, by_proxy=is_through, spoken=self._talk is not None)
        self._home.settle(attempt, failure, took)

    def _took(self, lap: Lap) -> int:
        return self._laps.took(lap.elapsed, spoken=self._talk is not None)

    def resume(self, laps: Sequence[int], mono: int, wall: int, rest: bytes, passage: Passage | None = None) -> None:
        """Go on with what was said at `mono` and `wall`, but for the rest, to the probe's end or to the proxy of `passage`; `laps` are
        the times of connect and of each answer of proxies until then, us. The watch is set anew.
        """
        self._passage = passage
        self._laps.connect_us, self._laps.proxy_us = laps[0], sum(laps[1:])
        self._laps.mono, self._laps.wall = mono, wall
        self._attempt.step = _go_on
        self._watched = 0
        self._send(rest)

    def hear(self, came: bytes | OSError, at: int | None) -> None:
        """What came first of a connection that was resumed."""
        if isinstance(came, OSError):
            self._broken(came)
        else:
            self._hear(came, at)


def _go_on(attempt: Attempt, events: int) -> None:
    speech = attempt.speech
    assert speech is not None
    speech.ready(events)
