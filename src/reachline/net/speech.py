"""What follows connect on a stream: TLS, then the talk, each phase timed at the interface where the kernel stamps it.

Proxy hops belong between `connected` and TLS: a hop is a conversation whose failure is PROXY.
"""

from __future__ import annotations

import errno
import socket
import ssl
from select import EPOLLIN, EPOLLOUT
from typing import Final

from reachline.model import Clock, Failure
from reachline.net.attempt import Attempt, Home
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
        "_secure",
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
        self._tls: Tls | None = None
        self._out = b""
        self._watched = EPOLLOUT
        self._mono = self._wall = attempt.began
        """When the phase that runs now began, by both clocks."""
        self._newest: tuple[int | None, Clock, int] = (None, Clock.APP, 0)
        self._newest_at: int | None = None
        self._connect_us: int | None = None
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
        if self._secure is None:
            self._speak()
            return
        # Nagle would hold the request back until the peer has acknowledged the end of the handshake.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            context = home.contexts.of(self._secure, verify=self._secure.verify and attempt.verdict is None)
            self._tls = Tls(context, self._secure.server_name)
        except (OSError, ValueError) as error:
            self._end(Failure.AGENT, f"TLS cannot be set up: {error}")
            return
        self._mark()
        self._shake(None)

    def ready(self, events: int) -> None:
        """Bytes have come, or can go, or (0) the time is up."""
        if not events:
            self._end(
                Failure.TIMEOUT, "no answer within the time" if self._first_us is None else "the answer does not end"
            )
            return
        if events & EPOLLOUT and self._out:
            self._send(b"")
        if not self._attempt.over and events & ~EPOLLOUT:
            self._receive()

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
        if self._tls_us is None:
            self._shake(at, ended=not data)
        if self._tls_us is not None and not self._attempt.over:
            self._decipher(at)

    def _shake(self, at: int | None, *, ended: bool = False) -> None:
        tls = self._tls
        assert tls is not None
        try:
            over = tls.shake()
        except ssl.SSLCertVerificationError as error:
            self._distrust(tls_words_of(error))
            return
        except ssl.SSLError as error:
            self._send(tls.outgoing())
            self._end(Failure.TLS, tls_words_of(error))
            return
        self._send(tls.outgoing())
        if self._attempt.over:
            return
        if not over:
            if ended:
                self._end(Failure.TLS, "closed during the TLS handshake")
            return
        shaken, _, elapsed = self._since(at)
        self._tls_us = shaken if shaken is not None else elapsed
        self._expires = tls.expires()
        if self._attempt.verdict is not None or self._talk is None:
            self._end(None, "", at)
            return
        self._speak()

    def _distrust(self, note: str) -> None:
        """The certificate does not verify: the verdict stands, but when it ends is still to be read, by another connection."""
        attempt = self._attempt
        measured, _, since = self._since(None)
        attempt.verdict = (Failure.TLS, self._took(since), note)
        attempt.phases = self._phases(None if measured is None else (self._mono - attempt.began) // 1_000 + measured)
        self._tls = None
        self._out = b""
        self._home.reconnect(attempt)

    def _speak(self) -> None:
        talk = self._talk
        assert talk is not None
        self._mark()
        self._say(talk.begin())

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
        while not self._attempt.over:
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
        attempt = self._attempt
        attempt.note = note
        if self._talk is not None:
            attempt.status = self._talk.status
        measured, _, since = self._newest if at is not None and at == self._newest_at else self._since(at)
        if attempt.phases is not None:
            attempt.phases = attempt.phases._replace(expires=self._expires)
        elif failure is Failure.TIMEOUT or measured is None:
            attempt.phases = self._phases(None)
        else:
            attempt.phases = self._phases((self._mono - attempt.began) // 1_000 + measured)
        self._home.settle(attempt, failure, self._took(since))

    def _took(self, since: int) -> int:
        """Microseconds the line took, without what we ourselves wasted between the phases (a stall, a new context)."""
        known = self._connect_us
        if known is None:
            return (self._mono - self._attempt.began) // 1_000 + since
        if self._tls_us is not None and self._talk is not None:
            known += self._tls_us
        return known + since

    def _phases(self, total: int | None) -> Phases:
        resolved = self._attempt.resolved_us
        return Phases(
            resolve=resolved,
            connect=self._connect_us,
            tls=self._tls_us,
            first=self._first_us,
            total=None if total is None else resolved + total,
            expires=self._expires,
        )


def _go_on(attempt: Attempt, events: int) -> None:
    speech = attempt.speech
    assert speech is not None
    speech.ready(events)
