"""What follows connect on a stream: proxies, TLS, then the talk, each phase timed at the interface where the kernel stamps it.

All three are the same two steps, a handshake where it is asked for and a conversation; the layers of TLS lie inside each other.
"""

from __future__ import annotations

import errno
import socket
import ssl
from select import EPOLLIN, EPOLLOUT
from typing import Final

from reachline.errors import RemoteProtocolError
from reachline.model import Clock, Failure
from reachline.net.attempt import Attempt, Home
from reachline.net.hops import Passage
from reachline.net.kernel import SO_TIMESTAMPNS, failure_of, stamp, words_of
from reachline.net.result import Phases
from reachline.net.tls import Tls
from reachline.net.tls import words_of as tls_words_of
from reachline.talk.secure import Secure
from reachline.talk.way import Way

__all__ = ["Speech"]

_CHUNK: Final = 65_536
_ANCILLARY: Final = 64
"""Bytes of control data: one timespec with its header is 32."""
_AGAIN: Final = frozenset((errno.EAGAIN, errno.EINTR))


class Speech:
    """One connection's conversation, from connected to settled. Written by the engine's thread only."""

    __slots__ = (
        "_attempt",
        "_connect_us",
        "_expires",
        "_first_us",
        "_home",
        "_mono",
        "_newest",
        "_newest_at",
        "_out",
        "_passage",
        "_proxy_us",
        "_secure",
        "_shaken",
        "_talk",
        "_tls",
        "_tls_us",
        "_wall",
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
        self._mono = self._wall = attempt.began
        """When the phase that runs now began, by both clocks."""
        self._newest: tuple[int | None, Clock, int] = (None, Clock.APP, 0)
        self._newest_at: int | None = None
        self._connect_us: int | None = None
        self._proxy_us = 0
        self._tls_us: int | None = None
        self._first_us: int | None = None
        self._expires: int | None = None

    def connected(self, rtt: int | None) -> None:
        """The handshake of TCP is over, in `rtt` us where that is known."""
        attempt, home = self._attempt, self._home
        if attempt.verdict is None:
            self._connect_us = rtt if rtt is not None else home.clocks.measure(attempt.began, 0, None)[0]
        sock = attempt.sock
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
        self._mark()
        self._shake(None)

    def ready(self, events: int) -> None:
        """Bytes have come, or can go, or (0) the time is up."""
        if not events:
            self._end(
                Failure.TIMEOUT, "no answer within the time" if self._first_us is None else "the answer does not end"
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
        shaken, _, elapsed = self._since(at)
        took = shaken if shaken is not None else elapsed
        if self._passage is not None:
            self._passed_leg(took)
            self._speak()
            return
        self._tls_us = took
        self._expires = tls.expires()
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
        measured, _, since = self._since(None)
        attempt.verdict = (Failure.TLS, self._took(since), note)
        attempt.phases = self._phases(None if measured is None else (self._mono - attempt.began) // 1_000 + measured)
        self._passage = self._tls = None
        self._out = b""
        self._home.reconnect(attempt)

    def _speak(self, rest: bytes = b"") -> None:
        """Open the conversation that is next; `rest` came before it."""
        talk = self._talk if self._passage is None else self._passage.talk
        assert talk is not None
        self._mark()
        self._say(talk.begin())
        if rest and not self._attempt.over:
            self._hear(rest, None)

    def _pass(self, passage: Passage, data: bytes, at: int | None) -> None:
        """What a proxy says: something to answer, its yes, or why not."""
        talk = passage.talk
        reply = talk.received(data) if data else None
        if reply == b"":
            return
        rtt, clock, elapsed = self._since(at)
        if reply:
            self._passed_leg(rtt if rtt is not None else elapsed)
            self._mark()
            self._say(reply)
            return
        if (failure := talk.closed()) is None:
            self._through(passage, (rtt, clock, elapsed), talk.rest)
            return
        if failure is Failure.REFUSED and passage.is_last and self._attempt.verdict is None:
            self._attempt.rtt, self._attempt.clock = rtt, clock
        self._end(failure, talk.note, at)

    def _through(self, passage: Passage, leg: tuple[int | None, Clock, int], rest: bytes) -> None:
        """The proxy reached what lies behind it: the next proxy, or the endpoint. `leg` is the time from asking to its yes."""
        attempt, (rtt, clock, elapsed) = self._attempt, leg
        took = self._took(elapsed)
        self._passed_leg(rtt if rtt is not None else elapsed)
        if passage.advance():
            self._enter(passage.hop.secure, rest)
            return
        self._passage = None
        assert attempt.route is not None
        if attempt.route.way is Way.CONNECT and attempt.verdict is None:
            attempt.rtt, attempt.clock = rtt, clock
        if self._secure is None and self._talk is None:
            self._close(None, "", rtt, took)
        else:
            self._enter(self._secure, rest)

    def _passed_leg(self, took: int) -> None:
        """A round trip to the proxies; those of a connection that only reads a certificate do not count."""
        if self._attempt.verdict is None:
            self._proxy_us += took

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
        if self._first_us is None and talk.answered:
            self._first(at)
        if reply is None:
            self._end(talk.closed(), talk.note, at)
        elif reply:
            self._say(reply)

    def _first(self, at: int | None) -> None:
        rtt, clock, elapsed = self._newest = self._since(at)
        self._newest_at = at
        self._first_us = rtt if rtt is not None else elapsed
        route = self._attempt.route
        assert route is not None
        if route.way is Way.STREAM:
            self._attempt.rtt, self._attempt.clock = rtt, clock

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

    def _mark(self) -> None:
        self._mono, self._wall = self._home.clocks.ns(), self._home.clocks.wall()

    def _since(self, at: int | None) -> tuple[int | None, Clock, int]:
        return self._home.clocks.measure(self._mono, self._wall, at)

    def _end(self, failure: Failure | None, note: str, at: int | None = None) -> None:
        """Over. `at` is the stamp of what ended it; the first piece of an answer is often also the last."""
        if self._passage is not None and failure is not None:
            failure, note = self._passage.blame(failure, note)
        measured, _, since = self._newest if at is not None and at == self._newest_at else self._since(at)
        self._close(failure, note, None if failure is Failure.TIMEOUT else measured, self._took(since))

    def _close(self, failure: Failure | None, note: str, measured: int | None, took: int) -> None:
        """Over, `measured` us after the phase that runs now began, where that is known; `took` by all we know."""
        attempt = self._attempt
        attempt.note = note
        if self._talk is not None:
            attempt.status = self._talk.status
        if attempt.phases is not None:
            attempt.phases = attempt.phases._replace(expires=self._expires)
        else:
            total = None if measured is None else (self._mono - attempt.began) // 1_000 + measured
            attempt.phases = self._phases(total)
        self._home.settle(attempt, failure, took)

    def _took(self, since: int) -> int:
        """Microseconds the line took, without what we ourselves wasted between the phases (a stall, a new context)."""
        known = self._connect_us
        if known is None:
            return (self._mono - self._attempt.began) // 1_000 + since
        if self._tls_us is not None and self._talk is not None:
            known += self._tls_us
        return known + self._proxy_us + since

    def _phases(self, total: int | None) -> Phases:
        resolved = self._attempt.resolved_us
        return Phases(
            resolve=resolved,
            connect=self._connect_us,
            proxy=self._proxy_us if self._attempt.job.hops and self._passage is None else None,
            tls=self._tls_us,
            first=self._first_us,
            total=None if total is None else resolved + total,
            expires=self._expires,
        )

    def resume(self, connect_us: int, mono: int, wall: int, rest: bytes) -> None:
        """Go on with a plain request that was said at `mono` and `wall`, but for the rest; the watch is set anew."""
        self._connect_us, self._mono, self._wall = connect_us, mono, wall
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
