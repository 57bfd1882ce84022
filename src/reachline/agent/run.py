"""The agent's role: prober, reporter and uplink under one roof, from the first Hello to the last Bye."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from reachline import __version__
from reachline.agent import member
from reachline.agent.mesh import MeshProber
from reachline.agent.outbox import Outbox
from reachline.agent.pace import Limits
from reachline.agent.passive import Passive
from reachline.agent.probed import Probed
from reachline.agent.prober import Prober
from reachline.agent.references import References, is_own
from reachline.agent.reports import Reporter, pacing_of
from reachline.agent.selfcheck import SelfCheck
from reachline.agent.settings import AgentRun
from reachline.agent.uplink import Uplink, credentials
from reachline.agent.vitals import Vitals
from reachline.doors.addresses import AUTO
from reachline.model import Kind, Seconds
from reachline.net import budget, interfaces
from reachline.net.waiting import within
from reachline.talk import TABLE
from reachline.wire.frame import PROTOCOL, SLICE, Hello, Hint, LinePlan, Mesh, Plan, Report, features_of

__all__ = ["run"]

log = logging.getLogger("reachline.agent")

_GAP: Final[Seconds] = 0.1
"""Between two parts of a heartbeat: 100 lines every 100 ms are 10 000 lines in ten seconds."""
_STEP: Final = 8
"""Lines whose windows are read in one go: with three kinds each about a millisecond, where 100 lines would be ten."""
_URGENT: Final[Seconds] = 1.0
"""Between two heartbeats for a change: a line that flaps cannot flood the center."""
_ROUTED: Final = 256
"""Lines whose route is looked up, of very many: they leave by few interfaces, and a look takes a microsecond or ten."""
_END: Final[Seconds] = 1.5
"""For the whole end; the promise is two seconds."""


async def run(settings: AgentRun, *, stop: asyncio.Event) -> None:
    """Probes and reports until `stop` is set. ConfigError where a center's refusal is final, OSError where a TLS file is."""
    credentials(settings)
    loop = asyncio.get_running_loop()
    seed = int.from_bytes(os.urandom(6)) if settings.seed is None else settings.seed
    boot = f"{Random(f'{seed}/boot').getrandbits(48):012x}"
    log.info(
        "agent_started", extra={"agent": settings.id, "boot": boot, "seed": seed, "centers": list(settings.centers)}
    )
    files = budget.files(settings.attempts)
    log.info("descriptors_set", extra={"before": files.before, "now": files.now, "attempts_at_once": files.attempts})
    agent = _Agent(settings, boot=boot, seed=seed)
    async with agent.prober, agent.mesh, agent.references, asyncio.TaskGroup() as tasks:
        agent.prober.adopt(agent.references.plans)
        working = tasks.create_task(agent.work(loop.time()), name="work")
        renewing = tasks.create_task(_renewing(settings, seed), name="renew")
        await stop.wait()
        renewing.cancel()
        agent.uplink.end("the agent was stopped")
        await asyncio.wait({working}, timeout=_END)
        working.cancel()
    log.info("agent_stopped", extra={"agent": settings.id, "unsent": len(agent.outbox)})


async def _renewing(settings: AgentRun, seed: int) -> None:
    if settings.state:
        await member.renewing(member.Member(Path(settings.state)), settings.centers, rng=Random(f"{seed}/renewal"))


class _Agent:
    """What one agent consists of. Written by its own tasks, all on one loop."""

    def __init__(self, settings: AgentRun, *, boot: str, seed: int) -> None:
        self.references = References(settings.references, settings.connectivity)
        self.prober = Prober(
            rng=Random(f"{seed}/jitter"),
            changed=self._changed,
            found=self._found,
            sources=settings.sources or (AUTO,),
            limits=_limits(settings),
        )
        self.passive = Passive(self._urge)
        self.trust = SelfCheck(self.prober, self.passive, self.references)
        self.vitals = Vitals(self._interfaces)
        self.mesh = MeshProber(settings.id, listen=settings.mesh or "", sources=settings.addresses)
        self.outbox = Outbox(settings.backlog)
        self.uplink = Uplink(
            settings,
            _hello(settings, boot, mesh=self.mesh.address),
            self.outbox,
            rng=Random(f"{seed}/back-off"),
            heard=self._heard,
            attached=self._attached,
        )
        self._settings, self._boot = settings, boot
        self._heartbeat: Seconds = 10.0
        self._lines: tuple[LinePlan, ...] = ()
        self._is_due = False
        """A center wants a round at once: it took us, or sent other lines."""
        self._urgent: dict[str, None] = {}
        """Lines whose zone changed and that were not reported since, in the order they did."""
        self._calm: Seconds = 0.0
        """Until then none of them is reported."""
        self._news = asyncio.Event()
        """One of these changed."""
        self._dropped = 0

    async def work(self, now: Seconds) -> None:
        """All tasks; ends when the uplink does."""
        reporter = Reporter(self.prober, self.passive, self.trust, agent=self._settings.id, boot=self._boot, now=now)
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self.passive.run(), name="look")
            reporting = tasks.create_task(self._report(reporter), name="report")
            await self.uplink.run()
            reporting.cancel()
            looking.cancel()
            self.vitals.close()

    async def _report(self, reporter: Reporter) -> None:
        """A round of reports each heartbeat, in parts; at once after a center took us; urgent ones in between.

        All by one task: whatever is read first is sent first, so that no reading overtakes a newer one of its line.
        """
        loop = asyncio.get_running_loop()
        while True:
            self._is_due = False
            due = loop.time() + self._heartbeat
            if self.references.refresh():
                self.prober.adopt((*self.references.plans, *self._lines))
            self.trust.look(loop.time())
            parts = reporter.slices()
            gap = min(_GAP, self._heartbeat / len(parts))
            for number, lines in enumerate(parts, 1):
                if lines or self.uplink.is_attached:
                    await self._send(reporter, lines, part=(number, len(parts)))
                if number < len(parts):
                    await self._pause(reporter, loop.time() + gap, whole=True)
            await self._pause(reporter, due)

    async def _pause(self, reporter: Reporter, until: Seconds, *, whole: bool = False) -> None:
        """Until then, or, unless it is to be `whole`, until a center wants a round.

        Lines whose zone changed are reported meanwhile, once a second at most.
        """
        clock = asyncio.get_running_loop().time
        while (whole or not self._is_due) and (now := clock()) < until:
            if self._urgent and now >= self._calm:
                await self._hurry(reporter)
                self._calm = clock() + _URGENT
                continue
            self._news.clear()
            await within(self._news, min(until, self._calm if self._urgent else until) - now)

    async def _hurry(self, reporter: Reporter) -> None:
        lines = tuple(self._urgent)
        self._urgent.clear()
        parts = tuple(lines[at : at + SLICE] for at in range(0, len(lines), SLICE))
        for number, part in enumerate(parts, 1):
            await self._send(reporter, part, part=(number, len(parts)), urgent=True)

    async def _send(
        self, reporter: Reporter, lines: tuple[str, ...], *, part: tuple[int, int], urgent: bool = False
    ) -> None:
        loop = asyncio.get_running_loop()
        reports: list[Report] = []
        for at in range(0, len(lines), _STEP):
            reports += reporter.reports(lines[at : at + _STEP], loop.time())
            await asyncio.sleep(0)
        now = loop.time()
        beat = reporter.heartbeat(reports, part=part, now=now, urgent=urgent)
        if part[0] == 1 and not urgent:
            told = {"mesh": self.mesh.reports(), "vitals": self.vitals.news(now), "pacing": pacing_of(self.prober)}
            beat = msgspec.structs.replace(beat, **told)
        self.outbox.put(beat, now)
        self.uplink.wake()
        if self.outbox.dropped != self._dropped:
            if not self._dropped:
                log.warning("backlog_full", extra={"kept": len(self.outbox)})
            self._dropped = self.outbox.dropped

    def _attached(self) -> None:
        if self._dropped:
            log.warning("heartbeats_dropped", extra={"heartbeats": self._dropped})
            self._dropped = self.outbox.dropped = 0
        self._want()

    def _want(self) -> None:
        self._is_due = True
        self._news.set()

    def _heard(self, frame: Plan | Hint | Mesh) -> None:
        match frame:
            case Plan():
                self._heartbeat = frame.heartbeat_ms / 1_000
                own = None if self._settings.sources else frame.sources or (AUTO,)
                self.prober.adopt((*self.references.plans, *frame.lines), sources=own)
                self.passive.adopt(frame.lines)
                if frame.lines != self._lines:
                    self._lines = frame.lines
                    self._want()
                log.info("plan_adopted", extra={"plan": frame.number, "lines": len(frame.lines)})
            case Hint():
                self.prober.suspect(frame.suspects, out=frame.open)
            case Mesh():
                self.mesh.adopt(frame)

    def _changed(self, probed: Probed) -> None:
        line = probed.line.line
        if is_own(line):
            return
        log.info(
            "zone_changed",
            extra={"line": line, "kind": probed.kind.value, "zone": probed.zone.name, "reason": probed.error},
        )
        self._urge(line)

    def _found(self, probed: Probed) -> None:
        if not is_own(probed.line.line):
            self._urge(probed.line.line)

    def _interfaces(self) -> Iterator[str]:
        """Those by which our lines leave: the ones they name, and those of the routes to some of them."""
        named = {line.interface for line in self._lines} - {""}
        active = [probes[0] for line, probes in self.prober.lines.items() if not is_own(line)]
        watched = list(self.passive.watched.values())
        known = {self.prober.address(probed) for probed in active[:: len(active) // _ROUTED + 1]}
        known.update(*(one.addresses for one in watched[:: len(watched) // _ROUTED + 1]))
        yield from named | interfaces.taken(known - {""})

    def _urge(self, line: str) -> None:
        """The line is worth a report at once, and a thought about ourselves."""
        self.trust.turned(line)
        self._urgent[line] = None
        self._news.set()


def _limits(settings: AgentRun) -> Limits:
    return Limits(
        rate=settings.rate,
        network=settings.network_rate,
        source=settings.source_rate,
        attempts=settings.attempts,
        close=settings.close,
    )


def _hello(settings: AgentRun, boot: str, *, mesh: str) -> Hello:
    place = settings.locality
    return Hello(
        protocol=PROTOCOL,
        release=__version__,
        features=("hint", "replay", "mesh", *features_of((*TABLE, Kind.PASSIVE))),
        agent=settings.id,
        boot=boot,
        locality=(place.region, place.zone, place.sub_zone),
        sources=settings.sources,
        token=settings.token.get_secret_value(),
        mesh=mesh,
    )
