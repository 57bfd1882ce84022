"""How soon: from the onset of a fault, or from its repair. Seconds; a time that never came is None."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from reachline.simulate.contender import What
from reachline.simulate.ran import FULL, Fault, Ran, between, first
from reachline.simulate.still import base_shares

__all__ = ["TIMES"]

_GONE: Final = 0.01
_QUARTER: Final = 0.25


def _worst(times: Sequence[int | None], since: Sequence[int]) -> float | None:
    """The longest, in seconds; None where one never came, or there is none to come."""
    if not times or any(each is None for each in times):
        return None
    return max((each or 0) - begin for each, begin in zip(times, since, strict=True)) / 1_000


def _detect(ran: Ran, faults: Sequence[Fault]) -> float | None:
    times = [first(ran, each.line, (What.CUT, What.OPEN), each.begin) for each in faults]
    return _worst(times, [each.begin for each in faults])


def _opened(ran: Ran, faults: Sequence[Fault]) -> float | None:
    down = [each for each in faults if each.down is not None]
    times: list[int | None] = []
    for each in down:
        since = each.down or 0
        times.append(since if _is_open(ran, each.line, since) else first(ran, each.line, (What.OPEN,), since))
    return _worst(times, [each.down or 0 for each in down])


def _is_open(ran: Ran, line: str, at_ms: int) -> bool:
    before = [one for one in ran.seen.events if one.line == line and one.at_ms <= at_ms and not one.client]
    return bool(before) and before[-1].what is What.OPEN


def _share_at(ran: Ran, line: str, at_ms: int) -> float:
    seconds = between(ran, at_ms - 10_000, at_ms)
    return sum(one.shares[line] for one in seconds) / len(seconds) if seconds else 0.0


def _drained(part: Callable[[Fault], float]) -> Callable[[Ran, Sequence[Fault]], float | None]:
    def time(ran: Ran, faults: Sequence[Fault]) -> float | None:
        times: list[int | None] = []
        for each in faults:
            least = part(each) * _share_at(ran, each.line, each.begin)
            seconds = between(ran, each.begin, ran.seen.end_ms)
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
        shares = (one.at_ms for one in between(ran, each.end, ran.seen.end_ms) if one.shares[each.line] > 0)
        known = [at for at in (next(shares, None), first(ran, each.line, (What.TRIAL,), each.end)) if at is not None]
        times.append(min(known, default=None))
    return _worst(times, [each.end for each in ended])


def _restored_full(ran: Ran, faults: Sequence[Fault]) -> float | None:
    times: list[int | None] = []
    ended = [each for each in faults if each.end < ran.seen.end_ms]
    full = base_shares(ran.run)
    for each in ended:
        seconds = between(ran, each.end, ran.seen.end_ms)
        times.append(next((one.at_ms for one in seconds if one.shares[each.line] >= FULL * full[each.line]), None))
    return _worst(times, [each.end for each in ended])


TIMES: Final[Mapping[str, Callable[[Ran, Sequence[Fault]], float | None]]] = {
    "t_detect": _detect,
    "t_drain": _drained(lambda fault: _GONE if fault.down is not None else _QUARTER),
    "t_drain_25pct": _drained(lambda _: _QUARTER),
    "t_open_after_down_class": _opened,
    "sdk_local_avoid": _avoided,
    "t_restore_first": _restored_first,
    "t_restore_full": _restored_full,
}
