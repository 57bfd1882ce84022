"""What a line does to one exchange: how long it takes, what gets lost, how it ends. The world's own; no contender sees it.

Round trips are lognormal through their median and P95; a P99 bends the tail, a maximum cuts it. A call goes over a warm
connection: a request and two flights of answer, one after the other, each sent again after 200 ms and doubling where it is
lost. A probe opens a connection of its own, whose SYNs follow the scenario's times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from random import Random
from typing import Final, NamedTuple

from reachline.model import Failure, Kind

__all__ = ["EXCHANGES", "Odds", "State", "Way", "attempt", "odds", "overs", "tail"]

_new: Final = tuple.__new__  # what a named tuple's own constructor calls, without the call: of millions in a run
_Z95: Final = 1.6448536269514722
_Z99: Final = 2.3263478740408408
_RESENT_MS: Final = (0.0, 200.0, 600.0, 1_400.0, 3_000.0)
"""When a lost packet of a warm connection is on its way again."""
CALL_BYTES: Final = 20_000
"""What a call moves, for connections that die after so many bytes; probes stay below any such number…"""
EXCHANGES: Final = 3
"""…and how often it waits for the other side: for its request, and for ten segments at a time of the answer."""


class State(NamedTuple):
    """One line for one kind of traffic at a moment; times in ms, rates as fractions."""

    median: float
    p95: float
    p99: float | None = None
    most: float | None = None
    loss_there: float = 0.0
    loss_back: float = 0.0
    timeout: float = 0.0
    connect_fail: float = 0.0
    errors: float = 0.0
    reset: float = 0.0
    add: float = 0.0

    @property
    def loss(self) -> float:
        """Of a round trip: lost on the way there or back."""
        return 1.0 - (1.0 - self.loss_there) * (1.0 - self.loss_back)


class Odds(NamedTuple):
    """How a call ends, as chances that sum to 1, and how long an answered one takes."""

    ok: float
    unreachable: float = 0.0
    reset: float = 0.0
    late: float = 0.0
    errors: float = 0.0
    mean_ms: float = 0.0
    spread_ms: float = 0.0
    """Standard deviation."""
    overs: tuple[float, ...] = ()
    """Of those that end well: the shares that take longer than some marks."""

    @property
    def bad(self) -> float:
        """Of those that do not end well."""
        return 1.0 - self.ok


def _z_of(state: State, value: float) -> float:
    if value <= 0.0:
        return -math.inf
    if state.p99 is not None and value > state.p95:
        slope = math.log(max(state.p99 / state.p95, 1.000_001)) / (_Z99 - _Z95)
        return _Z95 + math.log(value / state.p95) / slope
    return math.log(value / state.median) / (math.log(max(state.p95 / state.median, 1.000_001)) / _Z95)


def tail(state: State, over_ms: float) -> float:
    """The chance that a round trip takes longer."""
    value = over_ms - state.add
    if state.most is not None and value >= state.most:
        return 0.0
    return 0.5 * math.erfc(_z_of(state, value) / math.sqrt(2.0))


class Way:
    """A state made ready for many attempts: what each of them needs, worked out once. Written by nobody."""

    __slots__ = ("bend", "loss", "slope", "state")

    def __init__(self, state: State) -> None:
        self.state, self.loss = state, state.loss
        self.slope = math.log(state.p95 / state.median) / _Z95
        """Of a round trip's logarithm by its normal variate…"""
        self.bend = None if state.p99 is None else math.log(state.p99 / state.p95)
        """…and its rise from P95 to P99."""

    def round_trip_ms(self, rng: Random) -> float:
        """One round trip."""
        state, z = self.state, rng.gauss(0.0, 1.0)
        if self.bend is not None and z > _Z95:
            value = state.p95 * math.exp(self.bend * (z - _Z95) / (_Z99 - _Z95))
        else:
            value = state.median * math.exp(self.slope * z)
        return state.add + (value if state.most is None else min(value, state.most))


def overs(state: State, timeout_ms: float, marks_us: Sequence[int]) -> tuple[float, ...]:
    """Of calls that are answered in time, the shares that take longer than each mark."""
    late = _late(state, timeout_ms)
    return tuple(
        max(0.0, (_late(state, min(each / 1_000, timeout_ms)) - late) / max(1e-12, 1.0 - late)) for each in marks_us
    )


def odds(state: State, timeout_ms: float) -> Odds:
    """How a call over a warm connection ends."""
    unreachable = state.connect_fail
    left = 1.0 - unreachable
    reset = left * state.reset
    left -= reset
    slow = _late(state, timeout_ms)
    late = left * (1.0 - (1.0 - state.timeout) * (1.0 - slow))
    left -= late
    errors = left * state.errors
    sigma = math.log(max(state.p95 / state.median, 1.000_001)) / _Z95
    mean = state.median * math.exp(sigma * sigma / 2)
    spread = mean * math.sqrt(max(0.0, math.exp(sigma * sigma) - 1.0))
    again = EXCHANGES * state.loss * _RESENT_MS[1]
    return Odds(left - errors, unreachable, reset, late, errors, min(mean + state.add + again, timeout_ms), spread)


def _late(state: State, timeout_ms: float) -> float:
    """The chance that a call is not answered within `timeout_ms`."""
    known = [(stall, chance) for stall, chance in _stalls(state.loss) if stall < timeout_ms]
    late = sum(chance * tail(state, timeout_ms - stall) for stall, chance in known)
    return late + 1.0 - sum(chance for _, chance in known)


@lru_cache(maxsize=1_024)
def _stalls(loss: float) -> tuple[tuple[float, float], ...]:
    """How long a call waits for lost packets in all, and with which chance; longer waits than anybody's patience are left out."""
    one = [(begun, (1.0 - loss) * loss**lost) for lost, begun in enumerate(_RESENT_MS)]
    total = {0.0: 1.0}
    for _ in range(EXCHANGES):
        summed: dict[float, float] = {}
        for (first, likely), (second, chance) in product(total.items(), one):
            summed[first + second] = summed.get(first + second, 0.0) + likely * chance
        total = summed
    return tuple(sorted(total.items()))


class Attempt(NamedTuple):
    """One probe attempt: its end, its time where it has one, the packets it lost, and the ms until it was over."""

    failure: Failure | None
    rtt_us: int | None
    lost: int
    took_ms: int
    kernel_us: int | None = None
    """One round trip as the kernel times it; None where a lost packet makes it ambiguous."""


def attempt(
    way: Way, kind: Kind, rng: Random, *, give_up_ms: int, rto_ms: Sequence[int], is_dead: bool = False
) -> Attempt:
    """One attempt. `is_dead`: the address it was sent to is nobody's."""
    if kind is Kind.ICMP:
        return _echo(way, rng, give_up_ms, is_dead)
    state, loss = way.state, 1.0 if is_dead else way.loss
    if state.connect_fail and rng.random() < state.connect_fail:
        return Attempt(Failure.UNREACHABLE, None, 0, min(give_up_ms, round(state.median + state.add)))
    lost, begun, took = 0, 0.0, math.inf
    for again in (*rto_ms, math.inf):
        if rng.random() >= loss:
            took = begun + way.round_trip_ms(rng)
            break
        if begun > give_up_ms:
            break
        lost += 1
        begun = again
    if took > give_up_ms:
        return Attempt(Failure.TIMEOUT, None, max(lost, 1), give_up_ms)
    if kind is Kind.HTTP:
        return _asked(way, rng, lost, took, give_up_ms)
    rtt_us = round(1_000 * took)
    return _new(Attempt, (None, rtt_us, lost, round(took), None if lost else rtt_us))


def _asked(way: Way, rng: Random, lost: int, connected: float, give_up_ms: int) -> Attempt:
    """The request of an HTTP probe, on the connection just made."""
    state = way.state
    if state.reset and rng.random() < state.reset:
        return Attempt(Failure.RESET, None, lost, round(connected + state.median))
    last = way.round_trip_ms(rng)
    took = connected + last
    for again in _RESENT_MS[1:]:
        if rng.random() >= way.loss:
            break
        took = connected + again + last
    if took > give_up_ms or (state.timeout and rng.random() < state.timeout):
        return Attempt(Failure.TIMEOUT, None, lost, give_up_ms)
    failure = Failure.STATUS if state.errors and rng.random() < state.errors else None
    return Attempt(failure, round(1_000 * took), lost, round(took), None if lost else round(1_000 * last))


def _echo(way: Way, rng: Random, give_up_ms: int, is_dead: bool) -> Attempt:
    took = way.round_trip_ms(rng)
    lost = 1.0 - (1.0 - way.loss) * (1.0 - way.state.connect_fail)
    if is_dead or rng.random() < lost or took > give_up_ms:
        return Attempt(Failure.TIMEOUT, None, 1, give_up_ms)
    rtt_us = round(1_000 * took)
    return Attempt(None, rtt_us, 0, round(took), rtt_us)
