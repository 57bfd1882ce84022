"""How long a request may take and when it is tried again: what its route says, and what its own `x-envoy-…` headers do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple

from reachline.doors.envoy.asked import Request
from reachline.doors.envoy.fitting import header_fits, is_grpc, value_of
from reachline.doors.envoy.retries import words
from reachline.doors.envoy.routes import Forward, HeaderMatch, RetryPolicy, VirtualHost
from reachline.model import Seconds

__all__ = ["CONSUMED", "Times", "malformed", "retry_of", "times"]

CONSUMED: Final = frozenset((
    "x-envoy-upstream-rq-timeout-ms", "x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-max-retries", "x-envoy-retry-on",
    "x-envoy-retry-grpc-on", "x-envoy-hedge-on-per-try-timeout", "x-envoy-retriable-header-names",
    "x-envoy-retriable-status-codes", "x-envoy-upstream-stream-duration-ms", "x-envoy-upstream-alt-stat-name",
))  # fmt: skip
"""Headers that are for the proxy: they do not go on to the endpoint."""
_NUMBER: Final = re.compile(r"\s*\+?([0-9]{1,18})\s*", re.ASCII)
_STATUS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_GRPC_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_NAMES_MOST: Final = 50
"""Of statuses and names in one header: a request asks for a handful."""


class Times(NamedTuple):
    """None: no limit."""

    total: Seconds | None
    """Until the answer is whole, all tries together."""
    per_try: Seconds | None
    duration: Seconds | None = None
    """Of the request as a stream, whatever comes of it; None: the manager's own, 0: no limit."""
    is_over: bool = False
    """The duration that was asked for is no time at all: the request is answered at once, as one that took too long."""
    grpc: Seconds | None = None
    """What `grpc-timeout` says to the endpoint; None: what the client said."""


def times(action: Forward, policy: RetryPolicy | None, request: Request, *, respect_expected: bool = False) -> Times:
    """The timeouts of a request. `respect_expected`: `x-envoy-expected-rq-timeout-ms` is believed."""
    total, grpc = action.timeout, is_grpc(request)
    is_asked = grpc and action.grpc_timeout_most is not None and not action.is_by_duration
    if is_asked:
        total = _asked(action, request)
    per_try = None if policy is None else policy.per_try_timeout
    own = _milliseconds(request, "x-envoy-expected-rq-timeout-ms") if respect_expected else None
    if own is None:
        own = _milliseconds(request, "x-envoy-upstream-rq-timeout-ms")
    if own is not None:
        total = own or None
    own_try = _milliseconds(request, "x-envoy-upstream-rq-per-try-timeout-ms")
    if own_try is not None:
        per_try = own_try or None
    if per_try is not None and total is not None and per_try >= total:
        per_try = None
    if not action.is_by_duration:
        return Times(total, per_try, grpc=(per_try or total) if is_asked else None)
    duration, is_over = _duration(action, request)
    return Times(total, per_try, duration, is_over, (duration or None) if grpc else None)


def _asked(action: Forward, request: Request) -> Seconds | None:
    """The timeout that a gRPC request asks for; without a header it is as long as may be."""
    said, most = _grpc_timeout(request) or 0.0, action.grpc_timeout_most
    if action.grpc_timeout_offset < said:
        said -= action.grpc_timeout_offset
    if most and (said == 0 or said > most):
        said = most
    return said or None


def _duration(action: Forward, request: Request) -> tuple[Seconds | None, bool]:
    """How long a stream may be, and whether that is over before it begins."""
    said = _grpc_timeout(request)
    if said is None or action.grpc_duration_most is None:
        return action.max_stream_duration, False
    if action.grpc_duration_most:
        said = min(said, action.grpc_duration_most)
    if not said:
        return 0.0, True
    left = said - action.grpc_duration_offset
    return (left, False) if left > 0 else (0.0, True)


def _grpc_timeout(request: Request) -> Seconds | None:
    found = _GRPC_TIMEOUT.fullmatch(value_of(request, "grpc-timeout") or "")
    return None if found is None else int(found[1]) * _UNITS[found[2]]


def _milliseconds(request: Request, name: str) -> Seconds | None:
    """A header's whole number of milliseconds; None where it is none."""
    number = _whole(value_of(request, name))
    return None if number is None else number / 1_000


def _whole(text: str | None) -> int | None:
    found = _NUMBER.fullmatch(text or "")
    return None if found is None else int(found[1])


def retry_of(action: Forward, host: VirtualHost, request: Request) -> RetryPolicy | None:
    """The policy of a request: its route's, else its virtual host's, with what its headers add; None: it is not tried again."""
    policy = action.retry or host.retry or RetryPolicy()
    asked = [value_of(request, name) for name in ("x-envoy-retry-on", "x-envoy-retry-grpc-on")]
    added = frozenset[str]().union(*(words(each)[0] for each in asked if each))
    if policy.request_headers and not any(header_fits(each, request) for each in policy.request_headers):
        return None
    retry_on = policy.retry_on | added
    if not retry_on:
        return None
    retries = _whole(value_of(request, "x-envoy-max-retries"))
    statuses = _listed(value_of(request, "x-envoy-retriable-status-codes"))
    names = _listed(value_of(request, "x-envoy-retriable-header-names"))
    return replace(
        policy,
        retry_on=retry_on,
        retries=policy.retries if retries is None else retries,
        statuses=(*policy.statuses, *(int(each) for each in statuses if _STATUS.fullmatch(each))),
        headers=(*policy.headers, *(HeaderMatch(name=each.lower(), present=True) for each in names)),
    )


def _listed(text: str | None) -> tuple[str, ...]:
    found = [each.strip() for each in (text or "").split(",")[:_NAMES_MOST]]
    return tuple(each for each in found if each)


def malformed(request: Request, names: tuple[str, ...]) -> str:
    """Of headers that are checked strictly, the first that is wrong, for which the request gets 400; empty: none is."""
    for name in names:
        value = value_of(request, name)
        if value is None:
            continue
        is_words = name in ("x-envoy-retry-on", "x-envoy-retry-grpc-on")
        if bool(words(value)[1]) if is_words else _whole(value) is None:
            return name
    return ""
