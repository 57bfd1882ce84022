"""Consistent sets of numbers by name: modes (how it is judged), presets (how soon) and classes (whose idea of slow).

Only what differs is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reachline.core.rules import BaselineRules
from reachline.doors.limits import Limits, RttLimit, Window
from reachline.doors.probing import IcmpProbe, Probes, TcpProbe, UdpProbe
from reachline.doors.settings import (
    Business,
    CircuitBreaker,
    Faults,
    HalfOpen,
    Judge,
    LocalBreaker,
    Patience,
    Recovery,
    Tunable,
)

__all__ = ["CLASSES", "EARLY_TRIAL_MS", "LONG_HAUL", "MODES", "PRESETS"]

# `model_construct` throughout: the values are in their inner units, and only the named fields count as set.


def _faults(decay: float, half_life: float) -> Faults:
    return Faults.model_construct({"decay", "half_life"}, decay=decay, half_life=half_life)


_TAIL: Final = 0.1
"""Seconds: a SYN that was sent again is answered within on most lines, and a dead line is known as such 1.1 s after it was asked."""

_FAST: Final = Tunable.model_construct(
    # A judge that adds up what is new is asked as soon as it may: three ticks to an open breaker are six seconds then.
    judge=Judge.model_construct(tick=2.0, heartbeat=2.0),
    probes=Probes.model_construct(
        tcp=TcpProbe.model_construct(tail=_TAIL),
        icmp=IcmpProbe.model_construct(tail=_TAIL),
        udp=UdpProbe.model_construct(tail=_TAIL),
    ),
    circuit_breaker=CircuitBreaker.model_construct(half_open=HalfOpen.model_construct(fail_rate=0.01)),
    local_breaker=LocalBreaker.model_construct(fail_share=0.2),
)

MODES: Final[Mapping[str, Tunable]] = {"literal": Tunable.model_construct(), "fast": _FAST}

_QUICK: Final = Tunable.model_construct(
    # Not in the table, but it follows from it: full weight 75 s after a repair needs a window that has forgotten the
    # fault when the cooldown of 30 s ends.
    window=Window.model_construct(alpha=0.5, max_age=30.0),
    probes=Probes.model_construct(
        suspect=1.0,
        tcp=TcpProbe.model_construct(every=2.0),
        icmp=IcmpProbe.model_construct(every=2.0),
        udp=UdpProbe.model_construct(every=2.0),
    ),
    # A vote must be as fast as the tick that counts it.
    judge=Judge.model_construct(tick=2.0, heartbeat=2.0),
    patience=Patience.model_construct(degraded=2, failed=2, recover=2),
    faults=_faults(0.25, 15.0),
    circuit_breaker=CircuitBreaker.model_construct(
        cooldown_seconds=30.0,
        max_cooldown_seconds=480.0,
        half_open=HalfOpen.model_construct(traffic_ratio=0.1, min_window_seconds=15.0, min_success_requests=100),
        recovery=Recovery.model_construct(step_ratios=(0.1, 0.25, 0.5, 1.0), step_interval_seconds=15.0),
    ),
    business=Business.model_construct(conflict_ticks=2),
)

_STABLE: Final = Tunable.model_construct(
    window=Window.model_construct(alpha=0.2),
    judge=Judge.model_construct(vote_share=2 / 3),
    patience=Patience.model_construct(degraded=3, failed=5, recover=6),
    faults=_faults(0.1, 60.0),
    circuit_breaker=CircuitBreaker.model_construct(
        cooldown_seconds=120.0,
        max_cooldown_seconds=1_920.0,
        # The table says 5 % beside a ramp that begins at 2 % and a full weight after 480 s. Only two of them fit together:
        # the trial is the ramp's first step, and 120 s + six steps of 60 s make 480 s.
        half_open=HalfOpen.model_construct(traffic_ratio=0.02, min_window_seconds=60.0, min_success_requests=500),
        recovery=Recovery.model_construct(
            step_ratios=(0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0), step_interval_seconds=60.0
        ),
    ),
    business=Business.model_construct(conflict_ticks=5),
)

PRESETS: Final[Mapping[str, Tunable]] = {
    "quick_recovery": _QUICK,
    "default": Tunable.model_construct(),
    "high_stability": _STABLE,
}

_MUTE: Final = RttLimit.model_construct(degraded=None, exit=None, failed=None, failed_exit=None)

CLASSES: Final[Mapping[str, Tunable]] = {
    "rpc": Tunable.model_construct(
        limits=Limits.model_construct(
            p95=RttLimit.model_construct(degraded=0.1, exit=0.08, failed=0.3, failed_exit=0.24)
        )
    ),
    "bulk": Tunable.model_construct(limits=Limits.model_construct(p95=_MUTE, ewma=_MUTE, jitter=_MUTE)),
    "long_haul": Tunable.model_construct(),
}

EARLY_TRIAL_MS: Final = 20_000
"""Of `early_trial`: ten ticks in fast mode, long enough that a flap is not taken for a repair."""

LONG_HAUL: Final = BaselineRules(degraded_milli=2_500, failed_milli=5_000)
"""Of a line's own median: what is 2.5 and 5 times as slow as it used to be at this hour is degraded and failed."""
