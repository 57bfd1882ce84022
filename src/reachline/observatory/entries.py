"""The bytes of each outbound's status, made when it changed and joined when somebody reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final, NamedTuple

from reachline.core.observing import Status
from reachline.doors.observatory import debug_vars
from reachline.model import Seconds
from reachline.wire import observatory as wire

__all__ = ["Entries", "Entry"]

_AT_ONCE: Final = 128
"""Made in one turn of the loop: each takes some 25 µs in both forms, and a connection may wait 3 ms."""
_PAUSE: Final[Seconds] = 1.0
"""Between two looks at what changed: what a reader then still has to wait for is a second's."""


class Entry(NamedTuple):
    """One outbound's status, as an item of either list."""

    status: Status
    message: bytes
    text: str


class Entries:
    """Written by the loop that serves. The same tuple says the same, and so does the same status."""

    def __init__(self, statuses: Callable[[], tuple[Status, ...] | None]) -> None:
        self._statuses: Final = statuses
        self._known: dict[str, Entry] = {}
        self._whole: tuple[tuple[Status, ...], tuple[Entry, ...]] = ((), ())
        """Statuses that all were made, and what they are."""
        self._timer: asyncio.TimerHandle | None = None

    async def current(self) -> tuple[Entry, ...] | None:
        """Those of now, in the observer's order; None: nothing observes. What has to be made first is made in turns."""
        while True:
            statuses = self._statuses()
            if statuses is None:
                return None
            if self._made(statuses):
                return self._whole[1]
            await asyncio.sleep(0)

    def follow(self) -> None:
        """Make them as they change, from now until `stop`; on the loop."""
        is_whole = self._made(self._statuses() or ())
        self._timer = asyncio.get_running_loop().call_later(_PAUSE if is_whole else 0, self.follow)

    def stop(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _made(self, statuses: tuple[Status, ...]) -> bool:
        """Whether all are there now."""
        if statuses is self._whole[0]:
            return True
        known = self._known
        changed = [each for each in statuses if (found := known.get(each.tag)) is None or found.status is not each]
        for each in changed[:_AT_ONCE]:
            known[each.tag] = Entry(
                each, wire.status_item(each), json.dumps(debug_vars((each,)), ensure_ascii=False)[1:-1]
            )
        if len(changed) > _AT_ONCE:
            return False
        entries = tuple([known[each.tag] for each in statuses])
        if len(known) > len(entries):
            self._known = {each.status.tag: each for each in entries}
        self._whole = statuses, entries
        return True
