"""How one line is chosen from a snapshot. A picker is immutable: a new snapshot means a new picker.

`build` makes the picker of a cluster from members, a policy and the process's memory; `TABLE` names the policies.
"""

from __future__ import annotations

from reachline.core.pick.build import build
from reachline.core.pick.elsewhere import elsewhere
from reachline.core.pick.member import Load, Member, Memory, Picker
from reachline.core.pick.policy import Policy
from reachline.core.pick.subset import Subsetting
from reachline.core.pick.table import TABLE
from reachline.core.pick.weighted import WeightedRandom

__all__ = [
    "TABLE",
    "Load",
    "Member",
    "Memory",
    "Picker",
    "Policy",
    "Subsetting",
    "WeightedRandom",
    "build",
    "elsewhere",
]
