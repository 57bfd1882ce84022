"""The SDK: lines by weight, outcomes back, and the last word of a center kept when it is gone. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from reachline.client.client import Client, ClientStats
from reachline.client.options import DEFAULT_CENTER, Clusters, Settings, checked
from reachline.upstream import Attempt, Cluster, ClusterStats, Listed, Pick

__all__ = ["Attempt", "Client", "ClientStats", "Cluster", "ClusterStats", "Listed", "Pick", "connect", "connect_sync"]


def connect_sync(
    center: str | Sequence[str] = DEFAULT_CENTER, *, clusters: Clusters, **settings: Unpack[Settings]
) -> Client:
    """A client of a center (or of several), once its clusters have lines or `wait` seconds are over.

    Only ConfigError is ever raised, for arguments that cannot be. No center, a dead one or one that talks nonsense is a
    state: `Client.stats()` names it, and picks go on from the cache or from `static`, or give None.

    `clusters` are names; or by name the settings of clusters that this process keeps by itself, with or without a center.
    Settings, by their defaults: service="", name=<machine>, cache=None, static=None, token="", tls=None, wait=5.0,
    patience=1.0, local_breaker=True, seed=None, events=<nobody>.
    """
    options = checked(center, clusters, settings)
    client = Client(options)
    if options.wait:
        client.wait(options.wait)
    return client


async def connect(
    center: str | Sequence[str] = DEFAULT_CENTER, *, clusters: Clusters, **settings: Unpack[Settings]
) -> Client:
    """`connect_sync` for a task of asyncio or trio: the same client, waited for without blocking the caller's loop."""
    options = checked(center, clusters, settings)
    client = Client(options)
    if options.wait:
        await client.wait_async(options.wait)
    return client
