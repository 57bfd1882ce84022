"""Clusters that a client keeps by itself: made once, kept current by tasks of the client's thread, beside those of a center."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, Final

from reachline.net.ads import Ads
from reachline.upstream.finding import ads_of, discovery_of
from reachline.upstream.keeper import Keeper
from reachline.upstream.kept import KeptCluster
from reachline.upstream.settings import ControlPlane

__all__ = ["Keeping"]


class Keeping:
    """One run of the client's thread. Made anew after a fork; what is known of endpoints stays with the clusters."""

    def __init__(self, clusters: Mapping[str, KeptCluster], *, rng: Random, settled: Callable[[str], None]) -> None:
        """`settled` hears the name of each cluster once its first endpoints are there, and checked. ConfigError as of `discovery_of`."""
        self._rng: Final = rng
        self._planes: Final[dict[ControlPlane, Ads]] = {}
        self._keepers: Final = [
            Keeper(
                cluster,
                discovery_of(cluster.settings, Random(rng.random()), self._ads),
                settled=settled,
                seed=rng.getrandbits(63),
            )
            for cluster in clusters.values()
        ]

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run until it is cancelled."""
        return [*(each.run() for each in self._keepers), *(each.run() for each in self._planes.values())]

    def stir(self) -> None:
        """An endpoint was ejected, or an event waits: look now. From the thread's own loop."""
        for each in self._keepers:
            each.stir()

    def _ads(self, plane: ControlPlane) -> Ads:
        """One stream for all clusters of a control plane."""
        if plane not in self._planes:
            self._planes[plane] = ads_of(plane, Random(self._rng.random()))
        return self._planes[plane]
