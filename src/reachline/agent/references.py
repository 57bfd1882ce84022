"""What an agent checks itself by: targets near it that always answer, its gateway, its own loopback, a connectivity check.

Each is a line of the agent's own, probed like any other. What is built in counts only once it has answered: a gateway that
never answers echo requests says nothing about us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Final, NamedTuple, Self

from reachline.agent import trust
from reachline.agent.probed import Probed
from reachline.doors.addresses import SCHEMES, masked
from reachline.model import Kind
from reachline.net import interfaces
from reachline.net.hush import hush
from reachline.wire.frame import LinePlan, ProbePlan

__all__ = ["EVERY_MS", "References", "Through", "is_own"]

_OWN: Final = "~"
"""Begins the id of a line that is our own: no cluster's name can."""
EVERY_MS: Final = 1_000
"""Of a reference target. One failed round must be known before a line's three are, or we would report our own fault."""
_ROUNDS: Final = 3
"""Rounds that are known of a line at most (`core.rounds`)."""
_SHOWN: Final = 200
"""Characters of a URL: a center takes no reason of more than 300."""
_ASKED_MS: Final = 2_000
"""Of the connectivity check, somebody's server: at the shortest usual interval of a suspect line."""


class _Part(Enum):
    """What a reference is there for."""

    ANCHOR = "reference"
    CONNECTIVITY = "connectivity"
    GATEWAY = "gateway"
    LOOPBACK = "loopback"


class _Reference(NamedTuple):
    part: _Part
    name: str
    """In words."""
    plan: LinePlan


class Through(NamedTuple):
    """How many of our lines got through at their newest round, of those that had any."""

    ok: int = 0
    known: int = 0

    @property
    def is_none(self) -> bool:
        """Whether some were tried, and none did."""
        return self.known > 0 and not self.ok

    @property
    def is_poor(self) -> bool:
        """Whether some were tried, and no more than half did."""
        return self.known > 0 and 2 * self.ok <= self.known


def is_own(line: str) -> bool:
    """Whether the line is one of the agent's own, never reported."""
    return line.startswith(_OWN)


class References:
    """All references of one agent. Written by its loop; `async with` keeps its own loopback service open."""

    def __init__(
        self, targets: Sequence[str], connectivity: str = "", *, gateway: Callable[[], str] = interfaces.gateway
    ) -> None:
        self._given = tuple(
            _reference(_Part.ANCHOR, f"reference {_shown(target)}", target, _kind(target)) for target in targets
        )
        if connectivity:
            name = f"the connectivity check {_shown(connectivity)}"
            self._given += (_reference(_Part.CONNECTIVITY, name, connectivity, Kind.HTTP, every=_ASKED_MS),)
        self._find_gateway, self._port = gateway, 0
        self._answered: set[str] = set()
        """Ids of those that ever did."""
        self._all = self._given

    @property
    def blind_ms(self) -> int:
        """For how long our own end may be broken before those that are asked say so, at their planned pace."""
        waits = {reference.part: reference.plan.probes[0].interval_ms for reference in self._all}
        waits.pop(_Part.LOOPBACK, None)
        if _Part.GATEWAY in waits:
            waits[_Part.GATEWAY] *= _ROUNDS
        return max(waits.values(), default=EVERY_MS)

    async def __aenter__(self) -> Self:
        self._service = await asyncio.start_server(_close, "127.0.0.1", 0)
        self._port = self._service.sockets[0].getsockname()[1]
        self.refresh()
        return self

    async def __aexit__(self, *_: object) -> None:
        await hush(self._service)

    @property
    def plans(self) -> tuple[LinePlan, ...]:
        """How they are probed: one attempt a second, given up after one."""
        return tuple(reference.plan for reference in self._all)

    def refresh(self) -> bool:
        """Look where the gateway is now; whether the plans are others than before. Nothing is built in before we are entered."""
        if not self._port:
            return False
        before, gateway = self._all, self._find_gateway()
        found = list(self._given)
        if gateway:
            found.append(_reference(_Part.GATEWAY, f"the gateway {gateway}", f"icmp://{gateway}", Kind.ICMP))
        target = f"tcp://127.0.0.1:{self._port}"
        found.append(_reference(_Part.LOOPBACK, "our own loopback", target, Kind.TCP, source="127.0.0.1"))
        self._all = tuple(found)
        return self._all != before

    def lost(self, probes: Mapping[str, tuple[Probed, ...]], through: Callable[[], Through]) -> tuple[str, ...]:
        """Those that should answer and do not, in words. The gateway only where no more than half of our lines get through
        either: many have better things to do than to answer echo requests, and forward all the same.
        """
        return tuple(
            reference.name
            for reference in self._all
            if self._state(reference, probes) is False and (reference.part is not _Part.GATEWAY or through().is_poor)
        )

    def cut_off(self, probes: Mapping[str, tuple[Probed, ...]], through: Callable[[], Through]) -> str:
        """Why nothing we measure now counts, in words; empty where it does.

        `through` counts the lines that get through: without references of its own an agent whose gateway is gone is cut off
        only if none does.
        """
        states = [(reference, self._state(reference, probes)) for reference in self._all]
        of_part = {part: [state for reference, state in states if reference.part is part] for part in _Part}
        lost = {reference.part: reference.name for reference, state in states if state is False}
        if _Part.CONNECTIVITY in lost:
            return f"{lost[_Part.CONNECTIVITY]} fails"
        if trust.is_cut_off(of_part[_Part.ANCHOR]):
            return "no reference answers"
        if _Part.GATEWAY in lost and not of_part[_Part.ANCHOR] and through().is_none:
            return f"{lost[_Part.GATEWAY]} does not answer, and no line does"
        return ""

    def _state(self, reference: _Reference, probes: Mapping[str, tuple[Probed, ...]]) -> bool | None:
        """Whether it answers; None where nobody knows."""
        line = reference.plan.line
        if not (found := probes.get(line)):
            return None
        rounds = found[0].window.rounds
        if rounds.last_ok:
            self._answered.add(line)
        if reference.part in (_Part.ANCHOR, _Part.CONNECTIVITY):
            return rounds.last_ok
        if line not in self._answered:
            return None
        if reference.part is _Part.LOOPBACK:
            return rounds.last_ok
        # Gateways answer echo requests when they have time to: only three in a row left out mean something.
        return True if rounds.ok else False if rounds.known == _ROUNDS else None


def _shown(target: str) -> str:
    """As much of a URL as everybody may see and anybody reads."""
    return masked(target.partition("?")[0])[:_SHOWN]


def _kind(target: str) -> Kind:
    scheme = target.partition(":")[0]
    kinds = SCHEMES[scheme].kinds if scheme in SCHEMES else ()
    return kinds[0] if kinds and Kind.TCP not in kinds else Kind.TCP


def _reference(
    part: _Part, name: str, target: str, kind: Kind, *, every: int = EVERY_MS, source: str = ""
) -> _Reference:
    probe = ProbePlan(kind=kind, interval_ms=every, suspect_interval_ms=every, timeout_ms=EVERY_MS, patience_ms=0)
    # Its id stands in logs: without secrets, and yet its own.
    number = blake2b(target.encode(), digest_size=4).hexdigest()
    line = LinePlan(line=f"{_OWN}{part.value}/{_shown(target)}#{number}", target=target, source=source, probes=(probe,))
    return _Reference(part, name, line)


def _close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """No coroutine: its task could be cancelled before it began, and nobody would close the connection."""
    writer.close()
