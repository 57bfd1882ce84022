"""Whether a try that came to nothing is made again: Envoy's `retry_on`, word by word. Pure."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from reachline.doors.envoy.routes import RetryPolicy
from reachline.model import Seconds
from reachline.proxy import flags
from reachline.proxy.flags import Lost
from reachline.proxy.message import Answer, first

__all__ = ["after_answer", "after_loss", "wait_before"]

_GATEWAY: Final = frozenset({502, 503, 504})
_GRPC: Final = {
    "cancelled": b"1", "deadline-exceeded": b"4", "resource-exhausted": b"8", "internal": b"13", "unavailable": b"14",
}  # fmt: skip
_RATE_LIMITED: Final = b"x-envoy-ratelimited"
_CONFLICT: Final = 409


def after_answer(policy: RetryPolicy, answer: Answer, matches: Callable[[Answer], bool]) -> bool:
    """Whether an answer, of which the client has seen nothing, is not good enough. `matches`: one of the policy's headers does."""
    words, status = policy.retry_on, answer.status
    if first(answer.headers, _RATE_LIMITED) is not None and "envoy-ratelimited" not in words:
        return False
    if status >= 500 and ("5xx" in words or ("gateway-error" in words and status in _GATEWAY)):
        return True
    if status == _CONFLICT and "retriable-4xx" in words:
        return True
    if "retriable-status-codes" in words and status in policy.statuses:
        return True
    if "retriable-headers" in words and matches(answer):
        return True
    if "envoy-ratelimited" in words and first(answer.headers, _RATE_LIMITED) is not None:
        return True
    grpc = first(answer.headers, b"grpc-status")
    return grpc is not None and any(word in words and number == grpc for word, number in _GRPC.items())


def after_loss(policy: RetryPolicy, lost: Lost, *, is_sent: bool) -> bool:
    """Whether a try without an answer is made again. `is_sent`: the endpoint has got any of the request."""
    words = policy.retry_on
    if lost is flags.OVERFLOW:
        return False
    if "5xx" in words or "reset" in words or "gateway-error" in words:
        return True
    if "reset-before-request" in words and not is_sent:
        return True
    if "refused-stream" in words and lost is flags.REFUSED_STREAM:
        return True
    return "connect-failure" in words and lost.is_connecting


def wait_before(policy: RetryPolicy, retry: int, rng: Random) -> Seconds:
    """How long to wait before the n-th retry, n from 1: less than base × (2ⁿ - 1), by chance."""
    back_off = policy.back_off
    ceiling = min(back_off.base * ((1 << min(retry, 30)) - 1), back_off.most)
    return rng.random() * ceiling
