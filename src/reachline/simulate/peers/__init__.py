"""What people run today, as contenders: each obeys the published rules and defaults of its own system, and nothing of ours.

None of them is a copy: each restates facts of documents and of behaviour, with its source named. Where a default would leave
a system helpless in a small cluster, the contender has what its own documents advise, and its module says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reachline.simulate.contender import Maker
from reachline.simulate.peers.envoy import EnvoyLike
from reachline.simulate.peers.leastload import XrayLeastLoad
from reachline.simulate.peers.leastping import XrayLeastPing
from reachline.simulate.peers.linkerd import LinkerdLike
from reachline.simulate.peers.mwan3 import Mwan3Like
from reachline.simulate.peers.polaris import PolarisLike

__all__ = ["TABLE"]

TABLE: Final[Mapping[str, Maker]] = {
    "envoy-like": EnvoyLike,
    "linkerd-like": LinkerdLike,
    "polaris-like": PolarisLike,
    "mwan3-like": Mwan3Like,
    "xray-leastping": XrayLeastPing,
    "xray-leastload": XrayLeastLoad,
}
