"""What is answered at the document's `api` and `metrics` addresses, as bytes. Knows no socket."""

from __future__ import annotations

import gc
import json
import resource
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from reachline.errors import RemoteProtocolError
from reachline.observatory.entries import Entries, Entry
from reachline.observatory.running import Answering
from reachline.wire import observatory as wire

__all__ = ["methods", "variables"]

_PAUSES: Final = 256
"""Go keeps as many pauses, and panels take the last one by its number. Python measures none: all are 0."""
T = TypeVar("T")
Method = Callable[[bytes], bytes | Awaitable[bytes]]
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


def methods(answering: Answering, entries: Entries, services: frozenset[str]) -> dict[str, Method]:
    """By full name, those of the services that are wanted. LookupError and RemoteProtocolError are the caller's to be told."""

    async def status(_: bytes) -> bytes:
        return wire.statuses_of([each.message for each in await entries.current() or ()])

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

    found: dict[str, Method] = {}
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
