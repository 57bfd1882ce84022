"""Documents that are read again whenever one of their files is another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import Final, TypeVar

from reachline.errors import ConfigError
from reachline.net import reload

__all__ = ["followed", "refusals"]

log: Final = logging.getLogger(__name__)
T = TypeVar("T")


@contextmanager
def refusals() -> Iterator[None]:
    """A document that is refused is logged, and changes nothing."""
    try:
        yield
    except ConfigError as error:
        log.error("document_refused", extra={"reason": str(error)})  # noqa: TRY400 - the reason is the document's


async def followed(known: Iterable[tuple[str, str]], read: Callable[[], T]) -> AsyncGenerator[T]:
    """What `read` makes of the files, whenever one is not what is `known` of it any more, by path; what it refuses is logged and
    changes nothing. One that changed before this began to look has changed as well.
    """
    stirred = asyncio.Event()

    async def watch(path: str, text: str) -> None:
        async with aclosing(reload.changes(path, known=text)) as changes:
            async for _ in changes:
                stirred.set()

    async with asyncio.TaskGroup() as tasks:
        for path, text in known:
            tasks.create_task(watch(path, text))
        while True:
            await stirred.wait()
            stirred.clear()
            with refusals():
                yield await asyncio.to_thread(read)  # lists of names take their time, and connections go on
