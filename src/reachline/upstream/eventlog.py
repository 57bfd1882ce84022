"""Events of a kept cluster in Envoy's JSON, until they are written: to a file, or to a function of the user's.

Whoever ends a call leaves its events here and goes on; writing is the client's thread's affair.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from reachline.model import Seconds

__all__ = ["EventLog", "Hear", "stamp"]

_log: Final = logging.getLogger(__name__)

_WAITING_MOST: Final = 10_000
"""Events that wait for a thread: a cluster of ten thousand endpoints that all fail at once. Older ones are dropped and counted."""

Hear = Callable[[Mapping[str, object]], None]
"""Takes one event; called from the client's thread, and must not wait."""


def stamp(wall: Seconds) -> str:
    """Unix time as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EventLog:
    """Events of one cluster. Appended to by any thread, which `deque` allows without a lock; written out by one."""

    def __init__(self, hear: Hear | None = None) -> None:
        self.dropped = 0
        self._hear: Final = hear
        self._waiting: Final[deque[tuple[str, Mapping[str, object]]]] = deque(maxlen=_WAITING_MOST)
        self._trouble = ""

    def add(self, path: str, event: Mapping[str, object]) -> None:
        """Keep an event for the file (empty: none) and for whoever hears."""
        if not path and self._hear is None:
            return
        self.dropped += len(self._waiting) >= _WAITING_MOST
        self._waiting.append((path, event))

    def forget(self) -> None:
        """In a forked child: what waits is the parent's to write."""
        self._waiting.clear()
        self.dropped = 0

    def flush(self) -> None:
        """Write what waits, one JSON object a line."""
        lines: dict[str, list[str]] = {}
        while self._waiting:
            path, event = self._waiting.popleft()
            if path:
                lines.setdefault(path, []).append(json.dumps(event, separators=(",", ":")) + "\n")
            if self._hear is not None:
                self._tell(event)
        for path, some in lines.items():
            self._append(path, "".join(some))

    def _tell(self, event: Mapping[str, object]) -> None:
        assert self._hear is not None
        try:
            self._hear(event)
        except Exception as error:  # noqa: BLE001 - the user's function: whatever it raises, the cluster goes on
            self._note("event_not_heard", repr(error))

    def _append(self, path: str, text: str) -> None:
        try:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self._note("events_not_written", f"{path}: {error.strerror or error}")

    def _note(self, event: str, trouble: str) -> None:
        """Named once, and again where it is another trouble."""
        if trouble != self._trouble:
            _log.warning(event, extra={"reason": trouble})
        self._trouble = trouble
