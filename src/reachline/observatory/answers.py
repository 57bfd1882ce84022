"""What is answered at the document's `api` and `metrics` addresses, as bytes. Knows no socket."""

from __future__ import annotations

import gc
import json
import resource
import sys
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from reachline.doors.observatory import debug_vars
from reachline.errors import RemoteProtocolError
from reachline.observatory.running import Answering
from reachline.wire import observatory as wire

__all__ = ["methods", "variables"]

_PAUSES: Final = 256
"""Go keeps as many pauses, and panels take the last one by its number. Python measures none: all are 0."""
T = TypeVar("T")
_NO_TAG: Final = "app/router: cannot find tag"
"""Xray's words, which panels look for."""


def variables(answering: Answering, stats: Mapping[str, object]) -> bytes:
    """`/debug/vars`: the keys that panels read. `observatory` is null where nothing observes."""
    known = answering.statuses()
    found = {
        "cmdline": sys.argv,
        "memstats": _memory(),
        "observatory": None if known is None else debug_vars(known),
        "stats": stats,
    }
    return json.dumps(found, ensure_ascii=False).encode()


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


def methods(answering: Answering, services: frozenset[str]) -> dict[str, Callable[[bytes], bytes]]:
    """By full name, those of the services that are wanted. LookupError and RemoteProtocolError are the caller's to be told."""
    statuses = wire.Statuses()

    def status(_: bytes) -> bytes:
        return statuses.response(answering.statuses() or ())

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

    found: dict[str, Callable[[bytes], bytes]] = {}
    if "ObservatoryService" in services:
        found[wire.GET_OUTBOUND_STATUS] = status
    if "RoutingService" in services:
        found.update(dict.fromkeys(wire.GET_BALANCER_INFO, info))
        found.update(dict.fromkeys(wire.OVERRIDE_BALANCER_TARGET, override))
    return found


def _short(request: bytes, read: Callable[[bytes], T]) -> T:
    if len(request) > wire.MAX_REQUEST:
        raise RemoteProtocolError(f"a request of {len(request)} bytes: at most {wire.MAX_REQUEST} are read")
    return read(request)
