"""A listener's sockets: connections are taken, their filter chain is chosen, and its protocol takes over."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from reachline.doors.envoy.asked import Connection
from reachline.doors.envoy.chain import FilterChain, Listener
from reachline.doors.envoy.chains import chain_for
from reachline.errors import ConfigError
from reachline.members import Address
from reachline.model import Seconds
from reachline.net.binding import refused
from reachline.proxy import hello
from reachline.proxy.hello import Hello
from reachline.proxy.securing import Servers

__all__ = ["Doorway", "Handling", "Serving"]

_log: Final = logging.getLogger("reachline.proxy")
_AT_ONCE: Final = 64
"""Connections taken in one turn of the loop: so that those that are there are served too."""
_BACKLOG: Final = 1_024
_HANDSHAKE: Final[Seconds] = 10.0
"""Where the document sets no limit: a client that shakes no hands must not hold a descriptor for ever."""


class Serving(Protocol):
    """What takes over: `front.Front` or `tcp.TcpFront`."""

    def sweep(self, now: Seconds, /) -> None:
        """End what was silent for too long."""

    def drain(self) -> None:
        """Connections end with their answer, idle ones now."""

    def retire(self) -> None:
        """Its listener is no more: connections end with their next answer, and idle ones may still bring a request for that."""

    def close(self) -> None:
        """End everything at once."""


class Handling(NamedTuple):
    """One filter chain, ready."""

    serving: Serving
    protocol: Callable[[], asyncio.BufferedProtocol]
    servers: Servers | None = None
    handshake: Seconds = 0.0


class Doorway:
    """One listener. Written by its loop. ConfigError where an address cannot be had."""

    def __init__(
        self,
        listener: Listener,
        handlings: Sequence[tuple[FilterChain, Handling]],
        sockets: tuple[socket.socket, ...] = (),
    ) -> None:
        """`handlings`: of every filter chain; `sockets`: those of the listener that was here before, by `release`."""
        self.listener: Final = listener
        self.counts: Final[Counter[str]] = Counter()
        self.handlings: Final = tuple(each for _, each in handlings)
        self._by_chain: Final = tuple(handlings)
        self._loop: Final = asyncio.get_running_loop()
        self._sockets = sockets or tuple(
            _bound(listener, each) for each in (listener.address, *listener.more_addresses)
        )
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._peeks: Final = listener.inspect_tls or any(_asks_tls(each) for each in listener.chains)
        single = listener.chains[0] if len(listener.chains) == 1 and listener.default is None else None
        self._single: Final = single if single is not None and not self._peeks and _takes_all(single) else None
        """The only chain, where every connection is its."""
        self.is_open = False

    @property
    def is_greeting(self) -> bool:
        """Whether somebody is here who was not handed over yet."""
        return bool(self._tasks)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where it listens, with the ports that it got."""
        return tuple(Address(*each.getsockname()[:2]) for each in self._sockets)

    def open(self) -> None:
        """Take connections from now on."""
        self.is_open = True
        for each in self._sockets:
            self._loop.add_reader(each.fileno(), self._accept, each)

    def release(self) -> tuple[socket.socket, ...]:
        """Give the sockets to a listener at the same addresses: who waits in them waits on."""
        for each in self._sockets:
            if self.is_open:
                self._loop.remove_reader(each.fileno())
        given, self._sockets, self.is_open = self._sockets, (), False
        return given

    def close(self) -> None:
        """Take no more, once those are taken who wait in the kernel's queue: it would reset them. Those that are there go on."""
        for each in self._sockets:
            if self.is_open:
                self._loop.remove_reader(each.fileno())
                self._accept(each, self.listener.backlog or _BACKLOG)
            each.close()
        self.is_open = False

    def abandon(self) -> None:
        """Let go of who was not handed over yet."""
        for task in self._tasks:
            task.cancel()

    def _accept(self, listening: socket.socket, most: int = _AT_ONCE) -> None:
        for _ in range(most):
            try:
                client, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor is left: look again when one may be free.
                self.counts["downstream_cx_overflow"] += 1
                _log.warning("accept_failed", extra={"listener": self.listener.name, "reason": error.strerror})
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(1.0, self._again, listening)
                return
            client.setblocking(False)
            self.counts["downstream_cx_total"] += 1
            task = self._loop.create_task(self._greet(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _again(self, listening: socket.socket) -> None:
        if self.is_open:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    async def _greet(self, client: socket.socket) -> None:
        """Choose who takes a connection, and hand it over."""
        try:
            with contextlib.suppress(OSError):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            chain = self._single or await self._chosen(client)
            if chain is None:
                self.counts["no_filter_chain_match"] += 1
                client.close()
                return
            await self._hand_over(client, next(each for of, each in self._by_chain if of is chain))
        except (OSError, ssl.SSLError, TimeoutError) as error:
            self.counts["ssl.connection_error" if isinstance(error, ssl.SSLError) else "downstream_cx_lost"] += 1
            client.close()
        except BaseException:
            client.close()
            raise

    async def _hand_over(self, client: socket.socket, handling: Handling) -> None:
        if handling.servers is None:
            await self._loop.connect_accepted_socket(handling.protocol, client)
            return
        await self._loop.connect_accepted_socket(
            handling.protocol,
            client,
            ssl=handling.servers.context(),
            ssl_handshake_timeout=handling.handshake or _HANDSHAKE,
        )
        self.counts["ssl.handshake"] += 1

    async def _chosen(self, client: socket.socket) -> FilterChain | None:
        said = Hello(False)
        if self._peeks:
            try:
                async with asyncio.timeout(self.listener.listener_filters_timeout or None):
                    said = await self._hello(client)
            except TimeoutError:
                self.counts["downstream_pre_cx_timeout"] += 1
                if not self.listener.continue_on_timeout:
                    raise
        source, own = client.getpeername(), client.getsockname()
        asked = Connection(
            destination=Address(*own[:2]),
            source=Address(*source[:2]),
            server_name=said.server_name,
            transport="tls" if said.is_tls else "raw_buffer",
            alpn=said.alpn,
        )
        return chain_for(self.listener, asked)

    async def _hello(self, client: socket.socket) -> Hello:
        """What the client begins with, left where it is."""
        size = 0
        while True:
            # Readable is only what is more than was seen: who sends one byte and waits costs one look.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size + 1)
            came = self._loop.create_future()
            self._loop.add_reader(client.fileno(), _tell, came)
            try:
                await came
            finally:
                self._loop.remove_reader(client.fileno())
            data = client.recv(hello.MOST, socket.MSG_PEEK)
            found = hello.read(data)
            if found is not None or len(data) <= size or len(data) >= hello.MOST:  # known, at its end, or too long
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
                return found or Hello(False)
            size = len(data)


def _tell(came: asyncio.Future[None]) -> None:
    if not came.done():
        came.set_result(None)


def _asks_tls(chain: FilterChain) -> bool:
    match = chain.match
    return bool(match.server_names or match.transport or match.alpn)


def _takes_all(chain: FilterChain) -> bool:
    return chain.match == type(chain.match)()


def _bound(listener: Listener, address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    is_shared = _is_listened_at(family, address)
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A proxy that takes this one's place may listen beside it while this one drains, as Envoy's `enable_reuse_port`.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.setblocking(False)
        made.bind((address.host, address.port))
        made.listen(listener.backlog or _BACKLOG)
    except OSError as error:
        made.close()
        raise ConfigError(refused(error, str(address), path="address", place=f"listeners.{listener.name}")) from error
    if is_shared:
        # Meant while that one ends, and a surprise where a proxy was only started twice: connections go to either.
        _log.warning("address_shared", extra={"listener": listener.name, "address": str(address)})
    return made


def _is_listened_at(family: socket.AddressFamily, address: Address) -> bool:
    """Whether somebody is there who lets others listen beside: without SO_REUSEPORT the port is not to be had then.

    The trial listens at nothing: two proxies that start at once do not stand in each other's way.
    """
    if not address.port:
        return False
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((address.host, address.port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
