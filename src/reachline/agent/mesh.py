"""An agent's part in the mesh: it answers the others, asks them in turn, and says what it found. Judges no line.

Without a center's word it neither answers nor asks. One timer asks peer after peer, so that probes are spread over the interval;
each peer's interval ends at its own time, so that no turn holds the loop for more than one peer's sums.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Self

from reachline.agent.peers import INTERVAL_MS, Seen, interval_of
from reachline.errors import ConfigError, RemoteProtocolError
from reachline.model import Seconds
from reachline.net.binding import refused
from reachline.net.kernel import words_of
from reachline.net.resolve import Answer, Resolver
from reachline.net.responder import Responder
from reachline.net.stamped import Arrival, Stamped, numeric, parts
from reachline.wire import mesh
from reachline.wire.frame import Mesh, MeshReport, Peer
from reachline.wire.mesh import KEY, SIZE, Drop
from reachline.wire.mesh_sides import Asking

__all__ = ["MeshProber"]

log = logging.getLogger("reachline.agent.mesh")

_SLICE: Final = 64
"""Replies taken a turn: a millisecond."""
_LEAST_GAP: Final[Seconds] = 0.001
"""Between two probes: a thousand a second at most, whatever a plan asks for."""
_LATE: Final[Seconds] = 0.05
"""Beyond this our own timers were late, and answers may wait that came long ago."""
_WAKE: Final[Seconds] = 0.01
"""Between two looks at who is due: a hundred peers are asked five at a time, which costs a fifth of the wake-ups."""
_STALL: Final[Seconds] = 1.0
"""We came this late to our own timer: the whole machine stood still, its clocks and queues with it. A shorter absence does no
harm: the kernel says when each answer came.
"""
_AGAIN: Final[Seconds] = 1.0
"""Until an address that was taken is tried again: a process that ends lets go of it within seconds."""
_WILD: Final = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}


class MeshProber:
    """One agent's mesh. Written by its loop's thread; `async with` is its life."""

    def __init__(
        self,
        agent: str,
        *,
        listen: str = "",
        sources: Sequence[str] = (),
        least_ms: int = INTERVAL_MS,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Listens at `listen` from now on; ConfigError where that cannot be had. Empty: where the document says, if it does.

        `least_ms` is the shortest interval that delays are taken of.
        """
        self._sender = mesh.identity(agent)
        self._sources, self._clock, self._least_ms = tuple(sources), clock, least_ms
        self._responder: Responder | None = _listening(listen, clock) if listen else None
        self._is_chosen = bool(listen)
        """Where to listen is our own options' word."""
        self._where = ""
        """Where the document wants us to listen…"""
        self._opening: asyncio.TimerHandle | None = None
        self._complaint = ""
        """…and, while that cannot be had, when it is tried again, and the reason that was logged."""
        self._key = b""
        self._sockets: dict[int, Stamped] = {}
        self._peers: dict[str, Seen] = {}
        self._order: list[Seen] = []
        self._sessions: dict[int, Seen] = {}
        self._session = 0
        self._turn = 0
        self._gap: Seconds = 0.0
        self._length_ms = 0
        self._due: Seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._void_us = 0
        """When we were last away, or our own queue overran."""
        self._lost = 0
        self.dropped: Counter[str] = Counter()
        """Datagrams that were no news, by reason."""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._resolver = Resolver()
        if self._responder:
            self._loop.add_reader(self._responder.fileno(), self._responder.ready)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer:
            self._timer.cancel()
        self._mute()
        for sock in self._sockets.values():
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._resolver.close()

    @property
    def address(self) -> str:
        """Where it answers, as bound; empty while it does nowhere."""
        return self._responder.address if self._responder else ""

    # -- the plan ---------------------------------------------------------------------------------------------------------

    def adopt(self, plan: Mesh) -> None:
        """The center's word: answer by this key, ask these and no others. What is known of those that stay is kept."""
        _check(plan)
        self._key = plan.key
        self._listen(plan.listen)
        if self._responder:
            self._responder.adopt(plan.key)
        now_us = self._now_us()
        before, self._peers = self._peers, {}
        for peer in plan.peers:
            self._peers[peer.agent] = self._kept(before.get(peer.agent), peer, now_us)
        self._order = [self._peers[name] for name in sorted(self._peers)]
        self._sessions = {seen.asking.session: seen for seen in self._order}
        self._pace(plan.interval_ms, now_us)
        log.info("mesh_adopted", extra={"peers": len(self._order), "answers_at": self.address})

    def reports(self) -> tuple[MeshReport, ...]:
        """What is known now of every peer that had the time to answer, or that cannot be asked."""
        now_us, answers = self._now_us(), self._responder
        return tuple(
            seen.report(now_us, answers.asked_ms(seen.peer.agent) if answers else None)
            for seen in self._order
            if seen.error or not seen.is_new(now_us)
        )

    def _listen(self, where: str) -> None:
        if self._is_chosen or (where == self._where and (self._responder or not where)):
            return
        self._mute()
        self._where, self._complaint = where, ""
        if where:
            self._open()

    def _open(self) -> None:
        """Answer where the document says. What cannot be had is tried again: another process may be about to let go of it."""
        try:
            self._responder = _listening(self._where, self._clock, anywhere=True)
        except ConfigError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("mesh_not_listening", extra={"address": self._where, "reason": self._complaint})
            self._opening = self._loop.call_later(_AGAIN, self._open)
            return
        self._responder.adopt(self._key)
        self._loop.add_reader(self._responder.fileno(), self._responder.ready)

    def _mute(self) -> None:
        if self._opening:
            self._opening.cancel()
            self._opening = None
        if self._responder:
            self._loop.remove_reader(self._responder.fileno())
            self._responder.close()
            self._responder = None

    def _kept(self, seen: Seen | None, peer: Peer, now_us: int) -> Seen:
        """The peer as known, with a new session where it is to be asked anew: losses count from its first answer on."""
        if seen and seen.peer == peer:
            return seen
        if seen is None or seen.peer.address != peer.address:
            seen = Seen(peer, self._asking(), now_us)
            self._find(seen)
        else:
            seen.renew(peer, self._asking(), now_us)
        return seen

    def _asking(self) -> Asking:
        """A session above all before it, also those of our last life."""
        self._session = max(time.time_ns(), self._session + 1)
        return Asking(self._sender, self._session)

    def _find(self, seen: Seen) -> None:
        """Where it is asked; by the resolver where its address is a name."""
        host, port = parts(seen.peer.address)
        if found := numeric(host, port):
            seen.family, seen.address = found
            return

        def told(answer: Answer) -> None:
            found = numeric(answer.addresses[0], port) if answer.addresses else None
            seen.error = "" if found else answer.error
            seen.family, seen.address = found or (0, seen.address)

        self._resolver.ask(host, 0, told)

    # -- time -------------------------------------------------------------------------------------------------------------

    def _now_us(self) -> int:
        return self._clock() // 1_000

    def _pace(self, interval_ms: int, now_us: int) -> None:
        self._length_ms = interval_of(interval_ms, self._least_ms)
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if not self._order:
            return
        count = len(self._order)
        self._gap = max(interval_ms / 1_000 / count, _LEAST_GAP)
        for place, seen in enumerate(self._order):
            seen.length_ms = self._length_ms
            if seen.closes_us <= now_us:
                seen.closes_us = now_us + self._length_ms * 1_000 * (place + 1) // count
        self._due = self._loop.time() + self._gap
        self._timer = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        """Ask whoever is due, at most one full turn; where we came too late, the rest is left out rather than sent in a heap."""
        now = self._loop.time()
        if now - self._due > _LATE:
            for sock in self._sockets.values():
                self._hear(sock)  # what waited belongs to the interval that may end now
        if now - self._due > _STALL:
            self._void_us = self._now_us()
            self._due = now
        for _ in self._order:
            if self._due > now:
                break
            self._due += self._gap
            self._turn = (self._turn + 1) % len(self._order)
            self._ask(self._order[self._turn])
        else:
            self._due = max(self._due, now)
        self._timer = self._loop.call_at(max(self._due, now + _WAKE), self._fire)

    def _ask(self, seen: Seen) -> None:
        now_us = self._now_us()
        if now_us >= seen.closes_us:
            seen.close(now_us, length_ms=self._length_ms, void=self._void_us >= seen.opened_us)
            if seen.family == 0 or seen.heard_us is None or seen.is_silent(now_us):
                self._find(seen)  # a name may mean another address now
        if seen.family == 0 or seen.rests(now_us) or (sock := self._socket(seen)) is None:
            return
        if seen.asking.is_over:
            del self._sessions[seen.asking.session]
            seen.asking = self._asking()
            self._sessions[seen.asking.session] = seen
        # The clock and then nothing but the seal and the call: what comes between counts for the way there.
        probe = seen.asking.probe(self._now_us())
        failed = sock.send(mesh.pack_probe(probe, seen.peer.key), seen.address)
        seen.error = words_of(failed) if failed else ""
        if failed:
            seen.asking.unsent()

    # -- sockets ----------------------------------------------------------------------------------------------------------

    def _socket(self, seen: Seen) -> Stamped | None:
        """The socket of the peer's family, opened when it is first needed; None, and said, where it cannot be."""
        if known := self._sockets.get(seen.family):
            return known
        own = next((found for each in self._sources if (found := numeric(each, 0)) and found[0] == seen.family), None)
        address = own[1] if own else (_WILD[socket.AddressFamily(seen.family)], 0)
        try:
            sock = self._sockets[seen.family] = Stamped(seen.family, address, clock=self._clock)
        except OSError as error:
            seen.error = words_of(error.errno or 0)
            return None
        self._loop.add_reader(sock.fileno(), self._hear, sock)
        return sock

    def _hear(self, sock: Stamped) -> None:
        for arrival in sock.take(_SLICE, SIZE + 1):
            if drop := self._heard(arrival):
                self.dropped[drop] += 1
        if sock.lost:
            lost = sum(each.lost for each in self._sockets.values())
            if lost != self._lost:
                self._lost, self._void_us = lost, self._now_us()

    def _heard(self, arrival: Arrival) -> Drop | None:
        session = mesh.reply_session(arrival.data)
        if isinstance(session, Drop):
            return session
        seen = self._sessions.get(session)
        if seen is None:
            return Drop.REPLAYED
        reply = mesh.read_reply(arrival.data, seen.peer.key)
        if isinstance(reply, Drop):
            return reply
        return None if seen.heard(reply, arrival.at_us, is_timed=arrival.is_stamped) else Drop.REPLAYED


def _check(plan: Mesh) -> None:
    if any(len(key) not in (0, KEY) for key in (plan.key, *(peer.key for peer in plan.peers))):
        raise RemoteProtocolError(f"mesh: a key must have {KEY} bytes")
    if plan.interval_ms < 1:
        raise RemoteProtocolError("mesh: interval_ms must be above 0")
    for peer in plan.peers:
        host, port = parts(peer.address)
        if not (host and port and peer.key):
            raise RemoteProtocolError(f"mesh: peer {peer.agent!r} has no address or no key")


def _listening(address: str, clock: Callable[[], int], *, anywhere: bool = False) -> Responder:
    """A responder at `address`; with `anywhere` at its port of every address, where no interface of ours has it (NAT)."""
    host, port = parts(address)
    family, where = numeric(host, port) or (socket.AF_INET, (_WILD[socket.AF_INET], port))
    try:
        try:
            return Responder(family, where, clock=clock)
        except OSError as error:
            if not anywhere or error.errno != errno.EADDRNOTAVAIL:
                raise
            return Responder(family, (_WILD[socket.AddressFamily(family)], port), clock=clock)
    except OSError as error:
        raise ConfigError(refused(error, address, path="", place="--mesh")) from error
