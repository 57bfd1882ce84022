"""From settings to whoever finds a cluster's endpoints. Built when a driver begins, and once before, to refuse what cannot be."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from random import Random

from reachline.abc import Discovery
from reachline.discovery import Eds, File, LogicalDns, Static, StrictDns
from reachline.errors import ConfigError, Problem
from reachline.net.ads import Ads
from reachline.net.names import Names
from reachline.upstream.settings import ClusterSettings, ControlPlane

__all__ = ["ads_of", "discovery_of"]


def discovery_of(settings: ClusterSettings, rng: Random, ads: Callable[[ControlPlane], Ads]) -> Discovery:
    """The cluster's discovery; `ads` gives the stream to a control plane. ConfigError names what cannot be."""
    base, service = settings.membership, settings.service or settings.name
    names = Names(servers=settings.resolvers) if settings.resolvers else None
    try:
        match settings.type:
            case "static":
                return Static(base.members, base=base, place=f"clusters.{settings.name}")
            case "strict_dns":
                return StrictDns(base.members, settings.dns, rng=rng, base=base, names=names)
            case "logical_dns":
                return LogicalDns(base.members[0], settings.dns, rng=rng, base=base, names=names)
            case "file":
                return File(settings.path, service)
            case "eds":
                assert settings.control_plane is not None
                patience = settings.initial_fetch_timeout or math.inf
                return Eds(ads(settings.control_plane), service, initial_fetch_timeout=patience)
    except ImportError as error:
        rule, hint = f"needs the extra xds ({error})", "pip install 'reachline[xds]'"
        place = f"clusters.{settings.name}"
        raise ConfigError(Problem(place=place, path="type", value=settings.type, rule=rule, hint=hint)) from None


def ads_of(plane: ControlPlane, rng: Random) -> Ads:
    """The stream to a control plane; ImportError where the extra xds is missing."""
    from reachline.wire.xds import Node  # noqa: PLC0415  (protobuf, and only xDS needs it)

    node = Node(id=plane.node or platform.node() or "reachline", cluster=plane.node_cluster)
    return Ads(plane.address, node=node, rng=rng, delta=plane.delta)
