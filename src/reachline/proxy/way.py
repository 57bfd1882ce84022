"""What a route decided for one request, ready to be done: a value, the same for all requests that look alike to their route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reachline.core.pick.keying import HashPolicy
from reachline.doors.envoy.routes import Mutations, RetryPolicy
from reachline.model import Seconds

if TYPE_CHECKING:
    from reachline.proxy.backend import Backend

__all__ = ["Way"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where a request goes. None of a duration: no limit."""

    backend: Backend
    path: bytes
    """As the endpoint sees it."""
    original: bytes = b""
    """As the client said it, where that was another and the endpoint is to know."""
    route: str = ""
    host: bytes = b""
    """In place of the request's authority; empty: that stays…"""
    auto_host: bool = False
    """…or is the picked endpoint's hostname."""
    tell_host: bool = False
    """Whether the authority that was replaced goes on as x-forwarded-host."""
    timeout: Seconds | None = 15.0
    retry: RetryPolicy | None = None
    idle_timeout: Seconds | None = 300.0
    stream_duration: Seconds | None = None
    expected: bytes = b""
    """Value of x-envoy-expected-rq-timeout-ms; empty: the header is not set."""
    hash: tuple[HashPolicy, ...] = ()
    subset: Mapping[str, str] | None = None
    high: bool = False
    upgrades: frozenset[str] = frozenset()
    changes: tuple[Mutations, ...] = ()
    """Of headers, in the order they are made."""
    buffer_limit: int = 1 << 20
    """Bytes of a body that are kept for another try."""
    counts_tries: bool = False
    """Whether the endpoint is told which try it is (x-envoy-attempt-count)…"""
    tells_tries: bool = False
    """…and the client how many there were."""
    metadata: Mapping[str, object] = field(default_factory=dict)
