"""One run: a scenario's world under virtual time, step by step, and one contender in it. Holds no rule of how to steer.

Integers of ms; nothing waits. What is drawn for the lines depends on the seed alone, so that contenders meet the same weather
where they ask the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Final

from reachline.model import Kind
from reachline.simulate.chance import split
from reachline.simulate.contender import STEP_MS, Called, Choice, Contender, Maker, Probed, Run, RunLine, Seen, Wish
from reachline.simulate.fleet import Cell, Fleet
from reachline.simulate.load import Loads
from reachline.simulate.observe import Observer
from reachline.simulate.paths import Odds, State, Way, attempt
from reachline.simulate.scenarios import LineSettings, Scenario
from reachline.simulate.timeline import BUSINESS, ICMP, PROBE, Timeline

__all__ = ["World", "run_of"]

_new: Final = tuple.__new__  # what a named tuple's own constructor calls, without the call: of millions in a run
_DEAD: Final = Odds(0.0, late=1.0)
_LOOK_MS: Final = 1_000
"""Between two looks at the load."""
_TRAFFIC_MS: Final = 60_000
"""Between two looks at how much is called, where that changes by the hour."""
_ROLES: Final[Mapping[str, str]] = {"A": "traffic", "B": "reserve"}


def run_of(scenario: Scenario, seed: int, send: Callable[[Wish, int, int], None]) -> Run:
    """What a contender of this scenario may know."""
    policy = scenario.policy if isinstance(scenario.policy, str) else scenario.policy[0]
    return Run(
        lines=tuple(_line(name, line) for name, line in scenario.lines.items()),
        clients=tuple(f"c{at}" for at in range(scenario.traffic.sdk_instances)),
        vantages=tuple(f"a{at}" for at in range(1, scenario.agents.count + 1)),
        policy="ab_groups" if policy == "ab" else policy,
        timeout_ms=scenario.request_timeout_ms,
        seed=seed,
        rng=split(seed, "contender"),
        send=send,
    )


def _line(name: str, line: LineSettings) -> RunLine:
    return RunLine(name, line.base, _ROLES.get(line.role, line.role), line.provider or "", line.capacity_rps)


class World:
    """The world of one run. `go` runs it once."""

    def __init__(self, scenario: Scenario, make: Maker, *, seed: int) -> None:
        self.scenario, self.timeline = scenario, Timeline(scenario)
        self.now_ms = 0
        self._probing: Random = split(seed, "probes")
        self._starts: list[tuple[int, int, Wish, int]] = []
        self._results: list[tuple[int, int, Probed]] = []
        self._count = count()
        self.run = run_of(scenario, seed, self._send)
        self.contender: Contender = make(self.run)
        self.fleet = Fleet(
            self.run.clients, list(scenario.lines), self.timeline.services, scenario.traffic, rng=split(seed, "calls")
        )
        self.fleet.timeout_ms = scenario.request_timeout_ms
        self.loads = Loads(scenario)
        self.observer = Observer(scenario, self.timeline)
        self._states: dict[tuple[str, str, str], State] = {}
        self._local: dict[str, tuple[float, float]] = {}
        self._known_odds: dict[tuple[str, str], Odds] = {}
        self._ways: dict[tuple[str, str, Kind], Way] = {}
        """By vantage, line and kind of probe; as long as neither phases nor loads move, as are…"""
        self._tails: dict[str, float] = {}
        """…the P95s of lines, for as many new connections as there are."""
        self._cold: frozenset[str] = frozenset()
        self._marks: tuple[int, ...] = ()
        """What clients want counted; the same for all of them."""
        self._misled: frozenset[str] = frozenset()
        self._misled_clients = 0
        self._choices: list[Choice | None] = [None] * len(self.run.clients)
        self._flush_ms = max(STEP_MS, round(1_000 * scenario.traffic.flush_s) // STEP_MS * STEP_MS)

    def go(self) -> Observer:
        """The whole scenario; what was seen of it."""
        for wish in self.contender.wishes():
            heapq.heappush(self._starts, (wish.phase_ms, next(self._count), wish, -1))
        boundaries = [*self.timeline.boundaries, self.timeline.end_ms + STEP_MS]
        turn = 0
        self._choose()
        while self.now_ms < self.timeline.end_ms:
            if boundaries[turn] <= self.now_ms:
                while boundaries[turn] <= self.now_ms:
                    turn += 1
                self._turn()
            self._step()
        self.observer.finish(self.now_ms, self.fleet.sums)
        return self.observer

    # -- weather -----------------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Phases begin and end here."""
        self._states.clear()
        self._local = {agent: self.timeline.local(agent, self.now_ms) for agent in self.run.vantages}
        self._misled = self.timeline.misled_agents(self.now_ms)
        self._misled_clients = self.timeline.misled_clients(self.now_ms)
        self._reckon()

    def _reckon(self) -> None:
        """How calls end from now on."""
        self._known_odds.clear()
        self._ways.clear()
        self._tails = {}
        self.fleet.apply(self._odds, self.now_ms)

    def _odds(self, cell: Cell) -> Odds:
        if cell.client < self._misled_clients:
            return _DEAD
        key = cell.line, cell.service
        if (found := self._known_odds.get(key)) is None:
            state = self._state(cell.line, BUSINESS, cell.service)
            found = self.loads.burdened(cell.line, state, self.scenario.request_timeout_ms, self._marks)
            self._known_odds[key] = found
        return found

    def _state(self, line: str, traffic: str, service: str = "") -> State:
        key = line, traffic, service
        if (state := self._states.get(key)) is None:
            state = self._states[key] = self.timeline.state(line, traffic, self.now_ms, service)
        return state

    # -- steps -------------------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        end = self.now_ms + STEP_MS
        if self.now_ms % _LOOK_MS == 0:
            self._look()
        probes = self._probe(end)
        self.now_ms = end
        calls, trials = self.fleet.step(end)
        calls += self._flushed(end)
        events = self.contender.step(Seen(end, probes, calls, trials))
        self._choose()
        self.observer.step(end, events, calls)

    def _look(self) -> None:
        """Once a second: how much is called, what that does to the lines, who gets what."""
        fleet = self.fleet
        if self.now_ms % _TRAFFIC_MS == 0:
            rps = self.timeline.rps(self.now_ms)
            if rps != fleet.rps:
                fleet.load(rps, self.now_ms)
        shares = fleet.shares()
        if self.loads.weigh(shares, fleet.rps, fleet.retried):
            self._reckon()
        fleet.retried = dict.fromkeys(fleet.lines, 0)
        self.observer.second(self.now_ms, shares, self.loads, fleet.sums, self._slowest())

    def _slowest(self) -> Mapping[str, float]:
        """P95 of calls by line, for clients whose connections are warm, and where many are not, for those."""
        cold = self.fleet.cold()
        if not self._tails or cold != self._cold:
            extra, self._cold = self.scenario.cold_connection.extra_ms, cold
            states = {line: self.loads.slowed(line, self._state(line, BUSINESS)) for line in self.fleet.lines}
            self._tails = {
                line: state.p95 + state.add + (extra if line in cold else 0.0) for line, state in states.items()
            }
        return self._tails

    def _flushed(self, now_ms: int) -> list[Called]:
        """Each client's calls once a second, each at its own moment."""
        found: list[Called] = []
        every = self._flush_ms // STEP_MS
        for client in range((now_ms // STEP_MS) % every, len(self.run.clients), every):
            found += self.fleet.flush(client, now_ms)
        return found

    def _choose(self) -> None:
        found = [*map(self.contender.choice, self.run.clients)]
        if found == self._choices:
            return
        cold = self.scenario.cold_connection.warm_after_requests
        for at, (client, choice) in enumerate(zip(self.run.clients, found, strict=True)):
            if choice is not self._choices[at]:
                self.observer.chose(self.now_ms, client, self._choices[at], choice)
                self._choices[at] = choice
                self.fleet.choose(at, choice, self.now_ms, cold=cold)
                if choice.marks_us != self._marks:
                    self._marks = choice.marks_us
                    self._reckon()

    # -- probes ------------------------------------------------------------------------------------------------------------------

    def _send(self, wish: Wish, at_ms: int, token: int) -> None:
        heapq.heappush(self._starts, (max(at_ms, self.now_ms), next(self._count), wish, token))

    def _probe(self, end_ms: int) -> list[Probed]:
        """Attempts that begin before `end_ms` are drawn; those that end by then come back."""
        starts, results = self._starts, self._results
        while starts and starts[0][0] < end_ms:
            at_ms, _, wish, token = heapq.heappop(starts)
            if token < 0:
                for _ in range(wish.burst):
                    self._attempt(wish, at_ms, 0)
                heapq.heappush(starts, (at_ms + wish.every_ms, next(self._count), wish, -1))
            else:
                self._attempt(wish, at_ms, token)
        found: list[Probed] = []
        while results and results[0][0] <= end_ms:
            found.append(heapq.heappop(results)[2])
        return found

    def _attempt(self, wish: Wish, at_ms: int, token: int) -> None:
        ended = attempt(
            self._ways.get((wish.vantage, wish.line, wish.kind)) or self._way(wish),
            wish.kind,
            self._probing,
            give_up_ms=wish.timeout_ms,
            rto_ms=self.scenario.syn_rto_ms,
            is_dead=wish.vantage in self._misled,
        )
        failure, rtt_us, lost, took_ms, kernel_us = ended
        end_ms = at_ms + took_ms
        self.observer.negative += (rtt_us or 0) < 0
        result = _new(Probed, (end_ms, wish, failure, rtt_us, lost, token, kernel_us))
        heapq.heappush(self._results, (end_ms, next(self._count), result))

    def _way(self, wish: Wish) -> Way:
        """What lies between a vantage and a line now, for its attempts of this kind."""
        state = self.loads.slowed(wish.line, self._state(wish.line, ICMP if wish.kind is Kind.ICMP else PROBE))
        loss, add = self._local.get(wish.vantage, (0.0, 0.0))
        if loss or add:
            state = state._replace(loss_there=1.0 - (1.0 - state.loss_there) * (1.0 - loss), add=state.add + add)
        found = self._ways[wish.vantage, wish.line, wish.kind] = Way(state)
        return found
