"""An Envoy in each client: active health checks, outlier detection, priorities and panic.

Facts: Envoy's API reference and "Outlier detection", "Health checking", "Priority levels", "Panic threshold" of its
architecture overview, values of its unit tests, and the 1.40 binary. Outlier detection has Envoy's defaults: 5 errors in a row,
swept each 10 s, out for 30 s × ejections up to 300 s, at most 10 % of the hosts, success rate below mean − 1.9 σ with 5 hosts and
100 calls; detectors that default to not enforcing are left out. Envoy has no default for active checks; they are those of Envoy
Gateway: every 3 s, 1 s to answer, 3 failures, 1 success.

One thing is set against the default, in its favour: `always_eject_one_host`. Of fewer than ten hosts, 10 % are none, and
outlier detection would do nothing at all in most scenarios.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reachline.model import Failure, Kind
from reachline.simulate.contender import Called, Choice, Event, Probed, Run, RunLine, Seen, What, Wish
from reachline.simulate.peers.common import Spread, ended, failures, tiers

__all__ = ["EnvoyLike", "EnvoyRules", "Host", "Outliers", "priority_loads", "threshold"]

_HOSTS_FACTOR: Final = 140
"""Overprovisioning: 72 % healthy carry all."""
_PANIC: Final = 50
_FINE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyRules:
    """Envoy's names; times in ms."""

    consecutive_5xx: int = 5
    interval_ms: int = 10_000
    base_ejection_ms: int = 30_000
    max_ejection_ms: int = 300_000
    max_ejection_percent: int = 10
    always_eject_one_host: bool = True
    success_rate_minimum_hosts: int = 5
    success_rate_request_volume: int = 100
    success_rate_stdev_factor: int = 1_900
    uneject_on_pass: bool = True
    """`successful_active_health_check_uneject_host`."""
    check_interval_ms: int = 3_000
    check_timeout_ms: int = 1_000
    unhealthy_threshold: int = 3
    healthy_threshold: int = 1


class Host:
    """One host as one Envoy sees it: two flags, each cleared by its own engine."""

    def __init__(self, line: RunLine) -> None:
        self.line = line
        self.failed_active = True
        self.ejected = False
        self._checked = False
        self._failures = self._passes = 0
        self.row = 0
        self.multiplier = 0
        self.ejected_ms = 0
        self.back_ms: int | None = None
        """When it last came back."""
        self.total = self.ok = 0

    @property
    def healthy(self) -> bool:
        """Whether it takes calls outside panic."""
        return not (self.failed_active or self.ejected)

    def checked(self, failure: Failure | None, settings: EnvoyRules) -> None:
        """One active check: the first pass makes it healthy at once; a bad answer fails it at once, silence by threshold."""
        if failure is None:
            self._failures, self._passes = 0, self._passes + 1
            if not self._checked or self._passes >= settings.healthy_threshold:
                self.failed_active = False
        else:
            self._failures, self._passes = self._failures + 1, 0
            if failure is Failure.STATUS or self._failures >= settings.unhealthy_threshold:
                self.failed_active = True
        self._checked = True

    def uneject(self, now_ms: int) -> None:
        """Back in, all counters anew."""
        self.ejected, self.row, self.back_ms = False, 0, now_ms


def threshold(rates: Sequence[float], factor: int) -> float:
    """The success rate, in percent, below which a host is an outlier; `factor` in thousandths of the deviation."""
    mean = sum(rates) / len(rates)
    deviation = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / len(rates))
    return mean - factor / 1_000 * deviation


class Outliers:
    """Outlier detection of one Envoy over one cluster."""

    def __init__(self, hosts: Sequence[Host], settings: EnvoyRules, *, first_sweep_ms: int = 0) -> None:
        self._hosts, self._settings = hosts, settings
        self._sweep_ms = first_sweep_ms or settings.interval_ms
        self.detected = self.overflow = 0

    def called(self, host: Host, called: Called, now_ms: int) -> None:
        """Calls of one step. A host that is out already counts nothing in a row."""
        host.total += ended(called)
        host.ok += called.ok
        for failed in failures(called):
            if host.ejected:
                return
            host.row = host.row + 1 if failed else 0
            if host.row == self._settings.consecutive_5xx:
                self.detected += 1
                self._eject(host, now_ms)
                host.row = 0

    def sweep(self, now_ms: int) -> None:
        """What the interval brings, where it is over: who is due comes back, who stands out by success rate goes."""
        if now_ms < self._sweep_ms:
            return
        self._sweep_ms += self._settings.interval_ms
        for host in self._hosts:
            if host.ejected and now_ms - host.ejected_ms >= self._out_ms(host):
                host.uneject(now_ms)
        self._rates(now_ms)
        for host in self._hosts:
            is_clean = host.back_ms is None or now_ms - host.back_ms >= self._settings.interval_ms
            if not host.ejected and is_clean and host.multiplier:
                host.multiplier -= 1
            host.total = host.ok = 0

    def _out_ms(self, host: Host) -> int:
        return min(self._settings.base_ejection_ms * host.multiplier, self._settings.max_ejection_ms)

    def _rates(self, now_ms: int) -> None:
        asked = [
            host
            for host in self._hosts
            if not host.ejected and host.total >= self._settings.success_rate_request_volume
        ]
        if len(asked) < self._settings.success_rate_minimum_hosts:
            return
        rates = [100 * host.ok / host.total for host in asked]
        least = threshold(rates, self._settings.success_rate_stdev_factor)
        for host, rate in zip(asked, rates, strict=True):
            if rate < least:
                self.detected += 1
                self._eject(host, now_ms)

    def _eject(self, host: Host, now_ms: int) -> None:
        active = sum(each.ejected for each in self._hosts)
        fits = 100 * (active + 1) <= self._settings.max_ejection_percent * len(self._hosts)
        if not fits and (active or not self._settings.always_eject_one_host):
            self.overflow += 1
            return
        most, base = self._settings.max_ejection_ms, self._settings.base_ejection_ms
        if host.multiplier * base < most + base:
            host.multiplier += 1
        host.ejected, host.ejected_ms = True, now_ms


def priority_loads(healthy: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Percent of the calls for each priority, from its (healthy, all) hosts."""
    values = [min(100, _HOSTS_FACTOR * good // all_) if all_ else 0 for good, all_ in healthy]
    total = min(100, sum(values))
    if not total:
        return (100, *(0 for _ in values[1:]))
    left, loads = 100, []
    for value in values:
        loads.append(min(left, value * 100 // total))
        left -= loads[-1]
    first = next(index for index, value in enumerate(values) if value)
    loads[first] += left
    return tuple(loads)


class _Envoy:
    """One client's Envoy."""

    def __init__(self, run: Run, settings: EnvoyRules) -> None:
        self.settings = settings
        self.hosts = {line.name: Host(line) for line in run.lines}
        self.outliers = Outliers(
            tuple(self.hosts.values()), settings, first_sweep_ms=1 + run.rng.randrange(settings.interval_ms)
        )
        self._tiers = tuple(tuple(self.hosts[line.name] for line in tier) for tier in tiers(run))
        self.spread = Spread()
        self.balance()

    def checked(self, probed: Probed, now_ms: int) -> None:
        """One active check; a pass brings an ejected host back."""
        host = self.hosts[probed.wish.line]
        host.checked(probed.failure, self.settings)
        if probed.failure is None and self.settings.uneject_on_pass and host.ejected and not host.failed_active:
            host.uneject(now_ms)

    def balance(self) -> None:
        """Weighted round robin over healthy hosts of each priority; over all of them in panic."""
        sizes = [(sum(host.healthy for host in tier), len(tier)) for tier in self._tiers]
        is_full = sum(min(100, _HOSTS_FACTOR * good // all_) for good, all_ in sizes) >= 100
        weights: dict[str, int] = {}
        for tier, load, (good, all_) in zip(self._tiers, priority_loads(sizes), sizes, strict=True):
            panics = not is_full and 100 * good < _PANIC * all_
            takers = [host.line for host in tier if panics or host.healthy]
            total = sum(line.base for line in takers)
            weights |= {line.name: load * _FINE * line.base // total for line in takers if load}
        self.spread.put({name: weight for name, weight in weights.items() if weight})


class EnvoyLike:
    """An Envoy at each client, with checks of its own."""

    def __init__(self, run: Run, settings: EnvoyRules | None = None) -> None:
        self._run, self._settings = run, settings or EnvoyRules()
        self._envoys = {client: _Envoy(run, self._settings) for client in run.clients}

    def wishes(self) -> Sequence[Wish]:
        """HTTP checks from every client, of each host on its own."""
        every_ms, timeout_ms = self._settings.check_interval_ms, self._settings.check_timeout_ms
        return tuple(
            Wish(client, line.name, Kind.HTTP, every_ms, timeout_ms, self._run.rng.randrange(every_ms))
            for client in self._run.clients
            for line in self._run.lines
        )

    def step(self, seen: Seen) -> Sequence[Event]:
        """Calls, checks, then sweeps."""
        before = {client: self._flags(client) for client in self._envoys}
        for called in seen.calls:
            envoy = self._envoys[called.client]
            envoy.outliers.called(envoy.hosts[called.line], called, seen.now_ms)
        for probed in seen.probes:
            self._envoys[probed.wish.vantage].checked(probed, seen.now_ms)
        events = []
        for client, envoy in self._envoys.items():
            envoy.outliers.sweep(seen.now_ms)
            if (now := self._flags(client)) == before[client]:
                continue
            envoy.balance()
            for name, was, is_now in zip(envoy.hosts, before[client], now, strict=True):
                if was is not is_now:
                    events.append(Event(seen.now_ms, name, What.CLOSE if is_now else What.OPEN, client))
        return events

    def choice(self, client: str) -> Choice:
        """By weight over healthy hosts."""
        return self._envoys[client].spread.choice

    def _flags(self, client: str) -> tuple[bool, ...]:
        return tuple(host.healthy for host in self._envoys[client].hosts.values())
