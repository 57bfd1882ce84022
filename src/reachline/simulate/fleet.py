"""The calls of all clients, drawn as counts. Arrivals are Poisson, so each (client, line, outcome) is a Poisson stream of its own:
what ends well is drawn once a second, what does not is drawn step by step and told at once, in a drawn order.

Single calls are drawn one by one where there are few of them (`per_call`), and for retries and trials always.
"""

from __future__ import annotations

import math
from bisect import bisect, bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from random import Random
from typing import Final, NamedTuple

from reachline.model import Failure
from reachline.simulate.chance import LARGE, binomial, poisson, sums
from reachline.simulate.contender import STEP_MS, Called, Choice
from reachline.simulate.paths import Odds
from reachline.simulate.scenarios import Traffic

__all__ = ["PER_CALL_RPS", "Cell", "Fleet", "service_names"]

PER_CALL_RPS: Final = 50.0
"""Up to so many calls a second, each is drawn by itself."""
_STEP: Final = STEP_MS / 1_000
_new: Final = tuple.__new__  # what a named tuple's own constructor calls, without the call: of millions in a run
_NOTHING: Final = Odds(1.0)
_SAVED_MS: Final = 10_000
"""Retries that were not needed are saved for so long."""
_ORDERED: Final = 64
"""Outcomes told in order, at most, of one client and line in one step."""


class Cell:
    """One client's calls on one line. Written by the fleet."""

    __slots__ = (
        "bad",
        "client",
        "cold",
        "good",
        "is_trial",
        "line",
        "odds",
        "owed",
        "service",
        "share",
        "since_ms",
        "tables",
        "usual",
    )

    def __init__(self, client: int, line: str, service: str) -> None:
        self.client, self.line, self.service = client, line, service
        self.share = 0.0
        self.odds = _NOTHING
        self.good = self.bad = 0.0
        """Calls a second that end well, and not."""
        self.owed = 0.0
        """Good calls expected since the last telling, up to `since_ms`."""
        self.since_ms = 0
        self.is_trial = False
        self.cold = 0
        """Calls that still meet new connections."""
        self.usual = 0.0
        """Good calls of which so many are expected are drawn by…"""
        self.tables: tuple[tuple[float, ...], ...] | None = None
        """…these, one for each part of them; None: by `poisson`."""


class _Call(NamedTuple):
    """One call on its way. `tries`: how many of its caller's went before, on the lines `tried`."""

    cell: Cell
    tries: int = 0
    tried: frozenset[str] = frozenset()


class Sums:
    """What came of all calls so far."""

    __slots__ = ("bad", "retries", "wanted")

    def __init__(self) -> None:
        self.wanted = 0.0
        """Calls that callers made…"""
        self.retries = 0
        """…how often they tried again…"""
        self.bad = 0
        """…and how many calls, retries too, did not end well."""


class Fleet:
    """All clients. Written by the world, step by step."""

    def __init__(
        self,
        clients: Sequence[str],
        lines: Sequence[str],
        services: Mapping[str, float],
        traffic: Traffic,
        *,
        rng: Random,
    ) -> None:
        self.clients, self.lines, self.traffic = clients, lines, traffic
        self.sums = Sums()
        self.rps = 0.0
        self._rng = rng
        names = service_names(len(clients), services)
        self.cells = [{line: Cell(at, line, names[at]) for line in lines} for at in range(len(clients))]
        self._order = [cell for row in self.cells for cell in row.values()]
        self._numbers: list[int | None] = [None] * len(clients)
        self._late: deque[tuple[int, _Call]] = deque()
        self._cumulative: list[float] = []
        self._bad = 0.0
        self._is_stale = True
        self._shares: dict[str, float] = {}
        """As last worked out; empty: somebody chose otherwise since."""
        self._may_be_cold = False
        self._ended: dict[Cell, list[Failure | None]] = {}
        self._trial_rate = 0.0
        self._trials: list[Cell] = []
        self.timeout_ms = 1_000
        self._budget = 0.0
        self.retried: dict[str, int] = dict.fromkeys(lines, 0)
        """Retries by line since somebody last looked."""

    # -- how much, where, with which chances ---------------------------------------------------------------------------------

    def choose(self, client: int, choice: Choice, now_ms: int, *, cold: int) -> None:
        """How a client spreads its calls from now on."""
        if self._numbers[client] == choice.number:
            return
        self._numbers[client] = choice.number
        total = sum(choice.weights.values())
        for line, cell in self.cells[client].items():
            self._accrue(cell, now_ms)
            share = choice.weights.get(line, 0.0) / total if total else 0.0
            if share and not cell.share:
                cell.cold, self._may_be_cold = cold, True
            cell.share, cell.is_trial = share, line in choice.trials
        self._is_stale, self._shares = True, {}

    def load(self, rps: float, now_ms: int) -> None:
        """How many calls all clients make a second from now on."""
        for cell in self._order:
            self._accrue(cell, now_ms)
        self.rps, self._is_stale = rps, True

    def apply(self, odds: Callable[[Cell], Odds], now_ms: int) -> None:
        """How calls end from now on."""
        for cell in self._order:
            self._accrue(cell, now_ms)
            cell.odds, cell.usual = odds(cell), 0.0
        self._is_stale = True

    def _accrue(self, cell: Cell, now_ms: int) -> None:
        if cell.good:
            cell.owed += cell.good * (now_ms - cell.since_ms) / 1_000
        cell.since_ms = now_ms

    def _renew(self) -> None:
        each = self.rps / len(self.clients)
        self._trials = [cell for cell in self._order if cell.is_trial and cell.share]
        self._trial_rate = each * sum(cell.share for cell in self._trials)
        for cell in self._order:
            rate = 0.0 if cell.is_trial else each * cell.share
            cell.bad = rate * cell.odds.bad
            cell.good = 0.0 if self.is_per_call else rate - cell.bad
        self._cumulative = list(accumulate(cell.bad for cell in self._order))
        self._bad = self._cumulative[-1]
        self._is_stale = False

    @property
    def is_per_call(self) -> bool:
        """Whether calls are so few that each is drawn by itself."""
        return self.rps <= PER_CALL_RPS

    def shares(self) -> Mapping[str, float]:
        """Of all calls, by line, as chosen now."""
        if not self._shares:
            found = dict.fromkeys(self.lines, 0.0)
            for cell in self._order:
                if not cell.is_trial:
                    found[cell.line] += cell.share
            self._shares = {line: share / len(self.clients) for line, share in found.items()}
        return self._shares

    def cold(self) -> frozenset[str]:
        """Lines on which more than a twentieth of the clients that choose them still meet new connections."""
        if not self._may_be_cold:
            return frozenset()
        found: dict[str, list[bool]] = {}
        for cell in self._order:
            if cell.share:
                found.setdefault(cell.line, []).append(cell.cold > 0)
        self._may_be_cold = any(cell.cold > 0 for cell in self._order)
        return frozenset(line for line, new in found.items() if 20 * sum(new) > len(new))

    # -- steps -----------------------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> tuple[list[Called], list[tuple[str, str]]]:
        """What ended badly in the step that ends now, with what else ended there; and the trials that began."""
        if self._is_stale:
            self._renew()
        wanted = self.rps * _STEP
        self.sums.wanted += wanted
        budget = wanted * (self.traffic.retry.budget or 0.0)
        self._budget = min(self._budget + budget, budget * _SAVED_MS / STEP_MS)
        begun: list[tuple[str, str]] = []
        if self.is_per_call:
            self._singly(now_ms)
        else:
            for _ in range(poisson(self._rng, self._bad * _STEP)):
                cell = self._order[bisect(self._cumulative, self._rng.random() * self._bad)]
                self._begin(_Call(cell), self._failure(cell.odds), now_ms)
        if self._trials and poisson(self._rng, self._trial_rate * _STEP):
            begun.append(self._try(now_ms))
        while self._late and self._late[0][0] <= now_ms:
            _, call = self._late.popleft()
            self._ended.setdefault(call.cell, []).append(Failure.TIMEOUT)
            self._retry(call, now_ms)
        if not self._ended:
            return [], begun
        called = [self._tell(cell, ended, now_ms) for cell, ended in self._ended.items()]
        self._ended = {}
        return called, begun

    def flush(self, client: int, now_ms: int) -> list[Called]:
        """All good calls of a client that were not told yet."""
        found: list[Called] = []
        name, chance = self.clients[client], self._rng.random
        for line, cell in self.cells[client].items():
            owed = cell.owed + cell.good * (now_ms - cell.since_ms) / 1_000
            cell.since_ms = now_ms
            if not owed:
                continue
            cell.owed = 0.0
            if owed != cell.usual:
                cell.usual, cell.tables = owed, _tables(owed, cell.odds.overs)
            if cell.tables is None:
                ok, over = self._paced(owed, cell.odds.overs)
            else:
                ok, drawn = 0, []
                for table in cell.tables:
                    ok += bisect_left(table, chance())
                    drawn.append(ok)
                over = tuple(drawn[-2::-1])
            if ok:
                if cell.cold:
                    cell.cold = max(0, cell.cold - ok)
                mean_us = 0 if over else self._mean_us(cell, ok)
                found.append(_new(Called, (name, line, ok, 0, 0, 0, mean_us, over, ())))
        return found

    def _singly(self, now_ms: int) -> None:
        each = self.rps / len(self.clients)
        for at in range(len(self.clients)):
            for _ in range(poisson(self._rng, each * _STEP)):
                row = list(self.cells[at].values())
                drawn = self._rng.random()
                for cell in row:
                    drawn -= cell.share
                    if drawn < 0:
                        break
                else:
                    continue
                if not cell.is_trial:
                    self._begin(_Call(cell), self._ending(cell), now_ms)

    def _try(self, now_ms: int) -> tuple[str, str]:
        """One call on a line that is open to a single one; what else would go there goes to the others."""
        sums = list(accumulate(cell.share for cell in self._trials))
        cell = self._trials[bisect(sums, self._rng.random() * sums[-1])]
        row = self.cells[cell.client]
        for other in row.values():
            self._accrue(other, now_ms)
        left = sum(other.share for other in row.values() if other is not cell)
        for other in row.values():
            other.share = 0.0 if other is cell else other.share / left if left else 0.0
        cell.is_trial, self._is_stale, self._shares = False, True, {}
        self._begin(_Call(cell), self._ending(cell), now_ms)
        return self.clients[cell.client], cell.line

    def _failure(self, odds: Odds) -> Failure:
        """How a call ended that did not end well."""
        drawn = self._rng.random() * odds.bad
        if drawn < odds.late:
            return Failure.TIMEOUT
        if drawn < odds.late + odds.errors:
            return Failure.STATUS
        return Failure.UNREACHABLE if drawn < odds.late + odds.errors + odds.unreachable else Failure.RESET

    def _ending(self, cell: Cell) -> Failure | None:
        return None if self._rng.random() < cell.odds.ok else self._failure(cell.odds)

    def _begin(self, call: _Call, failure: Failure | None, now_ms: int) -> None:
        """One call whose end is drawn already."""
        self.sums.bad += failure is not None
        if failure is Failure.TIMEOUT:
            self._late.append((now_ms + self.timeout_ms, call))
            return
        self._ended.setdefault(call.cell, []).append(failure)
        if failure is not None and failure is not Failure.STATUS:
            self._retry(call, now_ms)

    def _retry(self, call: _Call, now_ms: int) -> None:
        """Another try, on another line if there is one, where the caller still may. Nobody repeats what was answered by a 5xx."""
        retry = self.traffic.retry
        if call.tries >= retry.max or (retry.budget is not None and self._budget < 1):
            return
        open_ones = [each for each in self.cells[call.cell.client].values() if each.share and not each.is_trial]
        tried = call.tried | {call.cell.line}
        others = [each for each in open_ones if each.line not in tried] or open_ones
        if not others:
            return
        sums = list(accumulate(each.share for each in others))
        other = others[bisect(sums, self._rng.random() * sums[-1])]
        self._budget -= 1
        self.sums.retries += 1
        self.retried[other.line] += 1
        again = call._replace(cell=other, tries=call.tries + 1, tried=tried)
        self._begin(again, self._ending(other), now_ms)

    def _tell(self, cell: Cell, ended: list[Failure | None], now_ms: int) -> Called:
        self._accrue(cell, now_ms)
        ok = poisson(self._rng, cell.owed)
        cell.owed = 0.0
        single = sum(each is None for each in ended)
        order: tuple[Failure | None, ...] = ()
        if ended:
            among = min(ok, round(cell.good * _STEP), _ORDERED - 1)
            mixed = [*ended[:_ORDERED], *([None] * among)]
            if len(mixed) > 1:
                self._rng.shuffle(mixed)
            order = (None, *mixed) if ok > among else tuple(mixed)
        late = ended.count(Failure.TIMEOUT)
        errors = ended.count(Failure.STATUS)
        answered = ok + single + errors
        cell.cold = max(0, cell.cold - answered)
        return Called(
            client=self.clients[cell.client],
            line=cell.line,
            ok=ok + single,
            failed=len(ended) - single - late - errors,
            late=late,
            errors=errors,
            mean_us=self._mean_us(cell, answered) if answered and not cell.odds.overs else 0,
            over=self._over(cell.odds.overs, ok + single) if cell.odds.overs else (),
            order=order,
        )

    def _paced(self, mean: float, shares: tuple[float, ...]) -> tuple[int, tuple[int, ...]]:
        """Good calls where so many are expected, and how many of them were slower than each mark: parts of a Poisson stream are
        streams of their own.
        """
        rng, above, found = self._rng, 0, []
        for part in _parts(shares):
            above += poisson(rng, mean * part)
            found.append(above)
        return found.pop(), tuple(found[::-1])

    def _over(self, shares: Sequence[float], calls: int) -> tuple[int, ...]:
        """How many of so many good calls were slower than each mark: each is drawn of those slower than the one before."""
        found, left, above = [], calls, 1.0
        for share in shares:
            left = binomial(self._rng, left, share / above if above else 0.0)
            above = share
            found.append(left)
        return tuple(found)

    def _mean_us(self, cell: Cell, answered: int) -> int:
        odds = cell.odds
        noise = self._rng.gauss(0.0, 1.0) * odds.spread_ms / math.sqrt(answered)
        return max(1_000, round(1_000 * (odds.mean_ms + max(noise, -0.9 * odds.spread_ms))))


@lru_cache(maxsize=4_096)
def _tables(mean: float, shares: tuple[float, ...]) -> tuple[tuple[float, ...], ...] | None:
    """What each part of so many good calls is drawn by; None where they are too many for tables."""
    means = [mean * part for part in _parts(shares)]
    return tuple(map(sums, means)) if min(means) > 0.0 and max(means) <= LARGE else None


@lru_cache(maxsize=1_024)
def _parts(shares: tuple[float, ...]) -> tuple[float, ...]:
    """Of calls by the marks they pass, from those that pass all to those that pass none."""
    marks = (1.0, *shares, 0.0)
    return tuple(above - below for above, below in pairwise(marks))[::-1]


def service_names(clients: int, services: Mapping[str, float]) -> list[str]:
    """Which service each client is of: the first ones of the first."""
    names = list(services)
    sums = list(accumulate(services.values()))
    return [names[min(bisect(sums, (at + 0.5) / clients), len(names) - 1)] for at in range(clients)]
