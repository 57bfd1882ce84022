"""The machine that rules ask for."""

from __future__ import annotations

from random import Random

from reachline.core.observing.burst import Burst
from reachline.core.observing.careful import Careful
from reachline.core.observing.protocol import Observer
from reachline.core.observing.rules import ObserverRules
from reachline.core.observing.single import Single

__all__ = ["observer"]


def observer(rules: ObserverRules, rng: Random) -> Observer:
    """Strict or careful, standard or burst. It starts with the first `outbounds`."""
    if rules.care is not None:
        return Careful(rules, rules.care, rng)
    return Burst(rules, rng) if rules.is_burst else Single(rules)
