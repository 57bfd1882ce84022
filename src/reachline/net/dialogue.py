"""A connection for active checks: opened when it is needed, kept between checks where that is wanted, on any event loop.

Not the probe engine: that closes after each attempt and needs epoll and timerfd, while a check keeps its connection and has to
run wherever the SDK does, under any loop of asyncio. A check judges what is answered; how long that took is nobody's question.
A network failure is a verdict, never an exception.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from reachline.core.checking import Fault, Verdict
from reachline.net.tls import Contexts, words_of
from reachline.talk.asking import Ask, Asked

__all__ = ["Dialogue", "Layer"]

_OURS: Final = frozenset(
    (
        errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM,
        errno.ENOENT, errno.ENOTDIR,
    )
)  # fmt: skip
"""This machine's own faults: no descriptor, memory or port left, not allowed, no CA file. Never evidence against an endpoint."""
_EARLY_MOST: Final = 64 << 10
"""Bytes kept of a peer that speaks before it is asked: any greeting."""


class Layer(NamedTuple):
    """TLS of one connection: its context, and the name that is asked for, if any."""

    context: ssl.SSLContext
    name: str
    distrust: Callable[[ssl.SSLObject], str] = lambda _: ""
    """Why the certificate that was shown will not do; empty: it does."""


class Dialogue:
    """With one endpoint. Written by the task that asks; one check at a time."""

    def __init__(
        self,
        check: Asked,
        host: str,
        port: int,
        *,
        authority: str,
        reuse: bool,
        contexts: Contexts,
        name: str = "",
        layer: Callable[[], Layer | None] | None = None,
    ) -> None:
        """`authority` is whom it is asked as, `name` whom TLS must show a certificate of; empty: the host.

        `layer` gives the TLS of a new connection where that is not the check's to say.
        """
        self.lost: Final = asyncio.Event()
        """Set where a kept connection ended between two checks and the kind of check minds; cleared by the next check."""
        self._check: Final = check
        self._place: Final = (host, port)
        self._authority: Final = authority
        self._name: Final = name or host
        self._reuse: Final = reuse
        self._contexts: Final = contexts
        self._layer: Final = layer
        self._wire: _Wire | None = None

    async def ask(self) -> Verdict | None:
        """One check's verdict. None: it could not be made for a fault of this machine, and proves nothing.

        The caller's timeout cancels it; the connection is closed then.
        """
        self.lost.clear()
        is_well = False
        try:
            wire = await self._connected()
            ask = self._check.ask(self._authority)
            if self._check.by_connect:
                wire.say(ask.begin())
                return ask.verdict()
            verdict = await wire.ask(ask)
            is_well = self._reuse and ask.is_reusable
        except ssl.SSLError as error:
            return Verdict(Fault.NETWORK, note=words_of(error))
        except OSError as error:
            if error.errno in _OURS:
                return None
            return Verdict(Fault.NETWORK, note=error.strerror or str(error) or "not connected")
        except ValueError:  # a name that cannot be one
            return None
        else:
            return verdict
        finally:
            if not is_well:
                self.close()

    def close(self) -> None:
        """End the connection, if there is one. Idempotent."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    async def _connected(self) -> _Wire:
        wire = self._wire
        if wire is not None and wire.is_fresh:
            return wire
        self.close()
        loop = asyncio.get_running_loop()
        layer = self._tls() if self._layer is None else self._layer()
        host, port = self._place
        transport, made = await loop.create_connection(
            lambda: _Wire(loop, self._idle_end),
            host,
            port,
            ssl=None if layer is None else layer.context,
            server_hostname=None if layer is None else layer.name,
        )
        if layer is not None and (why := layer.distrust(transport.get_extra_info("ssl_object"))):
            transport.abort()
            raise ConnectionAbortedError(errno.ECONNABORTED, why)
        self._wire = made
        return made

    def _tls(self) -> Layer | None:
        secure = self._check.secure
        if secure is None:
            return None
        named = secure if secure.name else replace(secure, name=self._name)
        return Layer(self._contexts.of(named, verify=named.verify), named.server_name)

    def _idle_end(self) -> None:
        self._wire = None
        if self._check.minds_idle_close:
            self.lost.set()


class _Wire(asyncio.Protocol):
    """The transport's side of a dialogue. Written by the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, idle_end: Callable[[], None]) -> None:
        self._loop: Final = loop
        self._idle_end: Final = idle_end
        self._transport: asyncio.Transport | None = None
        self._ask: Ask | None = None
        self._over: asyncio.Future[Verdict] | None = None
        self._early = bytearray()
        """What came before the first question…"""
        self._asked = False
        self._spoiled = False
        """…and whether anything came after an answer: the next one could not be told from it."""
        self._closed = False

    @property
    def is_fresh(self) -> bool:
        """Whether another question may be asked."""
        return not (self._spoiled or self._closed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._ask is not None:
            self._hear(data)
        elif self._asked or len(self._early) + len(data) > _EARLY_MOST:
            self._spoiled = True
        else:
            self._early += data

    def connection_lost(self, error: Exception | None) -> None:
        was_closed, self._closed = self._closed, True
        if self._ask is not None and self._over is not None and not self._over.done():
            verdict = self._ask.verdict(closed=True)
            if error is not None and verdict.fault is Fault.NETWORK:
                verdict = verdict._replace(note=str(error) or verdict.note)
            self._end(verdict)
        elif not was_closed:
            self._idle_end()

    async def ask(self, ask: Ask) -> Verdict:
        """The verdict, once the answer is whole or the connection is gone."""
        over: asyncio.Future[Verdict] = self._loop.create_future()
        self._over = over
        if self._closed:
            return ask.verdict(closed=True)
        self._ask, self._asked = ask, True
        self.say(ask.begin())
        early, self._early = bytes(self._early), bytearray()
        if early:
            self._hear(early)
        return await over

    def say(self, data: bytes) -> None:
        """Hand some bytes over; small ones, so nothing waits."""
        if data and self._transport is not None and not self._closed:
            self._transport.write(data)

    def close(self) -> None:
        """At once, TLS without a farewell: nothing is left behind that would have to be waited for."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    def _hear(self, data: bytes) -> None:
        assert self._ask is not None
        reply = self._ask.received(data)
        if reply is None:
            self._end(self._ask.verdict())
        else:
            self.say(reply)

    def _end(self, verdict: Verdict) -> None:
        self._ask = None
        if self._over is not None and not self._over.done():
            self._over.set_result(verdict)
