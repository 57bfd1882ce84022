"""The rules of a document as the machines read them, and the machines themselves, joined."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from reachline.core.observing import Balancer, BalancerRules, Held, Observer, ObserverRules, balancers, observer
from reachline.doors.observatory.values import Reach, Settings

__all__ = ["Machines", "Rules", "machines", "observed", "rules"]


class Rules(NamedTuple):
    """What observes and what balances; None: nothing observes."""

    observer: ObserverRules | None
    balancers: tuple[BalancerRules, ...]


class Machines(NamedTuple):
    """Started with the document's outbounds at a moment."""

    observer: Observer | None
    balancers: dict[str, Balancer]
    held: Held | None = None
    """What the balancers see of the observer, where somebody looks for them."""


def rules(settings: Settings) -> Rules:
    """Of the observatory that is seen, and of every balancer."""
    found = None if settings.observatory is None else settings.observatory.rules
    return Rules(found, tuple(each.rules for each in settings.balancers.values()))


def observed(settings: Settings) -> tuple[str, ...]:
    """Tags of the outbounds that requests can be sent by. Strictly all of them: Xray asks even those that drop everything."""
    if settings.strict:
        return settings.tags
    return tuple(each.tag for each in settings.outbounds if each.tag and (each.reach is Reach.NATIVE or each.hops))


def machines(settings: Settings, *, now: int, rng: Random, holds: bool = False) -> Machines:
    """Observer and balancers of a document. `now` is in nanoseconds since 1970.

    `holds`: the balancers see what was observed when somebody looked last; strict ones see everything, as Xray's do.
    """
    wanted = rules(settings)
    seen = None if wanted.observer is None else observer(wanted.observer, rng)
    if seen is not None:
        seen.outbounds(observed(settings), now)
    held = Held(seen, len(wanted.balancers)) if holds and seen is not None and not settings.strict else None
    made = balancers(wanted.balancers, held or seen)
    for each in made.values():
        each.outbounds(_all(settings), (out.tag for out in settings.outbounds if out.reach is Reach.NONE))
    return Machines(seen, made, held)


def _all(settings: Settings) -> tuple[str, ...]:
    """Untagged ones as well: the first outbound is the default one, whatever its tag."""
    return tuple(each.tag for each in settings.outbounds)
