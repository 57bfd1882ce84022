"""The services by which data planes send evidence, on the agents' port: HDS, LRS and ALS. Puts them together, knows no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reachline.center.roster import Agent
from reachline.center.xds.access import AccessLogs
from reachline.center.xds.load import Loads
from reachline.center.xds.planes import Planes
from reachline.center.xds.vantage import Vantages
from reachline.net.rpc import Service
from reachline.wire import als, hds, lrs
from reachline.wire.frame import Plan

__all__ = ["services"]


def services(
    planes: Planes,
    *,
    plan: Callable[[Agent, int], Plan],
    document: Callable[[], object],
    speaks: Callable[[bytes, str], str],
    token: str = "",
) -> Mapping[str, Service]:
    """By full method name. `speaks` says why who shows a certificate may not vote under a name. `token` is the center's, which who sends calls must show where there is one."""
    return {
        hds.METHOD: Vantages(planes, plan=plan, document=document, speaks=speaks).stream,
        lrs.METHOD: Loads(planes, token=token).stream,
        als.METHOD: AccessLogs(planes, token=token).stream,
    }
