"""Times that were told by a clock which ran on while the wall's was set: told by the wall's again, as people read it now."""

from __future__ import annotations

from typing import Final

from reachline.core.observing.values import SECOND, Status

__all__ = ["Calendar"]

_STEP: Final = 3 * SECOND // 4
"""From here on it was set and did not only drift. More than half a second, so that one which stands at half does not flutter."""


class Calendar:
    """Written by whoever shows. The same statuses become the same ones, so that what is made of them is made once."""

    __slots__ = ("_ahead", "_known", "_made", "_whole")

    def __init__(self) -> None:
        self._ahead = 0
        """Seconds that the wall clock is ahead of what statuses were told by."""
        self._known: dict[str, tuple[Status, Status]] = {}
        """As it was told and as it is shown, by tag…"""
        self._whole: tuple[Status, ...] = ()
        self._made: tuple[Status, ...] = ()
        """…and all of them."""

    def dated(self, statuses: tuple[Status, ...], ahead: int) -> tuple[Status, ...]:
        """These statuses while the wall clock is `ahead` of their own by so many nanoseconds. A time that never was stays so."""
        if abs(ahead - self._ahead * SECOND) >= _STEP:
            self._ahead = round(ahead / SECOND)
            self._known.clear()
            self._whole = self._made = ()
        if not self._ahead or not statuses:
            return statuses
        if statuses is not self._whole:
            self._known = {each.tag: self._of(each) for each in statuses}
            self._whole, self._made = statuses, tuple([shown for _, shown in self._known.values()])
        return self._made

    def _of(self, status: Status) -> tuple[Status, Status]:
        found = self._known.get(status.tag)
        return found if found is not None and found[0] is status else (status, self._shifted(status))

    def _shifted(self, status: Status) -> Status:
        if not status.tried and not status.seen:
            return status
        ahead = self._ahead
        return status._replace(
            seen=max(status.seen + ahead, 1) if status.seen else 0,
            tried=max(status.tried + ahead, 1) if status.tried else 0,
        )
