"""Outlier detection of one cluster: lines are ejected by what their calls come to, and come back by time or an active check.

Pure: `now_ms` comes in, events go out, chance is drawn from (line, decision number, seed). The formulas are elsewhere
(`ejection`, `outlier_sweep`); here is their order, as Envoy's, but that a sweep ejects a line once at most and that the
gauge is the flags counted. Refuses to know addresses, pickers and logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from reachline.core.ejection import Held, Monitor, chance, due_ms, ease, plan_ms
from reachline.core.outlier_events import CODES, ORIGINS, SPLIT_FAILED, Action, Event, Saw
from reachline.core.outlier_rules import Detector, OutlierRules, Return, checked, enforcing
from reachline.core.outlier_sweep import Finding, Sweep, external, local
from reachline.core.outlying import Bar

__all__ = ["Outliers"]


_ANSWERED: Final = Saw.ANSWERED


class Outliers:
    """Monitors and flags of a cluster's lines. One writer: whoever calls it does so from one thread, or under one lock."""

    def __init__(self, rules: OutlierRules, *, seed: int, now_ms: int) -> None:
        self._rules = checked(rules)
        self._times: Final = rules.latency
        self._splits: Final = rules.split_external_local_origin_errors
        """On the way of every call: looked up once."""
        self._seed: Final = seed
        self._monitors: dict[str, Monitor] = {}
        self._away: dict[str, tuple[Monitor, int]] = {}
        """Lines that are gone, and until when they are remembered."""
        self._out: set[str] = set()
        self._sweep_ms = now_ms + rules.interval_ms
        self._decisions = 0
        self._counts: Counter[str] = Counter()
        self._bars: dict[Detector, Bar] = {}

    @property
    def rules(self) -> OutlierRules:
        return self._rules

    @property
    def ejected(self) -> frozenset[str]:
        """Lines that are out now; their number is the gauge."""
        return frozenset(self._out)

    @property
    def counts(self) -> Mapping[str, int]:
        """By Envoy's names: `ejections_overflow`, `ejections_enforced_total`, `ejections_detected_success_rate`, …"""
        return self._counts | {"ejections_active": len(self._out)}

    @property
    def bars(self) -> Mapping[Detector, Bar]:
        """Mean (or median) and threshold of the success rates of the last sweep, where there were any."""
        return dict(self._bars)

    def monitor(self, line: str) -> Monitor | None:
        """What is known of a line, to be read only; None: it is not ours."""
        return self._monitors.get(line)

    def until_ms(self, line: str) -> int | None:
        """The planned end of the line's ejection; None: it is in."""
        monitor = self._monitors.get(line)
        return None if monitor is None else plan_ms(monitor, self._rules, self._sweep_ms)

    @property
    def sweep_ms(self) -> int:
        """When the next sweep is due."""
        return self._sweep_ms

    def deadline(self) -> int:
        """When `turn` is due: the next sweep, or before it a return that is to be on time."""
        if self._rules.returns is Return.SWEEP or not self._out:
            return self._sweep_ms
        return min(self._sweep_ms, *(due_ms(self._monitors[each], self._rules) or 0 for each in self._out))

    def replace(self, lines: Mapping[str, int], now_ms: int) -> tuple[Event, ...]:
        """The cluster's lines with their priorities, as they are now. What left takes its flag with it.

        Events are of lines whose ejection was remembered while they were away, and is over.
        """
        self._away = {line: each for line, each in self._away.items() if now_ms < each[1]}
        for line in self._monitors.keys() - lines.keys():
            self._out.discard(line)
            if self._rules.keep_removed_ms:
                self._away[line] = self._monitors[line], now_ms + self._rules.keep_removed_ms
        before, self._monitors = self._monitors, {}
        back = []
        for line, priority in lines.items():
            monitor = before.get(line)
            if monitor is not None and monitor.priority == priority:
                self._monitors[line] = monitor
                continue
            if monitor is not None and not self._rules.keep_moved:
                self._out.discard(line)
                monitor = None
            elif monitor is None and line in self._away:
                monitor = self._away.pop(line)[0]
                back.append(line)
            self._monitors[line] = monitor or Monitor()
            self._monitors[line].priority = priority
        return tuple(event for line in back for event in self._readmit(line, now_ms))

    def saw(
        self, line: str, saw: Saw, now_ms: int, *, code: int | None = None, took_us: int | None = None
    ) -> tuple[Event, ...]:
        """One thing seen of one line: a whole call, or its connect. `code` is its real status, `took_us` how long a success took."""
        monitor = self._monitors.get(line)
        if monitor is None:
            return ()
        if took_us is not None and self._times and saw is _ANSWERED:
            monitor.timed(took_us)
        if self._splits:
            found = self._split(monitor, saw, code)
        else:
            status = code or CODES.get(saw)
            found = monitor.answered(status, self._rules) if status else ()
        if not found:
            return ()
        events = []
        for detector in found:
            if monitor.ejection is None:
                events.append(self._decide(Finding(detector, line, 0), now_ms))
                monitor.forget_run(detector)
        return tuple(events)

    def well(self, line: str) -> None:
        """`saw` of a whole call that was answered well, where origins are not split and nobody asks how long it took: on the way of most."""
        monitor = self._monitors.get(line)
        if monitor is not None:
            counts = monitor.external
            counts[0] += 1
            counts[1] += 1
            monitor.run_5xx = monitor.run_gateway = 0

    def passed_check(self, line: str, now_ms: int) -> tuple[Event, ...]:
        """An active check passed and the line is healthy by active checks: its ejection is over, where rules say so."""
        if line not in self._out or not self._rules.successful_active_health_check_uneject_host:
            return ()
        return (self._return(line, now_ms, "active_check"),)

    def turn(self, now_ms: int) -> tuple[Event, ...]:
        """Returns that are due, and the sweep if it is; the next one is an interval later."""
        is_swept = now_ms >= self._sweep_ms
        events: list[Event] = []
        if is_swept or self._rules.returns is Return.EXACT:
            due = [line for line in self._out if (due_ms(self._monitors[line], self._rules) or 0) <= now_ms]
            events += [self._return(line, now_ms, "time") for line in sorted(due)]
        if is_swept:
            self._sweep_ms = now_ms + self._rules.interval_ms
            for monitor in self._monitors.values():
                monitor.rotate()
            self._bars = {}
            for detector, look in ((Detector.SUCCESS_RATE, external), (Detector.SUCCESS_RATE_LOCAL_ORIGIN, local)):
                events += self._act(look(self._monitors, self._rules), detector, now_ms)
            for monitor in self._monitors.values():
                ease(monitor, now_ms, self._rules)
        return tuple(events)

    def _split(self, monitor: Monitor, saw: Saw, code: int | None) -> tuple[Detector, ...]:
        """Of split origins: connects by themselves, answers as what came over the connection."""
        if (ok := ORIGINS.get(saw)) is not None:
            return monitor.connected(ok=ok, rules=self._rules)
        if saw is _ANSWERED and code is None:
            monitor.connected(ok=True, rules=self._rules)
        return monitor.answered(code or (200 if saw is _ANSWERED else SPLIT_FAILED), self._rules)

    def _act(self, sweep: Sweep, detector: Detector, now_ms: int) -> Iterable[Event]:
        if sweep.bar is not None:
            self._bars[detector] = sweep.bar
        return [self._decide(each, now_ms) for each in sweep.findings if not self._is_known(each)]

    def _is_known(self, finding: Finding) -> bool:
        """Another detector of this sweep ejected it: found, but once is enough."""
        is_out = finding.line in self._out
        if is_out:
            self._counts[f"ejections_detected_{finding.detector.value.lower()}"] += 1
        return is_out

    def _decide(self, finding: Finding, now_ms: int) -> Event:
        """Within the cap counted after it, and by the chance of `enforcing_…`: out. Otherwise why not."""
        detector, line = finding.detector, finding.line
        monitor, name = self._monitors[line], detector.value.lower()
        since_ms = None if monitor.returned_ms is None else now_ms - monitor.returned_ms
        event = Event(
            now_ms,
            line,
            Action.EJECT,
            detector,
            monitor.ejections,
            since_ms=since_ms,
            value=finding.value,
            bar=finding.bar,
        )
        self._counts[f"ejections_detected_{name}"] += 1
        self._decisions += 1
        drawn = chance(line, self._decisions, self._seed)
        why = "alone" if finding.is_alone else self._lack_of_room(line)
        if why:
            self._counts["ejections_overflow"] += why != "alone"
            event = event._replace(action=Action.HELD)
        elif drawn % 100 >= enforcing(detector, self._rules):
            why = "not_enforced"
        if why:
            monitor.held = Held(detector, now_ms, why)
            return event._replace(enforced=False, why=why)
        jitter_ms = (drawn >> 16) % (self._rules.max_ejection_jitter_ms + 1)
        monitor.eject(detector, now_ms, jitter_ms=jitter_ms, rules=self._rules)
        self._out.add(line)
        self._counts.update(("ejections_enforced_total", f"ejections_enforced_{name}"))
        return event._replace(ejections=monitor.ejections, until_ms=self.until_ms(line))

    def _lack_of_room(self, line: str) -> str:
        """Why one more may not go, counted as if it had; empty: it may."""
        rules, out = self._rules, len(self._out)
        if rules.always_eject_one_host and not out:
            return ""
        if 100 * (out + 1) > rules.max_ejection_percent * len(self._monitors):
            return "cap"
        if rules.max_ejection_percent_per_priority >= 100:
            return ""
        priority = self._monitors[line].priority
        among = sum(1 for each in self._monitors.values() if each.priority == priority)
        beside = sum(1 for each in self._out if self._monitors[each].priority == priority)
        return "cap_priority" if 100 * (beside + 1) > rules.max_ejection_percent_per_priority * among else ""

    def _return(self, line: str, now_ms: int, why: str) -> Event:
        monitor = self._monitors[line]
        out = monitor.ejection
        assert out is not None
        monitor.take_back(now_ms)
        self._out.discard(line)
        return Event(
            now_ms, line, Action.UNEJECT, out.detector, monitor.ejections, since_ms=now_ms - out.at_ms, why=why
        )

    def _readmit(self, line: str, now_ms: int) -> tuple[Event, ...]:
        """A line that was away only briefly is out as before, unless its time is over or the cap has no room for it now."""
        due = due_ms(self._monitors[line], self._rules)
        if due is None:
            return ()
        why = "time" if due <= now_ms else self._lack_of_room(line)
        self._out.add(line)
        return (self._return(line, now_ms, why),) if why else ()
