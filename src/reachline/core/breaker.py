"""Trip, wait, trial, ramp: how a line is taken out and how slowly it comes back. Pure; chance comes in as a number."""

from __future__ import annotations

from typing import Final, NamedTuple

from reachline.core.rules import BreakerRules
from reachline.core.zone import wilson_at_least
from reachline.model import Gate, Zone

__all__ = [
    "CLOSED",
    "Breaker",
    "Move",
    "advance",
    "cooldown_ms",
    "count",
    "count_synthetic",
    "deadline",
    "open_again",
    "share_milli",
    "told",
    "trip",
]

_CLOSED: Final = Gate.CLOSED
_OPEN: Final = Gate.OPEN
_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""
_GATE_MILLI: Final = 1_645
"""z of the one-sided 95 % Wilson bound that a rate of failures must clear."""
_USUAL_TIMES: Final = 2
"""A line that returns fails where it fails more than twice as often as in its healthy days."""
_PROBES_MILLI: Final = 10
"""Probes that fill a starved window may not fail more often than this, or twice the usual."""


class Breaker(NamedTuple):
    """One line's breaker. `window` counts up with every trial window: outcomes of an older one are dropped."""

    gate: Gate = Gate.CLOSED
    step: int = 0
    since_ms: int = 0
    """When this gate, or this step, began."""
    until_ms: int = 0
    """End of the cooldown; only while open."""
    reopens: int = 0
    window: int = 0
    ok: int = 0
    failed: int = 0
    synthetic: int = 0
    """Probe successes in this window: a starved window may lean on them…"""
    marred: int = 0
    """…unless these failed beside them."""
    told_ok: int = 0
    """`ok` and…"""
    told_failed: int = 0
    """…`failed` as of the last tick."""
    run: int = 0
    """Failures in a row, as far as counts can tell: those of ticks without a success."""
    waits: bool = False
    """Its cooldown is over, but another line of its shared-risk group is on trial."""


CLOSED: Final = Breaker()


class Move(NamedTuple):
    """The breaker after a tick, and the rule that moved it (empty: it stayed)."""

    row: Breaker
    rule: str = ""


def cooldown_ms(reopens: int, jitter: int, rules: BreakerRules) -> int:
    """The wait after this many failed returns: doubled each time up to the cap, moved by `jitter` (-1000…1000 of the
    allowed share).
    """
    wait = rules.cooldown_ms
    for _ in range(reopens):
        wait = min(wait * rules.multiplier_milli // 1_000, rules.cooldown_cap_ms)
    wait = min(wait, rules.cooldown_cap_ms)
    return wait + wait * rules.jitter_milli * jitter // 1_000_000


def trip(row: Breaker, now_ms: int, *, jitter: int, rules: BreakerRules) -> Breaker:
    """Closed to open. Reopenings of an earlier return that was not yet forgiven still lengthen the wait."""
    return _opened(row, now_ms, row.reopens, jitter, rules)


def open_again(row: Breaker, now_ms: int, *, jitter: int, rules: BreakerRules) -> Breaker:
    """A trial or ramp failed: open, and the next wait is longer."""
    return _opened(row, now_ms, row.reopens + 1, jitter, rules)


def count(row: Breaker, *, window: int, ok: int, failed: int, rules: BreakerRules) -> Breaker:
    """Calls of one client added to the window they were made in; late reports of an older window change nothing.

    Once a tick found `max_ok` successes counting stops (evidence enough); inside a tick the order of reports cannot matter.
    A closed breaker with reopenings to forgive only remembers that real traffic was seen.
    """
    if row.gate is Gate.CLOSED:
        return row._replace(ok=1) if ok and row.reopens and not row.ok else row
    if row.gate is Gate.OPEN or window != row.window or row.told_ok >= rules.max_ok:
        return row
    return row._replace(ok=row.ok + ok, failed=row.failed + failed)


def count_synthetic(row: Breaker, ok: int, failed: int, *, now_ms: int, rules: BreakerRules) -> Breaker:
    """Probes added to a window that has starved for long enough to lean on them; before that, none count."""
    if row.gate not in (Gate.HALF_OPEN, Gate.RAMP) or now_ms - row.since_ms < rules.starved_ms:
        return row
    return row._replace(synthetic=row.synthetic + ok, marred=row.marred + failed)


def told(row: Breaker, rules: BreakerRules) -> Breaker:
    """The row as a tick begins, with all reports since the last one in: how many failures in a row, and whether it is enough.

    Of the tick that brings more than `max_ok` successes only the part that was still missing counts, failures alike.
    """
    ok, failed = row.ok - row.told_ok, row.failed - row.told_failed
    if row.gate not in (Gate.HALF_OPEN, Gate.RAMP) or not (ok or failed):
        return row
    run = 0 if ok else row.run + failed
    if row.ok > rules.max_ok:
        failed = -(-failed * (rules.max_ok - row.told_ok) // ok)
        row = row._replace(ok=rules.max_ok, failed=row.told_failed + failed)
    return row._replace(told_ok=row.ok, told_failed=row.failed, run=run)


def share_milli(row: Breaker, rules: BreakerRules) -> int:
    """What the gate leaves of the weight, in 1/1000."""
    if row.gate is _CLOSED:
        return 1_000
    return 0 if row.gate is _OPEN else rules.steps_milli[row.step]


def advance(
    row: Breaker,
    zone: Zone,
    now_ms: int,
    *,
    jitter: int,
    rules: BreakerRules,
    usual_milli: int = 0,
    steady: bool = False,
) -> Move:
    """The breaker after a tick that ended at `now_ms` with the newest verdict `zone`, N where nobody says anything of now.

    Tripping is the judge's wish, not ours. An open line that nobody sees stays open: no traffic is risked on silence.
    `usual_milli` is the line's failure rate in health; `steady` says that enough good ticks in a row were seen.
    """
    match row.gate:
        case Gate.CLOSED:
            return _forgive(row, now_ms, rules)
        case Gate.OPEN:
            if zone in (Zone.F, Zone.N) or now_ms < _until(row, zone, rules, steady=steady):
                return Move(row)
            rule = "breaker.cooldown_over" if now_ms >= row.until_ms else "breaker.early_trial"
            return Move(_window(row, Gate.HALF_OPEN, 0, now_ms), rule)
        case Gate.HALF_OPEN | Gate.RAMP:
            return _trial(row, zone, now_ms, jitter=jitter, rules=rules, usual_milli=usual_milli)


def deadline(
    row: Breaker, rules: BreakerRules, *, zone: Zone, usual_milli: int = 0, steady: bool = False
) -> int | None:
    """When `advance` will move this breaker without any new evidence, or None: then only evidence moves it."""
    match row.gate:
        case Gate.OPEN:
            return None if zone in (Zone.F, Zone.N) or row.waits else _until(row, zone, rules, steady=steady)
        case Gate.HALF_OPEN | Gate.RAMP if zone is not Zone.D:
            if row.ok >= rules.min_ok:
                return row.since_ms + _shortest(row, rules)
            if _is_fed(row, rules, usual_milli):
                return row.since_ms + rules.starved_ms
            return None
        case Gate.CLOSED if row.reopens and row.ok:
            return row.since_ms + rules.reset_ms
        case _:
            return None


def _until(row: Breaker, zone: Zone, rules: BreakerRules, *, steady: bool) -> int:
    """The end of the cooldown; a first opening of a line that is well again may be tried before."""
    if rules.early_ms and steady and zone is Zone.H and not row.reopens:
        return min(row.until_ms, row.since_ms + rules.early_ms)
    return row.until_ms


def _opened(row: Breaker, now_ms: int, reopens: int, jitter: int, rules: BreakerRules) -> Breaker:
    until_ms = now_ms + cooldown_ms(reopens, jitter, rules)
    return _new(Breaker, (_OPEN, 0, now_ms, until_ms, reopens, row.window, *CLOSED[6:]))


def _window(row: Breaker, gate: Gate, step: int, now_ms: int) -> Breaker:
    return Breaker(gate, step, since_ms=now_ms, reopens=row.reopens, window=row.window + 1)


def _forgive(row: Breaker, now_ms: int, rules: BreakerRules) -> Move:
    """Closed for long with real traffic seen, not by time alone."""
    if row.reopens and row.ok and now_ms - row.since_ms >= rules.reset_ms:
        return Move(row._replace(reopens=0), "breaker.forgiven")
    return Move(row)


def _shortest(row: Breaker, rules: BreakerRules) -> int:
    return rules.trial_ms if row.gate is Gate.HALF_OPEN else rules.step_ms


def _is_fed(row: Breaker, rules: BreakerRules, usual_milli: int) -> bool:
    """A starved window holds enough to pass with low confidence: real calls and, up to half, probes; no call failed, and
    the probes fail no more often than a line may.
    """
    if row.failed or row.ok + min(row.synthetic, rules.min_ok // 2) < rules.starved_min:
        return False
    bar_milli = max(_PROBES_MILLI, _USUAL_TIMES * usual_milli)
    return not (row.marred and wilson_at_least(row.marred, row.synthetic + row.marred, bar_milli, _GATE_MILLI))


def _has_failed(row: Breaker, rules: BreakerRules, usual_milli: int) -> bool:
    """Failures enough and, where a rate is asked for, too often or in a row: three of 10 000 are no reason to go back."""
    if row.failed < rules.fail_threshold:
        return False
    if not rules.fail_milli or row.run >= rules.fail_threshold:
        return True
    bar_milli = max(rules.fail_milli, _USUAL_TIMES * usual_milli)
    return wilson_at_least(row.failed, row.ok + row.failed, bar_milli, _GATE_MILLI)


def _trial(row: Breaker, zone: Zone, now_ms: int, *, jitter: int, rules: BreakerRules, usual_milli: int) -> Move:
    if zone is Zone.F:
        return Move(open_again(row, now_ms, jitter=jitter, rules=rules), "breaker.probes_failed")
    if _has_failed(row, rules, usual_milli):
        return Move(open_again(row, now_ms, jitter=jitter, rules=rules), "breaker.trial_failed")
    if zone is Zone.D:
        return Move(row)
    age_ms = now_ms - row.since_ms
    if age_ms >= _shortest(row, rules) and row.ok >= rules.min_ok:
        return Move(_next_step(row, now_ms, rules), "breaker.window_passed")
    if age_ms >= rules.starved_ms and _is_fed(row, rules, usual_milli):
        return Move(_next_step(row, now_ms, rules), "breaker.window_starved")
    return Move(row)


def _next_step(row: Breaker, now_ms: int, rules: BreakerRules) -> Breaker:
    step = row.step + 1
    if step >= len(rules.steps_milli) or rules.steps_milli[step] >= 1_000:
        return Breaker(since_ms=now_ms, reopens=row.reopens, window=row.window)
    return _window(row, Gate.RAMP, step, now_ms)
