"""What a run comes to, in figures: how soon, how often falsely, how many calls it cost. A figure that never came is None.

Decisions of single clients count by their share of all clients; times of those are when half of them had decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from reachline.simulate.contender import Event, Run, What
from reachline.simulate.fleet import Sums
from reachline.simulate.named import named
from reachline.simulate.observe import Observer, Second
from reachline.simulate.reach.told import Told
from reachline.simulate.scenarios import ALL
from reachline.simulate.still import base_shares, ideal
from reachline.simulate.timeline import ms

__all__ = ["Fault", "Figure", "Ran", "faults_of", "figures"]

Figure = float | bool | str | list[float] | None
_GONE: Final = 0.01
_QUARTER: Final = 0.25
_FULL: Final = 0.95
_SETTLED_MS: Final = 2_500
"""After a line was opened: until all clients know, and all calls begun before have been told."""


class Fault(NamedTuple):
    """One line's fault from its onset to its repair, in ms."""

    line: str
    begin: int
    end: int
    down: int | None
    """When its truth class becomes down, if it does."""


class Ran(NamedTuple):
    """One run, and what it is held against."""

    run: Run
    seen: Observer
    oracle: Sums
    told: Told | None = None

    @property
    def hours(self) -> float:
        """Line-hours."""
        return self.seen.end_ms / 3_600_000 * len(self.run.lines)


def faults_of(ran: Ran) -> tuple[Fault, ...]:
    """Truths that touch each other are one fault."""
    found: list[Fault] = []
    for line in ran.run.lines:
        truths = sorted(
            (ms(one.from_), ms(one.to), one.class_) for one in ran.seen.scenario.truth if one.line in {line.name, ALL}
        )
        for begin, end, word in truths:
            down = begin if word == "down" else None
            last = found[-1] if found else None
            if last is not None and last.line == line.name and last.end >= begin:
                found[-1] = last._replace(end=max(last.end, end), down=last.down if last.down is not None else down)
            else:
                found.append(Fault(line.name, begin, end, down))
    return tuple(found)


def figures(ran: Ran) -> dict[str, Figure]:
    """Every figure that this run has."""
    faults = faults_of(ran)
    found: dict[str, Figure] = {name: make(ran, faults) for name, make in _TIMES.items()}
    found |= {name: make(ran) for name, make in _COUNTS.items()}
    found |= {name: make(ran, faults) for name, make in _SHARES.items()}
    found["line_hours"] = ran.hours
    found["false_trips"] = (
        found["false_trips_per_h"] * ran.hours if isinstance(found["false_trips_per_h"], float) else 0.0
    )
    found["calls"] = round(ran.seen.sums.wanted)
    found["bad_calls"] = ran.seen.sums.bad
    if ran.told is not None:
        found |= named(ran.run, ran.seen, ran.told, [(fault.line, fault.begin, fault.end) for fault in faults])
    return found


# -- times -------------------------------------------------------------------------------------------------------------------------


def _first(ran: Ran, line: str, what: Iterable[What], since_ms: int) -> int | None:
    """When it was first decided, for all or by half of the clients."""
    wanted, single = set(what), dict[str, int]()
    for event in ran.seen.events:
        if event.line == line and event.what in wanted and event.at_ms >= since_ms:
            if not event.client:
                return event.at_ms
            single.setdefault(event.client, event.at_ms)
    half = math.ceil(len(ran.run.clients) / 2)
    return sorted(single.values())[half - 1] if len(single) >= half else None


def _worst(times: Sequence[int | None], since: Sequence[int]) -> float | None:
    """The longest, in seconds; None where one never came, or there is none to come."""
    if not times or any(each is None for each in times):
        return None
    return max((each or 0) - begin for each, begin in zip(times, since, strict=True)) / 1_000


def _detect(ran: Ran, faults: Sequence[Fault]) -> float | None:
    times = [_first(ran, each.line, (What.CUT, What.OPEN), each.begin) for each in faults]
    return _worst(times, [each.begin for each in faults])


def _opened(ran: Ran, faults: Sequence[Fault]) -> float | None:
    down = [each for each in faults if each.down is not None]
    times: list[int | None] = []
    for each in down:
        since = each.down or 0
        times.append(since if _is_open(ran, each.line, since) else _first(ran, each.line, (What.OPEN,), since))
    return _worst(times, [each.down or 0 for each in down])


def _is_open(ran: Ran, line: str, at_ms: int) -> bool:
    before = [one for one in ran.seen.events if one.line == line and one.at_ms <= at_ms and not one.client]
    return bool(before) and before[-1].what is What.OPEN


def _share_at(ran: Ran, line: str, at_ms: int) -> float:
    seconds = _between(ran, at_ms - 10_000, at_ms)
    return sum(one.shares[line] for one in seconds) / len(seconds) if seconds else 0.0


def _between(ran: Ran, begin: int, end: int) -> list[Second]:
    seconds = ran.seen.seconds
    return seconds[max(0, -(-begin // 1_000)) : max(0, -(-end // 1_000))]


def _drained(part: Callable[[Fault], float]) -> Callable[[Ran, Sequence[Fault]], float | None]:
    def time(ran: Ran, faults: Sequence[Fault]) -> float | None:
        times: list[int | None] = []
        for each in faults:
            least = part(each) * _share_at(ran, each.line, each.begin)
            seconds = _between(ran, each.begin, ran.seen.end_ms)
            times.append(next((one.at_ms for one in seconds if one.shares[each.line] <= least), None))
        return _worst(times, [each.begin for each in faults])

    return time


def _avoided(ran: Ran, faults: Sequence[Fault]) -> float | None:
    """P95 over the clients."""
    spent: list[float] = []
    for each in faults:
        first: dict[str, int] = {}
        for at_ms, line, client in ran.seen.left:
            if line == each.line and at_ms >= each.begin:
                first.setdefault(client, at_ms)
        spent += [(first.get(client, 10**9) - each.begin) / 1_000 for client in ran.run.clients]
    if not spent:
        return None
    found = sorted(spent)[math.ceil(0.95 * len(spent)) - 1]
    return found if found < 10**5 else None


def _restored_first(ran: Ran, faults: Sequence[Fault]) -> float | None:
    times: list[int | None] = []
    ended = [each for each in faults if each.end < ran.seen.end_ms]
    for each in ended:
        shares = (one.at_ms for one in _between(ran, each.end, ran.seen.end_ms) if one.shares[each.line] > 0)
        known = [at for at in (next(shares, None), _first(ran, each.line, (What.TRIAL,), each.end)) if at is not None]
        times.append(min(known, default=None))
    return _worst(times, [each.end for each in ended])


def _restored_full(ran: Ran, faults: Sequence[Fault]) -> float | None:
    times: list[int | None] = []
    ended = [each for each in faults if each.end < ran.seen.end_ms]
    full = base_shares(ran.run)
    for each in ended:
        seconds = _between(ran, each.end, ran.seen.end_ms)
        times.append(next((one.at_ms for one in seconds if one.shares[each.line] >= _FULL * full[each.line]), None))
    return _worst(times, [each.end for each in ended])


_TIMES: Final[Mapping[str, Callable[[Ran, Sequence[Fault]], float | None]]] = {
    "t_detect": _detect,
    "t_drain": _drained(lambda fault: _GONE if fault.down is not None else _QUARTER),
    "t_drain_25pct": _drained(lambda _: _QUARTER),
    "t_open_after_down_class": _opened,
    "sdk_local_avoid": _avoided,
    "t_restore_first": _restored_first,
    "t_restore_full": _restored_full,
}


# -- counts ------------------------------------------------------------------------------------------------------------------------


def _weight(ran: Ran, event: Event) -> float:
    return 1.0 / len(ran.run.clients) if event.client else 1.0


def _counted(ran: Ran, what: What, *, truth: str = "") -> float:
    found = (one for one in ran.seen.events if one.what is what)
    return sum(_weight(ran, one) for one in found if not truth or ran.seen.timeline.truth(one.line, one.at_ms) == truth)


def _false_degrades(ran: Ran) -> float:
    if ran.told is None:
        return _counted(ran, What.CUT, truth="healthy") / ran.hours
    entries = ran.told.degraded()
    return sum(ran.seen.timeline.truth(line, at_ms) == "healthy" for at_ms, line in entries) / ran.hours


def _decisions(ran: Ran) -> float:
    made = len(ran.told.changes) if ran.told is not None else sum(_weight(ran, one) for one in ran.seen.events)
    return made / ran.hours


def _reopened(ran: Ran) -> float:
    trying: set[tuple[str, str]] = set()
    count = 0.0
    for event in ran.seen.events:
        key = event.line, event.client
        if event.what is What.TRIAL:
            trying.add(key)
        elif event.what is What.OPEN and key in trying:
            trying.discard(key)
            count += _weight(ran, event)
        elif event.what is What.CLOSE:
            trying.discard(key)
    return count


def _flaps(ran: Ran) -> float:
    """Swings of more than 20 points against the one before, within 60 s of it."""
    full = base_shares(ran.run)
    count = 0
    for line in full:
        points = [(one.at_ms, 100 * one.shares[line] / full[line] if full[line] else 0.0) for one in ran.seen.seconds]
        count += turns(points)
    return count


def turns(points: Sequence[tuple[int, float]], *, points_least: float = 20.0, within_ms: int = 60_000) -> int:
    """Times that a series turns by more than `points_least` against a swing as large that ended no longer ago."""
    if not points:
        return 0
    count, heading, swung_ms = 0, 0, -(10**12)
    peak = trough = points[0]
    for at_ms, value in points:
        peak = max(peak, (at_ms, value), key=lambda point: point[1]) if heading >= 0 else peak
        trough = min(trough, (at_ms, value), key=lambda point: point[1]) if heading <= 0 else trough
        if heading >= 0 and peak[1] - value > points_least:
            count += heading > 0 and at_ms - swung_ms <= within_ms
            heading, swung_ms, trough = -1, at_ms, (at_ms, value)
        elif heading <= 0 and value - trough[1] > points_least:
            count += heading < 0 and at_ms - swung_ms <= within_ms
            heading, swung_ms, peak = 1, at_ms, (at_ms, value)
    return count


_COUNTS: Final[Mapping[str, Callable[[Ran], float]]] = {
    "false_trips_per_h": lambda ran: _counted(ran, What.OPEN, truth="healthy") / ran.hours,
    "false_degrades_per_h": _false_degrades,
    "decisions_per_h": _decisions,
    "opens": lambda ran: _counted(ran, What.OPEN),
    "line_trips": lambda ran: _counted(ran, What.OPEN),
    "false_close": lambda ran: _counted(ran, What.CLOSE, truth="down"),
    "reopen": _reopened,
    "flaps": _flaps,
    "overload_peak": lambda ran: max((max(one.used.values()) for one in ran.seen.seconds), default=0.0),
    "overload_s": lambda ran: float(
        sum(
            used > ran.seen.scenario.capacity_model.knee + 1e-6
            for one in ran.seen.seconds
            for used in one.used.values()
        )
    ),
    "bad_requests": lambda ran: max(0, ran.seen.sums.bad - ran.oracle.bad) / max(1.0, ran.seen.sums.wanted),
}


# -- shares ------------------------------------------------------------------------------------------------------------------------


def _shift(ran: Ran, _: Sequence[Fault]) -> float | None:
    """Traffic that is elsewhere than it should be, while no line is better than another."""
    moved, seconds = 0.0, 0
    timeline, even = ran.seen.timeline, base_shares(ran.run)
    for one in ran.seen.seconds:
        truth = {line.name: timeline.truth(line.name, one.at_ms) for line in ran.run.lines}
        if len({*truth.values()}) > 1 or timeline.drained(one.at_ms):
            continue
        seconds += 1
        moved += sum(abs(one.shares[line] - share) for line, share in even.items()) / 2
    return moved / seconds if seconds else None


def _amplified(ran: Ran, faults: Sequence[Fault]) -> float | None:
    wanted = arrived = 0.0
    for each in faults:
        seconds = _between(ran, each.begin, min(each.end, ran.seen.end_ms) + 1_000)
        if len(seconds) > 1:
            calls = seconds[-1].wanted - seconds[0].wanted
            wanted += calls
            arrived += calls + seconds[-1].retries - seconds[0].retries
    return arrived / wanted if wanted else None


def _dip(ran: Ran, _: Sequence[Fault]) -> float:
    full = base_shares(ran.run)
    dips = (
        1.0 - one.shares[line] / share
        for one in ran.seen.seconds
        for line, share in full.items()
        if share and ran.seen.timeline.truth(line, one.at_ms) == "healthy"
    )
    return max(0.0, max(dips, default=0.0))


def _seen_most(ran: Ran, faults: Sequence[Fault]) -> float | None:
    shares = [one.shares[each.line] for each in faults for one in _between(ran, each.begin, each.end)]
    return max(shares, default=None)


def _ramp_tail(ran: Ran, faults: Sequence[Fault]) -> float | None:
    """P95 on a returning line, from its first calls to its full share."""
    full = base_shares(ran.run)
    tails = [
        one.tails_ms[each.line]
        for each in faults
        for one in _between(ran, each.end, ran.seen.end_ms)
        if 0 < one.shares[each.line] < _FULL * full[each.line]
    ]
    return sorted(tails)[math.ceil(0.95 * len(tails)) - 1] if tails else None


def _to_open(ran: Ran, _: Sequence[Fault]) -> float:
    """Calls on lines that stand open for all, trials apart."""
    count = 0
    for line in ran.run.lines:
        since: int | None = None
        turning = [one for one in ran.seen.events if one.line == line.name and not one.client]
        spans: list[tuple[int, int]] = []
        for event in turning:
            if event.what is What.OPEN and since is None:
                since = event.at_ms
            elif event.what in {What.TRIAL, What.CLOSE} and since is not None:
                spans.append((since, event.at_ms))
                since = None
        if since is not None:
            spans.append((since, ran.seen.end_ms))
        count += sum(
            calls for at, calls in ran.seen.calls[line.name] if any(b + _SETTLED_MS < at <= e for b, e in spans)
        )
    return float(count)


def _to_drained(ran: Ran, _: Sequence[Fault]) -> float:
    count = 0
    for phase in ran.seen.scenario.phases:
        if phase.admin and phase.line in ran.seen.calls:
            begin, end = ms(phase.from_) + 10_000, ms(phase.to)
            count += sum(calls for at, calls in ran.seen.calls[str(phase.line)] if begin < at <= end)
    return float(count)


def _recovered(ran: Ran, faults: Sequence[Fault]) -> bool:
    """At the end all stands as the best would have it, and calls end well."""
    last = _between(ran, ran.seen.end_ms - 60_000, ran.seen.end_ms)
    if len(last) < 2 or not faults:
        return not faults
    truth = {line.name: ran.seen.timeline.truth(line.name, last[-1].at_ms) for line in ran.run.lines}
    wanted = ideal(ran.run, truth, ran.seen.timeline.rps(last[-1].at_ms))
    is_spread = all(last[-1].shares[line] >= _FULL * share for line, share in wanted.items() if share)
    calls = last[-1].wanted - last[0].wanted
    return is_spread and (last[-1].bad - last[0].bad) <= 0.02 * calls


def _published(ran: Ran, at_ms: int) -> list[float]:
    """Shares as chosen in that second, in the lines' order."""
    found = _between(ran, at_ms, at_ms + 1_000)
    return [round(found[0].shares[line.name], 4) for line in ran.run.lines] if found else []


def _healthy_share(ran: Ran, faults: Sequence[Fault]) -> list[float]:
    return _published(ran, (faults[0].begin if faults else ran.seen.end_ms) - 5_000)


def _degrade_share(ran: Ran, faults: Sequence[Fault]) -> list[float] | None:
    if not faults or (at := _first(ran, faults[0].line, (What.CUT,), faults[0].begin)) is None:
        return None
    return _published(ran, at + 1_000)


def _down_share(ran: Ran, faults: Sequence[Fault]) -> list[float] | None:
    down = [each for each in faults if each.down is not None]
    return _published(ran, down[0].end - 2_000) if down else None


def _reserve_shares(ran: Ran, faults: Sequence[Fault]) -> list[float] | None:
    """The reserve group's part in health, with one line of the other group down, and with all of them."""
    reserve = [at for at, line in enumerate(ran.run.lines) if line.role == "reserve"]
    down = sorted(each.down for each in faults if each.down is not None)
    if not reserve or len(down) < 2:
        return None
    end = min(each.end for each in faults)
    moments = (down[0] - 5_000, down[1] - 2_000, end - 2_000)
    return [round(sum(_published(ran, at)[each] for each in reserve), 4) for at in moments]


_SHARES: Final[Mapping[str, Callable[[Ran, Sequence[Fault]], Figure]]] = {
    "needless_shift": _shift,
    "amplification": _amplified,
    "max_weight_dip": _dip,
    "max_share_seen": _seen_most,
    "p95_during_ramp_ms": _ramp_tail,
    "traffic_to_open_line": _to_open,
    "drained_line_traffic_after_10s": _to_drained,
    "recovers_after_fault": _recovered,
    "share_healthy": _healthy_share,
    "share_at_degrade": _degrade_share,
    "share_down": _down_share,
    "b_share": _reserve_shares,
}
