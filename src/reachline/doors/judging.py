"""Settings of how lines are judged and what comes of it: pace, patience, faults, the breakers, and which rules act.

Every default carries its reason.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reachline.doors.limits import Rate
from reachline.doors.probe import Settings
from reachline.doors.units import Duration, Share, refuse

__all__ = [
    "Business",
    "CircuitBreaker",
    "Enforce",
    "Faults",
    "Guard",
    "HalfOpen",
    "Judge",
    "LocalBreaker",
    "Patience",
    "Recovery",
    "enforced",
]


class Judge(Settings):
    """The pace of judging, and who counts in a vote."""

    tick: Annotated[Duration, Field(ge=0.5, le=600)] = Field(10.0, description="Judged this often: once a heartbeat.")
    heartbeat: Annotated[Duration, Field(ge=0.5, le=600)] = Field(
        10.0, description="Agents report this often (and at once on a change): the source document's pace."
    )
    vote_share: Share = Field(
        0.5, ge=0.5, lt=1, description="A zone needs strictly more than this share of the vantages heard."
    )
    fresh: float = Field(
        2.5, ge=1, le=100, description="Heartbeats for which a vote counts: one may be lost, one late."
    )
    blind: Annotated[Duration, Field(ge=1, le=86_400)] = Field(
        60.0, description="Unheard this long, a line is blind: held, not judged."
    )


class Patience(Settings):
    """How many ticks in a row it takes to believe."""

    degraded: int = Field(2, ge=1, le=1_000, description="Ticks to degraded: one may be chance.")
    failed: int = Field(3, ge=1, le=1_000, description="Failed ticks to open the breaker: the source document's three.")
    recover: int = Field(3, ge=1, le=1_000, description="Good ticks back to healthy: as many as it took to leave.")
    lone_failed: int = Field(
        6, ge=1, le=1_000, description="Failed ticks where only one vantage is configured: nobody can second it."
    )


class Faults(Settings):
    """What a bad tick costs a line's weight: base · exp(-lambda · faults)."""

    decay: float = Field(
        0.15, gt=0, le=5, alias="lambda", description="The source document's decay: 86 % is left after one fault."
    )
    half_life: Annotated[Duration, Field(ge=0.1, le=86_400)] = Field(
        30.0, description="Good time in which half the faults fade."
    )


class HalfOpen(Settings):
    """The trial after the cooldown; keys and defaults of the source document."""

    traffic_ratio: Share = Field(
        0.05,
        gt=0,
        lt=1,
        description="Share of its weight a line gets on trial: enough to learn from, too little to hurt.",
    )
    min_window_seconds: float = Field(30.0, ge=1, le=86_400, description="Shortest trial.")
    min_success_requests: int = Field(200, ge=1, le=10_000_000, description="Successes a trial needs besides.")
    max_success_requests: int = Field(1_000, ge=1, le=10_000_000, description="Counting stops here: evidence enough.")
    fail_threshold: int = Field(3, ge=1, le=10_000, description="Failures that end the trial at once.")
    fail_rate: Rate = Field(
        None,
        description="Besides, their rate must surely be above this and above twice the line's usual one. `never`: it need not; "
        "mode fast says 1%, for at 1 000 calls three failures are nothing.",
    )
    cooldown_multiplier: float = Field(
        2.0, ge=1, le=100, description="Each failed trial lengthens the cooldown by this factor."
    )


class Recovery(Settings):
    """The way back to full weight."""

    step_ratios: Annotated[
        tuple[Annotated[Share, Field(gt=0, le=1)], ...], Field(strict=False, min_length=1, max_length=50)
    ] = Field(
        (0.05, 0.1, 0.2, 0.4, 0.6, 1.0),
        description="Shares of the base weight after the trial (those above `traffic_ratio`): connections warm up on the way.",
    )
    step_interval_seconds: float = Field(30.0, ge=1, le=86_400, description="Shortest time at each step.")


class CircuitBreaker(Settings):
    """Trip, wait, trial, ramp: the source document's block, key by key, and the few numbers it leaves open."""

    cooldown_seconds: float = Field(60.0, ge=1, le=86_400, description="Open this long before the first trial.")
    max_cooldown_seconds: float = Field(
        960.0,
        ge=1,
        le=604_800,
        description="Ceiling of the growing cooldown: four doublings. Unset beside a changed `cooldown_seconds`: 16 times that.",
    )
    cooldown_jitter: float = Field(
        0.1, ge=0, le=0.5, description="Cooldowns vary by this share, so that lines do not return together."
    )
    reset_seconds: float = Field(
        600.0, ge=1, le=604_800, description="Closed this long with traffic, reopenings are forgiven."
    )
    early_trial: bool = Field(
        False,
        description="True: a first opening is tried after 20 s once the line has been well for `patience.recover` ticks.",
    )
    ratio_mode: Literal["weight", "share"] = Field(
        "weight", description="What `traffic_ratio` and `step_ratios` are of: the line's own weight, or all traffic."
    )
    half_open: HalfOpen = Field(HalfOpen(), description="The trial.")
    cooldown_multiplier: float | None = Field(
        None,
        ge=1,
        le=100,
        description="Read here too (the source document's indentation is lost); both places are an error.",
    )
    recovery: Recovery = Field(Recovery(), description="The ramp.")


class LocalBreaker(Settings):
    """The breaker inside each client, sent to it as data."""

    failures: int = Field(
        2, ge=1, le=1_000, description="Failed calls in a row that open it: the source document's two."
    )
    open: Annotated[Duration, Field(ge=0.1, le=3_600)] = Field(5.0, description="First time open; doubles.")
    open_cap: Annotated[Duration, Field(ge=0.1, le=86_400)] = Field(60.0, description="Longest time open.")
    max_open: Share = Field(
        0.5, gt=0, le=1, description="At most this share of a cluster's lines, and never the last one."
    )
    fail_share: Share = Field(
        0.0,
        ge=0,
        le=1,
        description="Failures in a row must be this share of the line's newest 20 calls, too, or of those of the last 10 s where "
        "these are fewer; 0%: they need not. Mode fast says 20%: at 1 000 calls a second two in a row are chance.",
    )


class Guard(Settings):
    """How much automation may take out, and what lines that share a risk have in common."""

    max_open: Share = Field(0.5, gt=0, le=1, description="At most this share of a cluster's base weights is held open.")
    panic: Share = Field(
        0.5,
        gt=0,
        le=1,
        description="With more than this share of the weight lost, lines that still answer are used again.",
    )
    alive: Annotated[Duration, Field(ge=1, le=3_600)] = Field(
        60.0, description="In panic a line with a success this young is used."
    )
    group: Annotated[Duration, Field(ge=1, le=3_600)] = Field(
        30.0, description="Half of a group's lines, two at least, bad within this time are one incident."
    )
    fill: Share = Field(0.85, gt=0, le=1, description="Traffic is poured up to this share of a line's capacity.")


class Business(Settings):
    """When the business's own calls are a verdict, and when they are believed over the vantages."""

    span: Annotated[Duration, Field(ge=1, le=600)] = Field(10.0, description="Calls count this long.")
    calls: int = Field(50, ge=1, le=1_000_000, description="Fewer of them on a line say nothing.")
    clients: int = Field(2, ge=1, le=1_000, description="Nor do those of fewer clients, where there are more.")
    conflict_ticks: int = Field(
        3,
        ge=1,
        le=1_000,
        description="Ticks in a row in which vantages and calls disagree, until calls are believed (mode fast adds both up "
        "and moves trust alone).",
    )
    hold: Annotated[Duration, Field(ge=1, le=3_600)] = Field(
        60.0, description="They are, this long after the last one."
    )


class Enforce(Settings):
    """Which rules act. One that does not still judges and is recorded, and its changes say `unenforced`."""

    breaker: bool = Field(True, description="False: an open line keeps its weight, and so does one on trial.")
    faults: bool = Field(True, description="False: a degraded line keeps its weight.")
    groups: bool = Field(True, description="False: what shares a risk is named, but not judged together.")
    capacity: bool = Field(True, description="False: no traffic is poured off lines that are full.")
    guard: bool = Field(True, description="False: nothing holds automation back from opening the last lines.")
    business: bool = Field(True, description="False: the business's own evidence never overrides the vantages.")
    local: bool = Field(True, description="False: clients count failures, and take no line out by themselves.")
    regions: bool = Field(
        True, description="False: a plan across regions is made and shown, and clients are not told of it."
    )


def enforced(value: object) -> object:
    """`enforce: false` for all rules at once."""
    if isinstance(value, bool):
        return dict.fromkeys(Enforce.model_fields, value)
    if not isinstance(value, dict):
        close = {"yes": "write true: in YAML 1.2 yes is a text", "no": "write false: in YAML 1.2 no is a text"}
        hint = close.get(str(value), "write enforce: false, or enforce: {breaker: false}")
        raise refuse("must be true, false or a block of rules", hint)
    return value
