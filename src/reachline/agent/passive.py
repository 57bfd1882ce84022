"""The kernel as a vantage: the connections that others on this machine have over a line, looked at once a second.

Sends nothing. What it finds goes the ordinary way, as a window and a reading of kind `passive`. It cannot see a connection
that lives for less than two looks, nor those of another network namespace. Linux only; elsewhere it says so.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from reachline.agent import trust
from reachline.agent.flows import Flows, Heard, Packets
from reachline.agent.jobs import unlimited
from reachline.agent.matching import Match, Matcher, Rule, rule_of
from reachline.agent.notices import Notices
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
from reachline.wire.frame import MOST_TEXT, Connections, Detail, LinePlan, ProbePlan, Report
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
_SETTLING: Final = 128
"""Lines whose addresses are looked at in one go: the same."""
_SILENT: Final = "no connection of this machine's programs sends anything over it"
_IDLE: Final[Seconds] = 3_600.0
"""Without any line to watch; a new plan wakes."""


class Watched:
    """One line whose connections are looked at. Written by `Passive`."""

    def __init__(self, line: LinePlan, plan: ProbePlan, columns: Columns) -> None:
        self.line, self.plan = line, plan
        self.every, age = plan.interval_ms / 1_000, plan.max_age_ms / 1_000
        self.window = Window(columns, Kind.PASSIVE, size=plan.window, age=age, alpha=line.alpha_milli / 1_000)
        self.follow(line, plan)
        self.flows, self.packets = Flows(plan.timeout_ms / 1_000), Packets(age)
        self.due: Seconds = 0.0
        self.number = 0
        self.heard: Seconds | None = None
        """When something was last sent over it."""
        self.zone = Zone.N
        self.error = ""
        """The newest failure, in words…"""
        self.blind = ""
        """…and why nothing can be seen now."""
        self.addresses: dict[str, Seconds] = {}
        """When each was last known to be the line's."""
        self.connections: Connections | None = None
        self.match: Match | None = None
        """What was last looked for on its behalf."""
        self.is_settled = False
        """That never changes."""
        self.rule: Rule | None = None
        """None: the plan cannot be carried out, and `blind` says why."""
        try:
            self.endpoint = parse_target(line.target)
            self.rule = rule_of(line, plan)
        except (ConfigError, ValueError) as error:
            self.blind = error.problems[0].rule if isinstance(error, ConfigError) else str(error)
            log.warning("passive_refused", extra={"line": line.line, "reason": str(error)})

    def follow(self, line: LinePlan, plan: ProbePlan) -> None:
        """Another plan that differs in nothing but what counts as slow."""
        self.line, self.plan = line, plan
        self.window.slow_us, self.window.crawl_us = plan.slow_us, plan.crawl_us

    def comes(self, now: Seconds) -> bool:
        """Whether its time has come; its next one is then set, on its grid unless that was missed by a whole interval."""
        if self.due > now:
            return False
        self.due = self.due + self.every if now - self.due < self.every else now + self.every
        return True

    def seek(self, match: Match) -> bool:
        """By these addresses from here on; whether that is another match than before."""
        before, self.match = self.match, match
        if before is not None and before.wanted() != match.wanted():
            self.flows.widened()
        return before != match

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

    def reading(self, now: Seconds, *, void: bool, blind: str = "") -> tuple[Reading, Detail]:
        """What the window says; nothing at all once nothing was sent for long. `blind`: why all or some lines see nothing."""
        blind = (blind or self.blind)[:MOST_TEXT]
        self.packets.age_out(now)
        reading, figures = self.window.summary(now, void=void)
        if self.heard is None or now - self.heard > QUIET:
            self.window.rounds.forget()
            return Reading(Kind.PASSIVE, void=void), Detail(error=blind or _SILENT, connections=self.connections)
        # Each round trip is the kernel's mean of some eight: percentiles of them would hide the tail that they are asked for.
        reading = reading._replace(sent=self.packets.sent, lost=self.packets.lost, p95_us=None, jitter_us=None)
        has_failed = reading.counts.attempts != reading.counts.ok
        return reading, Detail(
            p95_answered_us=figures.p95_us,
            last_us=figures.last_us,
            clock=figures.clock.value,
            histogram=figures.histogram,
            address=next(iter(self.addresses), ""),
            error=blind or (self.error if has_failed else ""),
            connections=self.connections,
        )


class _Table(NamedTuple):
    """What is looked for, for all lines that can be watched; the matcher's positions are those of `able`."""

    able: tuple[Watched, ...]
    wanted: tuple[Wanted, ...]
    matcher: Matcher
    processes: frozenset[str]


class Passive:
    """All passive watching of one process. Written by its loop's thread; `run` is its life."""

    def __init__(self, changed: Callable[[str], None] = lambda _: None) -> None:
        """`changed` hears of a line of which our own quick opinion did."""
        self._changed = changed
        self._diag, self._resolver, self._columns = SockDiag(), Resolver(), Columns()
        self.watched: dict[str, Watched] = {}
        """By line, in the plan's order. Not to be written."""
        self._able: tuple[Watched, ...] = ()
        self._table: _Table | None = None
        self._news = asyncio.Event()
        self._fault = ""
        """Why no line sees anything…"""
        self._refused: dict[str, str] = {}
        """…and why not all sockets of a process are known, by its name."""
        self._notices = Notices()
        self._inodes = frozenset[int]()
        """Those of the connections that were told apart last, and whose each is, by process."""
        self._owned: dict[str, frozenset[int]] = {}
        self._interfaces: dict[str, tuple[int, frozenset[str]]] = {}
        """Those that lines name, at this look."""
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
            if old and unlimited(old.line, old.plan) == unlimited(line, plan):
                self.watched[name] = before.pop(name)
                old.follow(line, plan)
            else:
                self.watched[name] = Watched(line, plan, self._columns)
        for gone in before.values():
            gone.window.close()
        self._able = tuple(one for one in self.watched.values() if one.rule is not None)
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
        refused = self._refused.get(watched.rule.process, "") if watched.rule else ""
        reading, detail = watched.reading(now, void=void, blind=self._fault or refused)
        watched.window.settle()
        return (Report(line=line, reading=reading, detail=detail),)

    async def run(self) -> None:
        """Looks until cancelled."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                now = clock()
                if any(one.due <= now for one in self._able):
                    await self._look(self._able, now)
                    self._news.clear()
                soon = (one.due for one in self._able)
                if await within(self._news, min(soon, default=clock() + _IDLE) - clock()):
                    self._news.clear()
        finally:
            self._diag.close()
            self._resolver.close()

    async def _look(self, able: tuple[Watched, ...], now: Seconds) -> None:
        """One look for all lines, told to those whose time has come: what one look leaves out the next would take for new."""
        table = await self._prepared(able, now)
        looked = await self._diag.look(table.wanted) if table.wanted else Looked()
        if looked.error == MARKS_REFUSED and not self._is_markless:
            # The others are not to be blind for it: at once again, without any mark.
            self._is_markless = True
            log.warning("passive_refused", extra={"line": "with a mark", "reason": looked.error})
            return
        await self._own(table.processes, looked)
        due = {at: watched for at, watched in enumerate(able) if watched.comes(now)}
        self._tell(looked.error, able, now)
        if looked.error:
            return
        for start in range(0, len(looked.socks), _PIECE):
            for at, socks in table.matcher.of(looked.socks[start : start + _PIECE], self._owned).items():
                if at in due:
                    due[at].flows.take(socks, now, sure=looked.sure)
            await asyncio.sleep(0)
        await self._hear(due.values(), whole=looked.whole)

    async def _prepared(self, able: tuple[Watched, ...], now: Seconds) -> _Table:
        """What to look for; mostly the same as before."""
        has_changed = False
        self._interfaces.clear()
        for number, watched in enumerate(able, 1):
            if not watched.is_settled:
                has_changed |= watched.seek(self._match(watched, now))
            if number % _SETTLING == 0:
                await asyncio.sleep(0)
        if self._table is None or self._table.able is not able or has_changed:
            matches = [watched.match or _NOWHERE for watched in able]
            wanted = dict.fromkeys(one for match in matches for one in match.wanted())
            processes = frozenset(match.rule.process for match in matches) - {""}
            self._table = _Table(able, tuple(wanted), Matcher(matches), processes)
        return self._table

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

    async def _own(self, processes: frozenset[str], looked: Looked) -> None:
        """Whose each connection is, where processes are watched. Looked up only when there are new ones."""
        self._refused = {process: why for process, why in self._refused.items() if process in processes}
        inodes = frozenset(sock.inode for sock in looked.socks) - {0} if processes else frozenset()
        if inodes <= self._inodes and self._owned.keys() >= processes:
            return
        found, refused = dict[str, frozenset[int]](), dict[str, str]()
        for process in processes:
            found[process], why = await owned(process)
            if why:
                refused[process] = why
        self._inodes, self._owned, self._refused = inodes, found, refused

    def _tell(self, fault: str, able: Sequence[Watched], now: Seconds) -> None:
        """What keeps us from seeing is told when it begins, and with every report while it lasts."""
        self._fault = fault
        faults = self._refused | ({"": fault} if fault else {})
        began, over = self._notices.look(faults.keys(), now)
        for name in began:
            lines = sum(1 for one in able if one.rule and (not name or one.rule.process == name))
            log.warning("passive_blind", extra={"reason": faults[name], "lines": lines})
        for name in over:
            log.info("passive_sees", extra={"reason": name or "the kernel"})

    def _match(self, watched: Watched, now: Seconds) -> Match:
        """What is looked for on the line's behalf; nothing, where its interface is gone."""
        assert watched.rule is not None
        line, endpoint = watched.line, watched.endpoint
        watched.blind = self._resolve(watched, endpoint.host, line.family or endpoint.family, now)
        if self._is_markless and watched.rule.mark is not None:
            watched.blind = MARKS_REFUSED
            return _NOWHERE
        index, local = self._interface(line.interface)
        if line.interface and not index:
            watched.blind = f"there is no interface {line.interface}"
            return _NOWHERE
        watched.is_settled = is_address(endpoint.host) and not line.interface and watched.rule.mark is None
        return Match(watched.rule, tuple(watched.addresses), endpoint.port, line.source, index, local)

    def _interface(self, name: str) -> tuple[int, frozenset[str]]:
        """Its number and its addresses, looked up once for all lines of a look."""
        if name and name not in self._interfaces:
            self._interfaces[name] = interfaces.index_of(name), interfaces.addresses_of(name)
        return self._interfaces.get(name, (0, frozenset()))

    def _resolve(self, watched: Watched, host: str, family: int, now: Seconds) -> str:
        """The addresses that the line's name has, and those it had lately; why it has none, where that is known."""
        current: tuple[str, ...] = ()
        error = ""
        if is_address(host):
            current = (str(ipaddress.ip_address(host.partition("%")[0])),)
        elif (answer := self._resolver.cached(host, family)) is None:
            self._resolver.ask(host, family, lambda _: None)
        else:
            current, error = answer.addresses, answer.error
        watched.addresses |= dict.fromkeys(current, now)
        watched.addresses = {address: at for address, at in watched.addresses.items() if now - at < _KEPT}
        return error


_NOWHERE: Final = Match(Rule())
"""What no connection fits."""
