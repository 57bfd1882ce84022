"""A scenario's phases as states over time: what each line does to whom, who reaches the center, what is true.

States stand still between two `boundaries`; ramps and oscillations move in small steps. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from reachline.simulate.paths import CALL_BYTES, State
from reachline.simulate.reading import services
from reachline.simulate.scenarios import ALL, Effect, Phase, Scenario

__all__ = ["BUSINESS", "ICMP", "PROBE", "Span", "Timeline", "ms"]

PROBE, BUSINESS, ICMP = "probe", "business", "icmp"
_TOUCHED: Final = {
    "both": (PROBE, BUSINESS, ICMP),
    "probe": (PROBE, ICMP),
    "business": (BUSINESS,),
    "icmp": (ICMP,),
}
_RAMP_MS: Final = 5_000
"""Between two steps of a linear ramp."""
_WAVE: Final = 480
"""Steps of one period."""


class Span(NamedTuple):
    """From here to there, in ms; the end is outside."""

    begin: int
    end: int

    def holds(self, at_ms: int) -> bool:
        """Whether it is now."""
        return self.begin <= at_ms < self.end


def ms(seconds: float) -> int:
    """Seconds of the file in ms."""
    return round(1_000 * seconds)


class Timeline:
    """One scenario's phases. Written by nobody."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.end_ms = ms(scenario.duration_s)
        self.services = services(scenario)
        self.boundaries: tuple[int, ...] = tuple(sorted({0, *self._moments()}))

    def _moments(self) -> Iterator[int]:
        for phase in self.scenario.phases:
            begin, end = ms(phase.from_), min(ms(phase.to), self.end_ms)
            yield begin
            yield end
            every = phase.every_s
            if every and phase.for_s:
                for turn in range(math.ceil((phase.to - phase.from_) / every)):
                    yield min(end, begin + ms(turn * every))
                    yield min(end, begin + ms(turn * every + phase.for_s))
            if phase.ramp == "linear":
                yield from range(begin, end, _RAMP_MS)
            elif phase.ramp == "sine" and phase.period_s:
                yield from range(begin, end, max(1_000, ms(phase.period_s) // _WAVE))
            if phase.agents_rolling_restart_s:
                yield from range(begin, end, ms(phase.agents_rolling_restart_s))

    # -- lines -------------------------------------------------------------------------------------------------------------

    def state(self, line: str, traffic: str, at_ms: int, service: str = "") -> State:
        """What a line does to this kind of traffic now; `service` for calls."""
        base = self.scenario.baseline
        state = State(
            base.rtt_median, base.rtt_p95, timeout=base.timeout, errors=base.http_5xx, reset=base.reset
        )._replace(**_both_ways(base.loss))
        for phase in self.scenario.phases:
            if phase.line not in {line, ALL} or traffic not in _TOUCHED[phase.applies_to]:
                continue
            if phase.service and phase.service != service:
                continue
            if (strength := _strength(phase, at_ms)) > 0.0:
                state = _touched(state, phase, strength, traffic)
        return state

    def local(self, agent: str, at_ms: int) -> tuple[float, float]:
        """What a vantage does to all that it sends: loss of a round trip, and ms added."""
        loss, add = 0.0, 0.0
        for phase in self.scenario.phases:
            if phase.local and agent in _agents(phase) and _strength(phase, at_ms) > 0.0:
                loss = 1.0 - (1.0 - loss) * (1.0 - phase.local.loss)
                add += phase.local.rtt_add
        return loss, add

    def misled_agents(self, at_ms: int) -> frozenset[str]:
        """Agents whose name server answers with a dead address."""
        phases = (phase for phase in self.scenario.phases if phase.dns and _strength(phase, at_ms) > 0.0)
        return frozenset(name for phase in phases for name in _agents(phase))

    def misled_clients(self, at_ms: int) -> int:
        """How many clients resolve to a dead address: the first ones."""
        shares = [
            phase.sdk_share or 0.0 for phase in self.scenario.phases if phase.dns and _strength(phase, at_ms) > 0.0
        ]
        return round(max(shares, default=0.0) * self.scenario.traffic.sdk_instances)

    def truth(self, line: str, at_ms: int) -> str:
        """`healthy`, `degraded` or `down`."""
        said = [
            truth.class_
            for truth in self.scenario.truth
            if truth.line in {line, ALL} and ms(truth.from_) <= at_ms < ms(truth.to)
        ]
        return "down" if "down" in said else said[0] if said else "healthy"

    def is_truth(self, line: str, at_ms: int, said: str) -> bool:
        """Whether the line is `said`, and was it just before: in the very moment in which it changes, either may be decided by."""
        return self.truth(line, at_ms) == self.truth(line, at_ms - 1) == said

    # -- who hears whom ----------------------------------------------------------------------------------------------------

    def is_center_up(self, at_ms: int) -> bool:
        """Whether there is a center."""
        return not any(phase.center and _strength(phase, at_ms) > 0.0 for phase in self.scenario.phases)

    def center_spans(self) -> tuple[Span, ...]:
        """When there is none."""
        return tuple(Span(ms(phase.from_), ms(phase.to)) for phase in self.scenario.phases if phase.center)

    def is_cut_off(self, who: str, at_ms: int) -> bool:
        """Whether an agent, or `sdk`, reaches no center though it runs."""
        for phase in self.scenario.phases:
            if _strength(phase, at_ms) <= 0.0:
                continue
            if phase.partition and who in phase.partition.other:
                return True
            if phase.silent and who in _agents(phase):
                return True
        return False

    def is_restarting(self, agent: str, at_ms: int) -> bool:
        """Whether this agent is down for its turn of a rolling restart."""
        for phase in self.scenario.phases:
            if (each := phase.agents_rolling_restart_s) and ms(phase.from_) <= at_ms < ms(phase.to):
                turn = int((at_ms - ms(phase.from_)) // ms(each))
                return agent == f"a{turn % max(1, self.scenario.agents.count) + 1}"
        return False

    def drained(self, at_ms: int) -> frozenset[str]:
        """Lines that an operator has drained."""
        return frozenset(
            str(phase.line) for phase in self.scenario.phases if phase.admin and _strength(phase, at_ms) > 0.0
        )

    def pushes(self) -> tuple[tuple[int, dict[str, object]], ...]:
        """Documents that somebody pushes, by time."""
        return tuple((ms(phase.from_), phase.config) for phase in self.scenario.phases if phase.config is not None)

    def rps(self, at_ms: int) -> float:
        """Calls a second of all clients now."""
        traffic = self.scenario.traffic
        if traffic.diurnal is None:
            return traffic.rps
        low, high = traffic.diurnal
        share = 0.5 - 0.5 * math.cos(2 * math.pi * at_ms / 86_400_000)
        return traffic.rps * (low + (high - low) * share)


def _agents(phase: Phase) -> tuple[str, ...]:
    return (*((phase.agent,) if phase.agent else ()), *(phase.agents or ()))


def _strength(phase: Phase, at_ms: int) -> float:
    """How much of the phase's effect holds now, 0…1."""
    begin, end = ms(phase.from_), ms(phase.to)
    if not begin <= at_ms < end:
        return 0.0
    if phase.every_s and phase.for_s and (at_ms - begin) % ms(phase.every_s) >= ms(phase.for_s):
        return 0.0
    if phase.ramp == "linear":
        return (at_ms - begin) / (end - begin)
    if phase.ramp == "sine" and phase.period_s:
        return 0.5 - 0.5 * math.cos(2 * math.pi * (at_ms - begin) / ms(phase.period_s))
    return 1.0


def _both_ways(loss: float) -> dict[str, float]:
    """The loss of a round trip as one of each direction."""
    each = 1.0 - math.sqrt(1.0 - loss)
    return {"loss_there": each, "loss_back": each}


def _touched(state: State, phase: Phase, strength: float, traffic: str) -> State:
    def toward(now: float, target: float | None) -> float:
        return now if target is None else now + strength * (target - now)

    effect = phase.set_ or Effect()
    most = effect.rtt_max if effect.rtt_max is not None else None if effect.rtt_p99 is not None else state.most
    state = state._replace(
        median=toward(state.median, effect.rtt_median),
        p95=toward(state.p95, effect.rtt_p95),
        p99=effect.rtt_p99 if effect.rtt_p99 is not None else state.p99,
        most=most,
        timeout=toward(state.timeout, effect.timeout),
        connect_fail=toward(state.connect_fail, effect.connect_fail),
        errors=toward(state.errors, effect.http_5xx),
        reset=toward(state.reset, effect.reset),
        add=state.add + strength * (effect.rtt_add or 0.0),
    )
    if effect.loss is not None:
        state = state._replace(**_lossy(state, effect.loss, phase.dir, strength))
    if phase.flow_hash and traffic != ICMP:
        hit = len(set(phase.flow_hash.bad)) / phase.flow_hash.buckets * phase.flow_hash.connect_fail
        state = state._replace(connect_fail=1.0 - (1.0 - state.connect_fail) * (1.0 - hit))
    if effect.drop_if_bytes_over is not None and traffic == BUSINESS and effect.drop_if_bytes_over < CALL_BYTES:
        state = state._replace(reset=1.0)
    return state


def _lossy(state: State, loss: float, direction: str, strength: float) -> dict[str, float]:
    if direction == "fwd":
        return {"loss_there": state.loss_there + strength * (loss - state.loss_there)}
    if direction == "rev":
        return {"loss_back": state.loss_back + strength * (loss - state.loss_back)}
    return _both_ways(min(1.0, state.loss + strength * (loss - state.loss)))
