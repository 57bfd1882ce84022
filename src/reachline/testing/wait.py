"""Waiting for a condition instead of sleeping: every wait has a deadline and says what it waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, overload

from reachline.model import Seconds

__all__ = ["eventually", "until"]

T = TypeVar("T")

_NOT_YET: Final = (AssertionError, LookupError)

EVERY: Final[Seconds] = 0.02
"""How often a condition is asked: below what a person notices, dear to nobody."""
WITHIN: Final[Seconds] = 30.0
"""How long a condition may take to come true: it costs nothing where it does, and a busy machine must fail no test."""


def eventually(check: Callable[[], T | None], *, within: Seconds = WITHIN, every: Seconds = EVERY, what: str = "") -> T:
    """The first true answer of `check`. A failed assertion inside it counts as "not yet", and so does what is not there (LookupError).

    AssertionError after `within` seconds, from the last failure where there was one; it names `what` and the last answer.
    """
    deadline = time.monotonic() + within
    while True:
        answer, failure = _ask(check)
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(_late(what, within, answer, failure)) from failure
        time.sleep(every)


@overload
async def until(
    check: Callable[[], Awaitable[T | None]], *, within: Seconds = ..., every: Seconds = ..., what: str = ...
) -> T: ...
@overload
async def until(
    check: Callable[[], T | None], *, within: Seconds = ..., every: Seconds = ..., what: str = ...
) -> T: ...
async def until(
    check: Callable[[], T | None] | Callable[[], Awaitable[T | None]],
    *,
    within: Seconds = WITHIN,
    every: Seconds = EVERY,
    what: str = "",
) -> T:
    """`eventually` for a test that runs on the loop; `check` may be a coroutine function."""
    deadline = asyncio.get_running_loop().time() + within
    while True:
        answer, failure = await _ask_async(check)
        if answer:
            return answer
        if asyncio.get_running_loop().time() >= deadline:
            raise AssertionError(_late(what, within, answer, failure)) from failure
        await asyncio.sleep(every)


def _ask(check: Callable[[], T | None]) -> tuple[T | None, Exception | None]:
    try:
        return check(), None
    except _NOT_YET as error:
        return None, error


async def _ask_async(
    check: Callable[[], T | None] | Callable[[], Awaitable[T | None]],
) -> tuple[T | None, Exception | None]:
    try:
        answer = check()
        return (await answer if isinstance(answer, Awaitable) else answer), None
    except _NOT_YET as error:
        return None, error


def _late(what: str, within: Seconds, answer: object, failure: Exception | None) -> str:
    last = (
        (str(failure) if isinstance(failure, AssertionError) else repr(failure))
        if failure is not None
        else f"last answer {answer!r}"
    )
    return f"not within {within:g} s: {what or 'the condition'} ({last})"
