"""Observatories and balancers after Xray's, as pure machines: time and chance are arguments, in nanoseconds and a `Random`.

`observer` makes the machine of a document's rules, `balancer` what picks by its observation. The strict ones do what Xray does,
field by field; the others do what its users ask for. Both kinds answer the same Protocols.
"""

from __future__ import annotations

from reachline.core.observing.balancer import Balancer, Chosen, Why, balancer, balancers
from reachline.core.observing.held import Held
from reachline.core.observing.observer import observer
from reachline.core.observing.protocol import Observation, Observer
from reachline.core.observing.rules import (
    AllUnhealthy,
    BalancerRules,
    Care,
    Cost,
    Group,
    LeastLoad,
    ObserverRules,
    Strategy,
)
from reachline.core.observing.values import DEAD_MS, Ask, Ping, Purpose, Result, Status, Told

__all__ = [
    "DEAD_MS",
    "AllUnhealthy",
    "Ask",
    "Balancer",
    "BalancerRules",
    "Care",
    "Chosen",
    "Cost",
    "Group",
    "Held",
    "LeastLoad",
    "Observation",
    "Observer",
    "ObserverRules",
    "Ping",
    "Purpose",
    "Result",
    "Status",
    "Strategy",
    "Told",
    "Why",
    "balancer",
    "balancers",
    "observer",
]
