"""Reachline in a run: agents, center and clients put together, with the delays, cuts and restarts of the scenario between them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Final

from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.model import Change, Gate, Locality
from reachline.simulate.chance import split
from reachline.simulate.contender import Choice, Event, Run, Seen, What, Wish
from reachline.simulate.fleet import service_names
from reachline.simulate.reach.agent import Agent, Beat, numbered
from reachline.simulate.reach.center import Center
from reachline.simulate.reach.client import Client, Post
from reachline.simulate.reach.document import accepted, document, name_of
from reachline.simulate.reach.told import Told
from reachline.simulate.scenarios import Scenario
from reachline.simulate.timeline import Timeline
from reachline.upstream.listing import LineList
from reachline.wire.frame import Hint

__all__ = ["Reachline"]

_AGAIN_S: Final = 4.0
"""Until somebody who lost the center has found it again, at most: back-off ends at 5 s, in its upper half."""
_HEARD_MS: Final = 30_000
"""A center that holds a poll says so this often."""
_RESENT_MS: Final = 200


class Reachline:
    """One run's agents, center and clients. Written by the world's steps."""

    def __init__(self, run: Run, scenario: Scenario, timeline: Timeline, *, mode: str, keeps: bool = False) -> None:
        self._run, self._scenario, self._timeline, self._mode = run, scenario, timeline, mode
        self.now_ms = 0
        self._rng = split(run.seed, "reachline")
        self._document = self._written()
        self.center = Center(self._document, keeps=keeps)
        self._tick_ms = self.center.tick_ms
        self._mail: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = count()
        self._agents: dict[str, Agent] = {}
        self._numbers: dict[int, Agent] = {}
        self._born = count(1)
        for name in run.vantages:
            self._start(name)
        self._stirred = set(range(len(run.clients)))
        """Clients for whom there is something to do at once…"""
        self._alarms: list[tuple[int, int]] = []
        """…and when, at the latest, for each of them."""
        self._clients = self._made()
        self._by_name = {client.name: client for client in self._clients}
        self._heard_ms = _HEARD_MS
        self._turns = iter(timeline.boundaries)
        self._turn_ms: int | None = next(self._turns)
        self._is_up = True
        self._away: set[str] = set()
        """Who does not reach the center: agents by name, and clients by name."""
        self._pushes = list(timeline.pushes())
        self.told = Told(scenario)
        first = self.center.listed()
        for client in self._clients:
            client.take(first, 0)

    def _made(self) -> list[Client]:
        run, flush_ms = self._run, max(200, round(1_000 * self._scenario.traffic.flush_s))
        services = service_names(len(run.clients), self._timeline.services)
        return [
            Client(
                name,
                services[at],
                rng=split(run.seed, name),
                clock=lambda: self.now_ms / 1_000,
                flush_ms=flush_ms,
                number=at,
                stirred=self._stirred,
            )
            for at, name in enumerate(run.clients)
        ]

    # -- what the world calls --------------------------------------------------------------------------------------------------------

    def wishes(self) -> Sequence[Wish]:
        """None that repeat by themselves: tempo decides each round."""
        return ()

    def choice(self, client: str) -> Choice:
        """As its picker offers."""
        return self._by_name[client].choice

    def step(self, seen: Seen) -> Sequence[Event]:
        """All that happens by `seen.now_ms`."""
        now_ms = self.now_ms = seen.now_ms
        if self._turn_ms is not None and self._turn_ms <= now_ms:
            self._turn()
        for result in seen.probes:
            if (agent := self._numbers.get(numbered(result.token))) is not None:
                agent.ended(result)
        for name, line in seen.trials:
            self._by_name[name].claim(line, now_ms)
        for called in seen.calls:
            self._by_name[called.client].called(called, now_ms, self._run.timeout_ms)
        self._tend_agents()
        self._tend_clients()
        self._deliver()
        return self._tick() if now_ms >= self._tick_ms else []

    # -- weather between them ----------------------------------------------------------------------------------------------------------

    def _written(self, drained: frozenset[str] = frozenset()) -> Document:
        return document(self._scenario, mode=self._mode, seed=self._run.seed, drained=drained)

    def _start(self, name: str) -> None:
        """An agent begins, with empty windows."""
        plan = reach.plan(self._document, agent=name, locality=Locality(), number=1)
        number = next(self._born)
        rng = split(self._run.seed, f"{name}/{number}")
        agent = Agent(name, number, plan, rng=rng, send=self._run.send, now_ms=self.now_ms)
        self._agents[name] = self._numbers[number] = agent

    def _turn(self) -> None:
        now_ms, timeline = self.now_ms, self._timeline
        while self._turn_ms is not None and self._turn_ms <= now_ms:
            self._turn_ms = next(self._turns, None)
        was_up, self._is_up = self._is_up, timeline.is_center_up(now_ms)
        for name in self._run.vantages:
            self._turn_agent(name, came_back=self._is_up and not was_up)
        if timeline.is_cut_off("sdk", now_ms) or not self._is_up:
            self._away.update(self._by_name)
        else:
            for name in sorted(self._away & self._by_name.keys()):
                self._return(name)
        if was_up and not self._is_up:
            self.told.went_down(self.center.ledger)
        if self._is_up and not was_up:
            self.center.restart(now_ms)
            self.told.came_back(self.center.ledger, now_ms)
        drained = timeline.drained(now_ms)
        if drained != self.told.drained:
            self.told.drained = drained
            self._document = self._written(drained)
            self.center.reconfigure(self._document, now_ms)
        while self._pushes and self._pushes[0][0] <= now_ms:
            self._push(self._pushes.pop(0)[1])

    def _turn_agent(self, name: str, *, came_back: bool) -> None:
        is_there = name in self._agents
        if self._timeline.is_restarting(name, self.now_ms):
            if is_there:
                gone = self._agents.pop(name)
                self._numbers = {number: agent for number, agent in self._numbers.items() if agent is not gone}
            return
        if not is_there:
            self._start(name)
        if self._timeline.is_cut_off(name, self.now_ms) or not self._is_up:
            self._away.add(name)
        elif name in self._away or came_back:
            self._return(name)

    def _return(self, name: str) -> None:
        """Soon it finds the center again."""
        at_ms = self.now_ms + round(1_000 * self._rng.uniform(0.1, _AGAIN_S))
        self._post(partial(self._found, name), at_ms)

    def _push(self, over: dict[str, object]) -> None:
        found = accepted(self._scenario, over, mode=self._mode, seed=self._run.seed)
        self.told.pushed(is_taken=found is not None)
        if found is not None:
            self._document = found
            self.center.reconfigure(found, self.now_ms)

    # -- steps -------------------------------------------------------------------------------------------------------------------------

    def _tend_agents(self) -> None:
        now_ms = self.now_ms
        for name, agent in self._agents.items():
            if agent.wake_ms > now_ms:
                continue
            agent.begin_rounds(now_ms)
            for beat in agent.beats(now_ms):
                if name not in self._away:
                    self.told.beats[0] += 1
                    self._post(partial(self._report, beat), now_ms + self._delay_ms(name))

    def _delay_ms(self, name: str) -> int:
        loss, add = self._timeline.local(name, self.now_ms) if self._scenario.phases else (0.0, 0.0)
        delay = self._scenario.agents.report_delay_ms + round(add)
        while 0.0 < loss < 1.0 and self._rng.random() < loss:
            delay += _RESENT_MS
        return delay

    def _tend_clients(self) -> None:
        now_ms, stirred, alarms = self.now_ms, self._stirred, self._alarms
        confirms = now_ms >= self._heard_ms
        if confirms:
            self._heard_ms += _HEARD_MS
            stirred.update(range(len(self._clients)))
        while alarms and alarms[0][0] <= now_ms:
            stirred.add(heapq.heappop(alarms)[1])
        for number in sorted(stirred):
            client = self._clients[number]
            if client.wake_ms <= now_ms or confirms:
                self._tend(client, confirms=confirms)
                heapq.heappush(alarms, (client.wake_ms, number))
        stirred.clear()

    def _tend(self, client: Client, *, confirms: bool) -> None:
        now_ms = self.now_ms
        if client.due_ms is not None and client.due_ms <= now_ms:
            client.turn(now_ms)
        is_heard = self._is_up and client.name not in self._away
        if confirms and is_heard:
            client.heard(now_ms)
        delay_ms = self._scenario.agents.report_delay_ms
        for post in client.post(now_ms, is_heard=is_heard, may_wait=self._may_wait):
            self._post(partial(self._outcomes, post), post.made_ms + delay_ms)

    def _may_wait(self, until_ms: int) -> bool:
        """Whether the center cannot tell a post of now from one of then: both come between the same two ticks, during which nothing
        happens to it. A journal has each post as it came.
        """
        every, delay_ms = self.center.tick_ms, self._scenario.agents.report_delay_ms
        first, last = self.now_ms + delay_ms, until_ms + delay_ms
        is_same = first // every == last // every and first % every != 0
        return is_same and not self.center.keeps and (self._turn_ms is None or last < self._turn_ms)

    def _post(self, arrive: Callable[[int], None], at_ms: int) -> None:
        heapq.heappush(self._mail, (at_ms, next(self._count), arrive))

    def _deliver(self) -> None:
        mail, now_ms = self._mail, self.now_ms
        while mail and mail[0][0] <= now_ms:
            at_ms, _, arrive = heapq.heappop(mail)
            arrive(at_ms)

    def _report(self, beat: Beat, at_ms: int) -> None:
        if self._is_up and beat.agent not in self._away:
            self.center.report(beat, at_ms)
            self.told.beats[1] += 1

    def _outcomes(self, post: Post, at_ms: int) -> None:
        if self._is_up:
            self.center.outcomes(post, at_ms)

    def _hint(self, name: str, hint: Hint, at_ms: int) -> None:
        if name in self._agents and name not in self._away:
            self._agents[name].hint(hint, at_ms)

    def _list(self, client: Client, listed: LineList, at_ms: int) -> None:
        if client.name not in self._away:
            client.take(listed, at_ms)

    def _found(self, name: str, at_ms: int) -> None:
        """Somebody reaches the center again."""
        who = name if name in self._run.vantages else "sdk"
        if not self._is_up or self._timeline.is_cut_off(who, at_ms):
            return
        self._away.discard(name)
        if name in self._agents:
            self._agents[name].hurry(at_ms)
            self._agents[name].hint(self.center.hint(), at_ms)
        elif name in self._by_name:
            self._by_name[name].take(self.center.listed(), at_ms)

    def _tick(self) -> list[Event]:
        every = self.center.tick_ms
        self._tick_ms = (self.now_ms // every + 1) * every
        if not self._is_up or (done := self.center.tick(self.now_ms)) is None:
            return []
        self.told.ticked(self.center.ledger, done, self.now_ms)
        if done.snapshot is not None:
            self._publish()
        return [event for change in done.changes if (event := _event(change)) is not None]

    def _publish(self) -> None:
        listed, hint = self.center.listed(), self.center.hint()
        for client in self._clients:
            self._post(partial(self._list, client, listed), self.now_ms + self._scenario.push_delay_ms)
        for name in self._agents:
            self._post(partial(self._hint, name, hint), self.now_ms + self._scenario.agents.report_delay_ms)


def _event(change: Change) -> Event | None:
    before, after, line = change.before, change.after, name_of(change.line)
    if after.gate is Gate.OPEN and before.gate is not Gate.OPEN:
        return Event(change.at_ms, line, What.OPEN)
    if after.gate is Gate.HALF_OPEN and before.gate is Gate.OPEN:
        return Event(change.at_ms, line, What.TRIAL)
    if after.gate is Gate.CLOSED and before.gate is not Gate.CLOSED:
        return Event(change.at_ms, line, What.CLOSE)
    return Event(change.at_ms, line, What.CUT) if after.weight < before.weight else None
