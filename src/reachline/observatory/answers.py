"""What is answered at the document's `api` and `metrics` addresses, as bytes. Knows no socket."""

from __future__ import annotations

import gc
import json
import resource
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, TypeVar

from reachline.doors.observatory.matching import Ip, Question
from reachline.errors import RemoteProtocolError
from reachline.observatory.entries import Entries, Entry
from reachline.observatory.running import Answering
from reachline.wire import observatory as wire
from reachline.wire import xray_route

__all__ = ["Method", "Route", "methods", "variables"]

_PAUSES: Final = 256
"""Go keeps as many pauses, and panels take the last one by its number. Python measures none: all are 0."""
T = TypeVar("T")
Route = Callable[[Question], Awaitable[str]]
"""The outbound that a connection would go by; LookupError where there is none."""
Method = Callable[[bytes], bytes | Awaitable[bytes]]
_NONE: Final[Mapping[str, Method]] = MappingProxyType({})
_NO_TAG: Final = "app/router: cannot find tag"
"""Xray's words, which panels look for."""


def variables(entries: Sequence[Entry] | None, stats: Mapping[str, object]) -> bytes:
    """`/debug/vars`: the keys that panels read. `observatory` is null where nothing observes (None)."""
    known = "null" if entries is None else f"{{{', '.join([each.text for each in entries])}}}"
    found = json.dumps({"cmdline": sys.argv, "memstats": _memory(), "stats": stats}, ensure_ascii=False)
    return f'{found[:-1]}, "observatory": {known}}}'.encode()


def _memory() -> dict[str, object]:
    """Go's names for what Python knows: the most that was ever resident, bytes; blocks in use; collections."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {
        "HeapAlloc": most,
        "Sys": most,
        "HeapObjects": sys.getallocatedblocks(),
        "NumGC": sum(each["collections"] for each in gc.get_stats()),
        "PauseNs": [0] * _PAUSES,
    }


def methods(
    answering: Answering,
    entries: Entries,
    services: frozenset[str],
    *,
    route: Route | None = None,
    handlers: Mapping[str, Method] = _NONE,
) -> dict[str, Method]:
    """By full name, those of the services that are wanted; `handlers` are HandlerService's. LookupError and RemoteProtocolError are
    the caller's to be told.
    """
    found: dict[str, Method] = {}
    if "ObservatoryService" in services:
        found[wire.GET_OUTBOUND_STATUS] = _status(entries)
    if "RoutingService" in services:
        found.update(_routing(answering))
        if route is not None:
            found.update(dict.fromkeys(xray_route.TEST_ROUTE, _tested(route)))
    if "HandlerService" in services:
        found.update(handlers)
    return found


def _status(entries: Entries) -> Method:
    async def status(_: bytes) -> bytes:
        return wire.statuses_of([each.message for each in await entries.current() or ()])

    return status


def _routing(answering: Answering) -> Mapping[str, Method]:
    def info(request: bytes) -> bytes:
        tag = _short(request, wire.read_tag)
        try:
            return wire.balancer_info(answering.overridden(tag), answering.targets(tag))
        except LookupError as error:
            raise LookupError(_NO_TAG) from error

    def override(request: bytes) -> bytes:
        wanted = _short(request, wire.read_override)
        try:
            answering.overridden(wanted.balancer)
        except LookupError as error:
            raise LookupError(_NO_TAG) from error
        try:
            answering.override(wanted.balancer, wanted.target)
        except LookupError as error:
            raise LookupError(f"there is no outbound {wanted.target}") from error
        return b""

    return dict.fromkeys(wire.GET_BALANCER_INFO, info) | dict.fromkeys(wire.OVERRIDE_BALANCER_TARGET, override)


def _tested(route: Route) -> Method:
    async def test(request: bytes) -> bytes:
        asked = xray_route.read_route(request)
        question = Question(
            port=asked.port,
            domain=asked.domain,
            addresses=tuple(map(ip_address, asked.targets)) or None,
            inbound=asked.inbound,
            network=asked.network,
            source=_first(asked.sources),
            source_port=asked.source_port,
            local=_first(asked.locals),
            local_port=asked.local_port,
            user=asked.user,
        )
        return xray_route.route_answer(asked, await route(question))

    return test


def _first(addresses: Sequence[bytes]) -> Ip | None:
    """A connection has one of each: of several the first."""
    return ip_address(addresses[0]) if addresses else None


def _short(request: bytes, read: Callable[[bytes], T]) -> T:
    if len(request) > wire.MAX_REQUEST:
        raise RemoteProtocolError(f"a request of {len(request)} bytes: at most {wire.MAX_REQUEST} are read")
    return read(request)
