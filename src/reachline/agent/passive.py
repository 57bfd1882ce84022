"""The kernel as a vantage: the connections that others on this machine have over a line, looked at once a second.

Sends nothing. What it finds goes the ordinary way, as a window and a reading of kind `passive`. It cannot see a connection
that lives for less than two looks, nor those of another network namespace. Linux only; elsewhere it says so.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from reachline.agent import trust
from reachline.agent.flows import Flows, Heard, Packets
from reachline.agent.matching import Match, Matcher, Rule, rule_of
from reachline.core.ring import Columns
from reachline.core.window import Window
from reachline.doors.addresses import parse_target
from reachline.errors import ConfigError
from reachline.model import Clock, Failure, Kind, Reading, Seconds, Zone
from reachline.net import interfaces
from reachline.net.owners import owned
from reachline.net.resolve import Resolver
from reachline.net.sockdiag import MARKS_REFUSED, Looked, SockDiag
from reachline.net.waiting import within
from reachline.talk.secure import is_address
from reachline.wire.frame import Connections, Detail, LinePlan, ProbePlan, Report
from reachline.wire.sockdiag import Wanted

__all__ = ["QUIET", "Passive", "Watched"]

log = logging.getLogger("reachline.agent")

QUIET: Final[Seconds] = 30.0
"""Without anything sent for three default heartbeats there is nothing to say of now: no verdict, which is not healthy."""
_KEPT: Final[Seconds] = 600.0
"""Connections outlive the answer of a name server: an address that left a name is still the line's this long."""
_PIECE: Final = 128
"""Connections told apart in one go: about a millisecond."""
_LINES: Final = 16
"""Lines whose window is written in one go: twenty attempts each, about a millisecond."""
_IDLE: Final[Seconds] = 3_600.0
"""Without any line to watch; a new plan wakes."""


class Watched:
    """One line whose connections are looked at. Written by `Passive`."""

    def __init__(self, line: LinePlan, plan: ProbePlan, columns: Columns) -> None:
        self.line, self.plan = line, plan
        self.every, age = plan.interval_ms / 1_000, plan.max_age_ms / 1_000
        self.window = Window(columns, Kind.PASSIVE, size=plan.window, age=age, alpha=line.alpha_milli / 1_000)
        self.flows, self.packets = Flows(plan.timeout_ms / 1_000), Packets(age)
        self.due: Seconds = 0.0
        self.number = 0
        self.heard: Seconds | None = None
        """When something was last sent over it."""
        self.zone = Zone.N
        self.error = ""
        """Why nothing can be seen, or the newest failure, in words."""
        self.addresses: dict[str, Seconds] = {}
        """When each was last known to be the line's."""
        self.connections: Connections | None = None
        self._sought: tuple[Wanted, ...] = ()
        """What the kernel was last asked for on its behalf."""
        self.rule: Rule | None = None
        """None: the plan cannot be carried out, and `error` says why."""
        try:
            self.endpoint = parse_target(line.target)
            self.rule = rule_of(line, plan)
        except (ConfigError, ValueError) as error:
            self.error = error.problems[0].rule if isinstance(error, ConfigError) else str(error)
            log.warning("passive_refused", extra={"line": line.line, "reason": str(error)})

    def comes(self, now: Seconds) -> bool:
        """Whether its time has come; its next one is then set, on its grid unless that was missed by a whole interval."""
        if self.due > now:
            return False
        self.due = self.due + self.every if now - self.due < self.every else now + self.every
        return True

    def is_sought(self, match: Match) -> None:
        """By these addresses from here on."""
        if (sought := match.wanted()) != self._sought:
            self._sought = sought
            self.flows.widened()

    def take(self, heard: Heard, now: Seconds) -> None:
        """One look's news of the line."""
        self.packets.add(now, heard.sent, heard.lost)
        if heard.sent or heard.ends:
            self.heard = now
        if heard.ends:
            self.number += 1
        for rtt_us in heard.ends:
            failure = Failure.TIMEOUT if rtt_us is None else None
            self.window.record(
                now, failure, rtt_us, clock=Clock.TCP_INFO, number=self.number, burst=len(heard.ends)
            )  # fmt: skip
        if None in heard.ends:
            self.error = "connections wait for an answer in vain"

    def reading(self, now: Seconds, *, void: bool) -> tuple[Reading, Detail]:
        """What the window says; nothing at all once nothing was sent for long."""
        self.packets.age_out(now)
        reading, figures = self.window.summary(now, void=void)
        if self.heard is None or now - self.heard > QUIET:
            self.window.rounds.forget()
            return Reading(Kind.PASSIVE, void=void), Detail(error=self._why(), connections=self.connections)
        # Each round trip is the kernel's mean of some eight: percentiles of them would hide the tail that they are asked for.
        reading = reading._replace(sent=self.packets.sent, lost=self.packets.lost, p95_us=None, jitter_us=None)
        has_failed = reading.counts.attempts != reading.counts.ok
        return reading, Detail(
            p95_answered_us=figures.p95_us,
            last_us=figures.last_us,
            clock=figures.clock.value,
            histogram=figures.histogram,
            address=next(iter(self.addresses), ""),
            error=self.error if has_failed or self.rule is None else "",
            connections=self.connections,
        )

    def _why(self) -> str:
        return self.error or "no connection of this machine's programs sends anything over it"


class Passive:
    """All passive watching of one process. Written by its loop's thread; `run` is its life."""

    def __init__(self, changed: Callable[[str], None] = lambda _: None) -> None:
        """`changed` hears of a line of which our own quick opinion did."""
        self._changed = changed
        self._diag, self._resolver, self._columns = SockDiag(), Resolver(), Columns()
        self.watched: dict[str, Watched] = {}
        """By line, in the plan's order. Not to be written."""
        self._news = asyncio.Event()
        self._fault = ""
        self._is_markless = False
        """We may not see marks."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Those that are watched."""
        return tuple(self.watched)

    def adopt(self, lines: Iterable[LinePlan]) -> None:
        """Watch these lines where their plan says so, and no others; what stays as it was keeps its window."""
        wanted = {line.line: (line, plan) for line in lines for plan in line.probes if plan.kind is Kind.PASSIVE}
        before, self.watched = self.watched, {}
        for name, (line, plan) in wanted.items():
            old = before.get(name)
            if old and (old.line, old.plan) == (line, plan):
                self.watched[name] = before.pop(name)
            else:
                self.watched[name] = Watched(line, plan, self._columns)
        for gone in before.values():
            gone.window.close()
        self._news.set()

    def revoke(self, since: Seconds) -> None:
        """Take back all that was found after `since`: our own end was broken."""
        for watched in self.watched.values():
            watched.window.revoke(since)
            watched.packets.drop_since(since)

    def report(self, line: str, now: Seconds, *, void: bool) -> tuple[Report, ...]:
        """The line's report, where it is watched. It counts as reported with this."""
        if (watched := self.watched.get(line)) is None:
            return ()
        reading, detail = watched.reading(now, void=void)
        watched.window.settle()
        return (Report(line=line, reading=reading, detail=detail),)

    async def run(self) -> None:
        """Looks until cancelled."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                now = clock()
                able = [one for one in self.watched.values() if one.rule is not None]
                if any(one.due <= now for one in able):
                    await self._look(able, now)
                    self._news.clear()
                soon = [one.due for one in self.watched.values() if one.rule is not None]
                if await within(self._news, min(soon, default=clock() + _IDLE) - clock()):
                    self._news.clear()
        finally:
            self._diag.close()
            self._resolver.close()

    async def _look(self, able: Sequence[Watched], now: Seconds) -> None:
        """One look for all lines, told to those whose time has come: what one look leaves out the next would take for new."""
        matches = [self._match(watched, now) for watched in able]
        wanted = [one for match in matches for one in match.wanted()]
        looked = await self._diag.look(wanted) if wanted else Looked()
        if looked.error == MARKS_REFUSED and not self._is_markless:
            # The others are not to be blind for it: at once again, without any mark.
            self._is_markless = True
            log.warning("passive_refused", extra={"line": "with a mark", "reason": looked.error})
            return
        inodes, refused = await self._owned({match.rule.process for match in matches} - {""}, looked)
        due = {at: watched for at, watched in enumerate(able) if watched.comes(now)}
        self._tell(looked.error or refused, due.values())
        if looked.error:
            return
        for at, watched in due.items():
            watched.is_sought(matches[at])
        matcher = Matcher(matches, inodes)
        for start in range(0, len(looked.socks), _PIECE):
            for at, socks in matcher.of(looked.socks[start : start + _PIECE]).items():
                if at in due:
                    due[at].flows.take(socks, now, sure=looked.sure)
            await asyncio.sleep(0)
        await self._hear(due.values(), whole=looked.whole)

    async def _hear(self, due: Iterable[Watched], *, whole: bool) -> None:
        """What the look brought into each line's window."""
        clock = asyncio.get_running_loop().time
        for number, watched in enumerate(due, 1):
            if number % _LINES == 0:
                await asyncio.sleep(0)
            heard = watched.flows.heard(whole=whole)
            if self.watched.get(watched.line.line) is watched:
                self._take(watched, heard, clock())

    def _take(self, watched: Watched, heard: Heard, now: Seconds) -> None:
        watched.connections = heard.connections
        watched.take(heard, now)
        rounds = watched.window.rounds
        zone = trust.advisory(watched.zone, rounds.known, rounds.ok)
        if zone is not watched.zone:
            watched.zone = zone
            extra = {"line": watched.line.line, "kind": "passive", "zone": zone.name, "reason": watched.error}
            log.info("zone_changed", extra=extra)
            self._changed(watched.line.line)

    async def _owned(self, processes: Iterable[str], looked: Looked) -> tuple[dict[str, frozenset[int]], str]:
        """Inodes by process, where there are connections to tell apart; and why some could not be seen."""
        found, refused = dict[str, frozenset[int]](), ""
        for process in processes if looked.socks else ():
            found[process], why = await owned(process)
            refused = refused or why
        return found, refused

    def _tell(self, fault: str, due: Collection[Watched]) -> None:
        """A fault of all lines is told once for each change, and with every report while it lasts."""
        for watched in due:
            if fault or watched.error == self._fault:
                watched.error = fault
        if fault != self._fault:
            self._fault = fault
            if fault:
                log.warning("passive_blind", extra={"reason": fault, "lines": len(due)})
            else:
                log.info("passive_sees", extra={"lines": len(due)})

    def _match(self, watched: Watched, now: Seconds) -> Match:
        """What is looked for on the line's behalf; nothing, where its interface is gone."""
        assert watched.rule is not None
        line, endpoint = watched.line, watched.endpoint
        self._resolve(watched, endpoint.host, line.family or endpoint.family, now)
        if self._is_markless and watched.rule.mark is not None:
            watched.error = MARKS_REFUSED
            return Match(Rule())
        index = interfaces.index_of(line.interface) if line.interface else 0
        if line.interface and not index:
            watched.error = f"there is no interface {line.interface}"
            return Match(Rule())
        local = interfaces.addresses_of(line.interface) if line.interface else frozenset()
        return Match(watched.rule, tuple(watched.addresses), endpoint.port, line.source, index, local)

    def _resolve(self, watched: Watched, host: str, family: int, now: Seconds) -> None:
        """The addresses that the line's name has, and those it had lately."""
        current: tuple[str, ...] = ()
        if is_address(host):
            current = (str(ipaddress.ip_address(host.partition("%")[0])),)
        elif (answer := self._resolver.cached(host, family)) is None:
            self._resolver.ask(host, family, lambda _: None)
        else:
            current = answer.addresses
            watched.error = answer.error or watched.error
        watched.addresses |= dict.fromkeys(current, now)
        watched.addresses = {address: at for address, at in watched.addresses.items() if now - at < _KEPT}
