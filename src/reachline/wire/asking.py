"""What a client may ask this control plane for, and how much of it: types, names and their bounds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from reachline.errors import RemoteProtocolError, one_line
from reachline.wire.ads import CDS, EDS, LDS, RDS, DeltaRequest, Request

__all__ = ["MOST_NAMES", "ORDER", "check"]

ORDER: Final = (CDS, EDS, LDS, RDS)
"""Make before break: what a route leads to is there before the route."""
_SECRET: Final = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105  (a type)
MOST_NAMES: Final = 20_000
"""Of one type on one stream: twice the endpoints of the largest setup that is measured, each as a cluster of its own."""
_NAME_MOST: Final = 1_024
"""Characters of a name: xDS' own resource locators stay far below."""


def check(request: Request | DeltaRequest) -> None:
    """RemoteProtocolError where a request is of a type that is not served, or too large."""
    if request.type_url == _SECRET:
        raise RemoteProtocolError("secrets are not served here (SDS): a client's keys are read from its own files")
    if request.type_url not in ORDER:
        served = ", ".join(url.rpartition(".")[2] for url in ORDER)
        raise RemoteProtocolError(f"{one_line(request.type_url[:_NAME_MOST])!r} is not served here; {served} are")
    for names in _lists(request):
        if len(names) > MOST_NAMES:
            raise RemoteProtocolError(f"{len(names)} names in one request, at most {MOST_NAMES} ({request.type_url})")
        if any(len(name) > _NAME_MOST for name in names):
            raise RemoteProtocolError(f"a name of more than {_NAME_MOST} characters ({request.type_url})")


def _lists(request: Request | DeltaRequest) -> tuple[Collection[str], ...]:
    """Each is bounded for itself: who comes back by delta says of every name that it wants it, and which version it has."""
    if isinstance(request, Request):
        return (request.names,)
    return request.subscribe, request.unsubscribe, request.versions
