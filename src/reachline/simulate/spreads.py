"""Who got how much: traffic that was elsewhere, or where it should not have been, and shares at the moments that limits name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from reachline.simulate.contender import What
from reachline.simulate.ran import FULL, Fault, Figure, Ran, between, first
from reachline.simulate.still import base_shares, ideal
from reachline.simulate.timeline import ms

__all__ = ["SHARES"]

_SETTLED_MS: Final = 2_500
"""After a line was opened: until all clients know, and all calls begun before have been told."""


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
        seconds = between(ran, each.begin, min(each.end, ran.seen.end_ms) + 1_000)
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
    shares = [one.shares[each.line] for each in faults for one in between(ran, each.begin, each.end)]
    return max(shares, default=None)


def _ramp_tail(ran: Ran, faults: Sequence[Fault]) -> float | None:
    """P95 on a returning line, from its first calls to its full share."""
    full = base_shares(ran.run)
    tails = [
        one.tails_ms[each.line]
        for each in faults
        for one in between(ran, each.end, ran.seen.end_ms)
        if 0 < one.shares[each.line] < FULL * full[each.line]
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
    last = between(ran, ran.seen.end_ms - 60_000, ran.seen.end_ms)
    if len(last) < 2 or not faults:
        return not faults
    truth = {line.name: ran.seen.timeline.truth(line.name, last[-1].at_ms) for line in ran.run.lines}
    wanted = ideal(ran.run, truth, ran.seen.timeline.rps(last[-1].at_ms))
    is_spread = all(last[-1].shares[line] >= FULL * share for line, share in wanted.items() if share)
    calls = last[-1].wanted - last[0].wanted
    return is_spread and (last[-1].bad - last[0].bad) <= 0.02 * calls


def _published(ran: Ran, at_ms: int) -> list[float]:
    """Shares as chosen in that second, in the lines' order."""
    found = between(ran, at_ms, at_ms + 1_000)
    return [round(found[0].shares[line.name], 4) for line in ran.run.lines] if found else []


def _healthy_share(ran: Ran, faults: Sequence[Fault]) -> list[float]:
    return _published(ran, (faults[0].begin if faults else ran.seen.end_ms) - 5_000)


def _degrade_share(ran: Ran, faults: Sequence[Fault]) -> list[float] | None:
    if not faults or (at := first(ran, faults[0].line, (What.CUT,), faults[0].begin)) is None:
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


SHARES: Final[Mapping[str, Callable[[Ran, Sequence[Fault]], Figure]]] = {
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
