"""Answers other agents' probes, and nobody else: no word to what is not sealed by a key of ours, one short reply to what is.

No amplifier (a reply is as long as its probe, a duplicate gets none), bounded for each sender, and never more of the loop than a
slice a turn. The owner registers `fileno` with its loop and calls `ready`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from reachline.net.stamped import Address, Arrival, Stamped, shown
from reachline.wire.mesh import SIZE, Drop, identity, pack_reply, pair_key, read_probe
from reachline.wire.mesh_sides import Answering

__all__ = ["Responder"]

_SLICE: Final = 64
"""Datagrams taken a turn: half a millisecond, whoever sends how much."""


class Responder:
    """One agent's answering side. Written by its loop's thread."""

    __slots__ = ("_answering", "_key", "_lost", "_socket", "answered", "dropped")

    def __init__(self, family: int, address: Address, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Listens at once and answers nobody until `adopt`. OSError where the address cannot be had."""
        self._socket = Stamped(family, address, clock=clock)
        self._answering = Answering()
        self._key = b""
        self._lost = 0
        self.answered = 0
        self.dropped: Counter[str] = Counter()
        """Datagrams without an answer, by reason."""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def address(self) -> str:
        """`host:port` where it listens."""
        return shown(self._socket.address)

    def adopt(self, key: bytes) -> None:
        """Answer to what is sealed by this key from now on; empty: to nobody."""
        self._key = key

    def asked_ms(self, agent: str) -> int | None:
        """Since the last probe of this agent, in ms; None where none came."""
        ago = self._answering.asked_us(identity(agent), self._socket.now_us())
        return None if ago is None else ago // 1_000

    def ready(self) -> None:
        """Answer what came, a slice at most."""
        for arrival in self._socket.take(_SLICE, SIZE + 1):
            if self._socket.lost != self._lost:
                self._lost = self._socket.lost
                self._answering.forget()
            if drop := self._answer(arrival):
                self.dropped[drop] += 1
            else:
                self.answered += 1

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()

    def _answer(self, arrival: Arrival) -> Drop | str:
        """Why it got no answer; empty where it did."""
        if not self._key:
            return "unready"
        probe = read_probe(arrival.data, self._key)
        if isinstance(probe, Drop):
            return probe
        reply = self._answering.answer(probe, arrival.at_us, self._socket.now_us())
        if isinstance(reply, Drop):
            return reply
        key = pair_key(self._key, probe.sender)
        # The clock last of all: what comes after it counts for the way back.
        reply = reply._replace(replied_us=max(self._socket.now_us(), arrival.at_us))
        if self._socket.send(pack_reply(reply, key), arrival.peer, arrival.local):
            self._answering.forget(probe.sender)
            return "unsent"
        return ""
