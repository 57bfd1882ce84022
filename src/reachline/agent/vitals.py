"""How the agent's host fares, beside what it measures: only what is out of the ordinary, sparsely. Advice, no evidence."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from reachline.core import vitals
from reachline.model import Seconds
from reachline.net.vitals import Core, Host, Nic, host, light
from reachline.wire.frame import Vital
from reachline.wire.optics import Light

__all__ = ["Vitals", "differences"]

log = logging.getLogger("reachline.agent")

EVERY: Final[Seconds] = 5.0
"""Between two looks at the counters: a share of a second or two says little of a host."""
_OPTICS: Final[Seconds] = 60.0
"""Between two looks at modules, whose bus is slow; fibres age in months, and are bent in a moment."""
_STEP: Final = 10 ** (1 / 10)
"""A change of one decibel is told."""


def differences(before: Host, after: Host, span: Seconds) -> tuple[Vital, ...]:
    """What happened between two looks and is worth telling; a counter that was set back says nothing."""
    over_ms = round(1_000 * span)
    segments, again = after.segments - before.segments, after.again - before.again
    rows = [
        *_of_cores(before.cores, after.cores),
        *_of_nics(before.nics, after.nics),
        ("backlog", "", after.backlog - before.backlog, 0),
        ("retransmits", "", again, max(segments, again)),
        ("udp", "", after.full - before.full, 0),
    ]
    return tuple(
        Vital(name=name, where=where, value=value, whole=whole, over_ms=over_ms)
        for name, where, value, whole in rows
        if value >= 0 and vitals.is_told(name, value, whole)
    )


_Row = tuple[str, str, int, int]


def _of_cores(before: Mapping[str, Core], after: Mapping[str, Core]) -> Iterable[_Row]:
    """The processor that is most at work for the network, and what the hypervisor took of all, in 1/1000."""
    spent = {
        name: Core(*(late - early for late, early in zip(now, before[name], strict=True)))
        for name, now in after.items()
        if name in before
    }
    shares = {name: 1_000 * core.softirq // core.total for name, core in spent.items() if core.total > 0}
    if shares:
        busiest = max(shares, key=lambda name: shares[name])
        yield "softirq", busiest, shares[busiest], 0
    if total := sum(core.total for core in spent.values()):
        yield "steal", "", 1_000 * sum(core.steal for core in spent.values()) // total, 0


def _of_nics(before: Mapping[str, Nic], after: Mapping[str, Nic]) -> Iterable[_Row]:
    for name, now in after.items():
        if (then := before.get(name)) is not None:
            packets = max(0, now.packets - then.packets)
            yield "drops", name, now.drops - then.drops, packets
            yield "errors", name, now.errors - then.errors, packets
            yield "carrier", name, now.carrier - then.carrier, 0


class Vitals:
    """One host's vitals, looked at now and then. Written by the task that reports."""

    def __init__(
        self,
        interfaces: Callable[[], Iterable[str]],
        *,
        read: Callable[[Iterable[str]], Host] = host,
        see: Callable[[str], Light | None] = light,
    ) -> None:
        """`interfaces` are those that the lines' routes take now."""
        self._interfaces, self._read, self._see = interfaces, read, see
        self._last: tuple[Seconds, Host] | None = None
        self._nics: tuple[str, ...] = ()
        self._seen: Seconds | None = None
        self._light: dict[str, Light] = {}
        """What was last told of each module."""
        self._dark: asyncio.Task[dict[str, Light]] | None = None
        """Modules being read, in a thread that nobody waits for."""

    def news(self, now: Seconds) -> tuple[Vital, ...]:
        """What is worth telling since it was last asked; nothing more often than every few seconds."""
        if self._last is not None and now - self._last[0] < EVERY:
            return ()
        if self._seen is None or now - self._seen >= _OPTICS:
            self._seen, self._nics = now, tuple(self._interfaces())
            self._read_modules()
        before, after = self._last, self._read(self._nics)
        self._last = now, after
        found = differences(before[1], after, now - before[0]) if before else ()
        return (*found, *self._of_modules())

    @property
    def has_read(self) -> bool:
        """Whether modules were read that nothing was told of yet."""
        return self._dark is not None and self._dark.done()

    def close(self) -> None:
        """Nothing is read any more."""
        if self._dark is not None:
            self._dark.cancel()

    def _read_modules(self) -> None:
        nics = self._nics
        if self._dark is None or self._dark.done():
            self._dark = asyncio.create_task(asyncio.to_thread(self._all_light, nics), name="optics")

    def _all_light(self, nics: Iterable[str]) -> dict[str, Light]:
        """In a thread of its own; touches nothing of ours."""
        return {nic: found for nic in nics if (found := self._see(nic)) is not None}

    def _of_modules(self) -> Iterable[Vital]:
        """Light that changed since it was last told, or is too little."""
        if self._dark is None or not self._dark.done():
            return
        done, self._dark = self._dark, None
        if (error := done.exception()) is not None:
            # No thread to be had, a module that says what none may: advice is not worth an agent.
            log.warning("optics_unread", extra={"reason": str(error)})
            return
        found = done.result()
        for nic, now in found.items():
            if now.received < now.warning or _has_moved(self._light.get(nic), now):
                yield Vital(name="light", where=nic, value=now.received, whole=now.warning)
            self._light[nic] = now if nic not in self._light or _has_moved(self._light[nic], now) else self._light[nic]


def _has_moved(before: Light | None, now: Light) -> bool:
    """By a decibel; the first look is the one to compare with."""
    if before is None or not before.received or not now.received:
        return before is not None and bool(before.received) is not bool(now.received)
    return abs(math.log(now.received / before.received)) >= math.log(_STEP)
