"""The parts of `Rules` that take a line out, bring it back, and say how far automation may go. Numbers only."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BreakerRules", "GuardRules", "LocalRules"]


class BreakerRules(NamedTuple):
    """Trip, wait, trial, ramp."""

    cooldown_ms: int = 60_000
    cooldown_cap_ms: int = 960_000
    multiplier_milli: int = 2_000
    jitter_milli: int = 100
    """Each cooldown is moved by up to this share, either way; 0 in golden traces."""
    reset_ms: int = 600_000
    """Closed this long, with real traffic seen, forgives the reopenings."""
    steps_milli: tuple[int, ...] = (50, 100, 200, 400, 600, 1_000)
    """Share of the base weight in the trial and at each step of the ramp; the last one is closed."""
    trial_ms: int = 30_000
    """Shortest half-open trial."""
    step_ms: int = 30_000
    """Shortest ramp step."""
    min_ok: int = 200
    max_ok: int = 1_000
    """Counting stops here: evidence enough."""
    fail_threshold: int = 3
    starved_ms: int = 300_000
    """A window older than this may be filled up to half of `min_ok` by probes…"""
    starved_min: int = 50
    """…and passes, flagged, with this many successes and no failure. Never close on nothing."""
    fail_milli: int = 0
    """0: `fail_threshold` failures end a trial. Else they must also show a rate above this and twice the line's usual one."""
    early_ms: int = 0
    """Open this long and seen well again, a line's first opening ends before its cooldown does; 0: never."""
    share_steps: bool = False
    """The steps are shares of the traffic of lines with the user's own weights, not of the line's weight."""


class GuardRules(NamedTuple):
    """How much automation may take out, and what lines share."""

    open_milli: int = 500
    """It holds at most this share of a cluster's base capacity open."""
    panic_milli: int = 500
    """More than this share of the weight lost is panic."""
    alive_ms: int = 60_000
    """In panic a line with a success this young is not kept open."""
    group_ms: int = 30_000
    """Half of a shared-risk group, two lines at least, bad within this time is one incident."""
    fill_milli: int = 850
    """Traffic is poured up to this share of a line's capacity."""


class LocalRules(NamedTuple):
    """The SDK's own breaker, sent to clients as data so that they agree."""

    failures: int = 2
    open_ms: int = 5_000
    open_cap_ms: int = 60_000
    max_open_milli: int = 500
    """At most this share of a cluster's lines, and never the last one."""
    trial_calls: int = 3
    """In flight to a line in half-open: at most these…"""
    trial_calls_milli: int = 50
    """…and this share of what was in flight of late."""
    ramp_connects: int = 50
    """New connections a second to a line in half-open or ramp."""
    share_milli: int = 0
    """`failures` in a row open it only where they are this share of the line's newest calls; 0: in any case."""
