"""A running Xray, driven: what is judged here is set there by OverrideBalancerTarget, and taken back at the end.

Knows no observer: whom a balancer would choose among is asked of whoever judges.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from reachline.errors import RemoteProtocolError
from reachline.model import Seconds
from reachline.net.calling import Call, calling
from reachline.wire import observatory as wire

__all__ = ["Seat", "Steering", "steered"]

log: Final = logging.getLogger("reachline.observatory")

_EVERY: Final[Seconds] = 1.0
"""Between two looks at the core: what is detected in seconds is to be obeyed in seconds; a look is one small call a balancer."""
_PATIENCE: Final[Seconds] = 3.0
"""For one call: as long as Xray's own command waits."""


class Seat(NamedTuple):
    """One balancer of the core, as far as it was driven."""

    before: str | None = None
    """Its override when it was first seen; None: not seen yet."""
    ours: str = ""
    """What was set last; empty: nothing, or that it chooses by itself."""
    is_driven: bool = False
    asked: str = ""
    """What was to be set when no answer came: it may be set, or not."""


def steered(seat: Seat, found: wire.Info, targets: Sequence[str], *, spreads: bool) -> tuple[Seat, str | None]:
    """What to set now, None: leave it as it is; and the seat after that.

    Whoever was set stays while it is among `targets`. Where the core spreads by itself (`spreads`) and all whom it spreads among are
    good, it is let. An override that somebody else set meanwhile is left, until it is cleared.
    """
    if seat.before is None:
        seat = seat._replace(before=found.override)
    seat = settled(seat, found)
    if not targets or (seat.is_driven and found.override not in {"", seat.ours}):
        return seat, None
    if spreads and found.targets and set(found.targets) <= set(targets):
        wanted = ""
    else:
        wanted = seat.ours if seat.ours in targets else targets[0]
    if not seat.is_driven and not wanted and not found.override:
        return seat, None
    return seat._replace(ours=wanted, is_driven=True), None if found.override == wanted else wanted


def settled(seat: Seat, found: wire.Info) -> Seat:
    """What was asked for without an answer is ours where it is set."""
    if seat.asked and found.override == seat.asked:
        seat = seat._replace(ours=seat.asked, is_driven=True)
    return seat._replace(asked="")


class Steering:
    """Written by the loop that runs it."""

    def __init__(
        self, address: str, balancers: Callable[[], Mapping[str, bool]], targets: Callable[[str], tuple[str, ...]]
    ) -> None:
        """`balancers` by tag, whether the core spreads by itself (random, round robin); `targets` may raise LookupError."""
        self._address: Final = address
        self._balancers: Final = balancers
        self._targets: Final = targets
        self._seats: dict[str, Seat] = {}
        self._said: dict[str, str] = {}
        """The trouble that was logged last, by balancer."""

    async def run(self) -> None:
        """Drive until cancelled, then restore what was there before."""
        async with calling(self._address, timeout=_PATIENCE) as call:
            try:
                while True:
                    balancers = self._balancers()
                    for tag in [each for each in self._seats if each not in balancers]:
                        await self._restored(call, tag, self._seats.pop(tag))
                    for tag, spreads in balancers.items():
                        await self._drive(call, tag, spreads=spreads)
                    await asyncio.sleep(_EVERY)
            finally:
                for tag, seat in self._seats.items():
                    await self._restored(call, tag, seat)

    async def _drive(self, call: Call, tag: str, *, spreads: bool) -> None:
        seat = self._seats.get(tag, Seat())
        found = await self._info(call, tag)
        if found is None:
            return
        try:
            targets = self._targets(tag)
        except LookupError:  # the document lost it meanwhile
            return
        self._seats[tag], wanted = steered(seat, found, targets, spreads=spreads)
        if wanted is None:
            return
        if not await self._set(call, tag, wanted):
            self._seats[tag] = seat._replace(before=self._seats[tag].before, asked=wanted)
        else:
            log.info("balancer_steered", extra={"balancer": tag, "target": wanted})

    async def _info(self, call: Call, tag: str) -> wire.Info | None:
        called = await call(wire.GET_BALANCER_INFO[0], wire.ask_info(tag))
        reason = called.reason
        if called.answer is not None:
            try:
                found = wire.read_info(called.answer)
            except RemoteProtocolError as error:
                reason = str(error)
            else:
                self._said.pop(tag, None)
                return found
        self._trouble(tag, reason)
        return None

    async def _set(self, call: Call, tag: str, target: str) -> bool:
        called = await call(wire.OVERRIDE_BALANCER_TARGET[0], wire.ask_override(tag, target))
        if called.answer is None:
            self._trouble(tag, called.reason)
        return called.answer is not None

    def _trouble(self, tag: str, reason: str) -> None:
        """Each trouble once, until it is over or another."""
        if self._said.get(tag) != reason:
            self._said[tag] = reason
            log.warning("core_not_steered", extra={"core": self._address, "balancer": tag, "reason": reason})

    async def _restored(self, call: Call, tag: str, seat: Seat) -> None:
        """What was there before; an override of somebody else's stays, and a core that is gone has none."""
        found = await self._info(call, tag) if seat.is_driven or seat.asked else None
        if found is None:
            return
        seat, before = settled(seat, found), seat.before or ""
        if seat.is_driven and found.override == seat.ours != before and await self._set(call, tag, before):
            log.info("balancer_restored", extra={"balancer": tag, "target": before})
