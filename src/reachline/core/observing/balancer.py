"""What picks an outbound for one connection. What a choice is made from is worked out when it changes, not at a pick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reachline.core.observing.chosen import Balancer, Chosen, Why
from reachline.core.observing.protocol import Observation
from reachline.core.observing.prudent import Prudent
from reachline.core.observing.rules import BalancerRules
from reachline.core.observing.strict import Strict

__all__ = ["Balancer", "Chosen", "Why", "balancer", "balancers"]


def balancer(rules: BalancerRules, observation: Observation | None, others: Mapping[str, Balancer]) -> Balancer:
    """The balancer of these rules. `others` are those it may fall back to, itself left out; they may be put in later."""
    return Strict(rules, observation) if rules.strict else Prudent(rules, observation, others)


def balancers(rules: Iterable[BalancerRules], observation: Observation | None) -> dict[str, Balancer]:
    """All of a document by their tags, each knowing the others."""
    made: dict[str, Balancer] = {}
    for each in rules:
        made[each.tag] = balancer(each, observation, made)
    return made
