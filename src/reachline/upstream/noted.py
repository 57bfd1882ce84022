"""What happens in a kept cluster, to the program's log and to the cluster's event log. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from reachline.core.checking import After, Turn, Verdict
from reachline.core.outlier_events import Action, Event
from reachline.errors import Problem
from reachline.members import Update
from reachline.model import Seconds
from reachline.upstream.eventlog import EventLog
from reachline.upstream.roll import Row
from reachline.upstream.settings import ClusterSettings
from reachline.upstream.told import checked_event, outlier_event

__all__ = ["Notes"]

_log: Final = logging.getLogger("reachline.upstream.kept")


class Notes:
    """Of one cluster. What is said again and again is logged once; written by whoever the cluster lets."""

    def __init__(self, settings: ClusterSettings, events: EventLog) -> None:
        self._settings: Final = settings
        self._events: Final = events
        self._notices: tuple[str, ...] = ()
        self._trouble = self._unfit = ""

    def updated(self, update: Update) -> None:
        """Trouble of discovery, and what was odd about the endpoints."""
        name = self._settings.name
        if update.trouble and update.trouble != self._trouble:
            _log.warning("endpoints_not_current", extra={"cluster": name, "trouble": update.trouble})
        for notice in update.notices if update.notices != self._notices else ():
            _log.warning("endpoints_odd", extra={"cluster": name, "notice": notice})
        self._trouble, self._notices = update.trouble, update.notices

    def left_out(self, problems: Iterable[Problem]) -> None:
        """Endpoints that could not be balanced."""
        reasons = "; ".join(map(str, problems))
        if reasons and reasons != self._unfit:
            _log.warning("endpoints_left_out", extra={"cluster": self._settings.name, "reasons": reasons})
        self._unfit = reasons

    def checked(self, row: Row, after: After, verdict: Verdict, wall: Seconds) -> None:
        """A check's result."""
        if after.turn is Turn.CHANGED:
            health = after.check.health.name
            extra = {"cluster": self._settings.name, "endpoint": row.key, "health": health, "reason": verdict.note}
            _log.info("endpoint_checked", extra=extra)
        check = self._settings.check
        for event in () if check is None else after.events:
            self._events.add(check.event_log if check else "", checked_event(self._settings, row, event, wall))

    def decided(self, events: Iterable[Event], wall: Seconds) -> None:
        """Ejections, returns, and what was held."""
        for event in events:
            fields = {"cluster": self._settings.name, "endpoint": event.line, "detector": event.detector.value}
            match event.action:
                case Action.EJECT if event.enforced:
                    _log.warning("endpoint_ejected", extra={**fields, "ejections": event.ejections})
                case Action.UNEJECT:
                    _log.info("endpoint_returned", extra={**fields, "by": event.why})
                case _:
                    _log.info("endpoint_not_ejected", extra={**fields, "reason": event.why})
            told = outlier_event(self._settings, event, wall)
            if told is not None:
                self._events.add(self._settings.outlier_log, told)
