"""Bytes by inbound and outbound, and events by name. Written by the loop that carries."""

from __future__ import annotations

from collections import Counter
from typing import Final

from reachline.doors.observatory.carrying import Counted

__all__ = ["Traffic"]


class Traffic:
    """What went where since the start."""

    def __init__(self, counted: Counted) -> None:
        self.events: Final[Counter[str]] = Counter()
        self.counted = counted
        """Whose bytes are told; all are counted."""
        self._inbound: Final[dict[str, list[int]]] = {}
        self._outbound: Final[dict[str, list[int]]] = {}

    def add(self, inbound: str, outbound: str, up: int, down: int) -> None:
        """Bytes from a client and to it."""
        for table, tag in ((self._inbound, inbound), (self._outbound, outbound)):
            sums = table.setdefault(tag, [0, 0])
            sums[0] += up
            sums[1] += down

    def stats(self) -> dict[str, dict[str, dict[str, int]]]:
        """The value of `stats` in `/debug/vars`: what the document's policy wants counted, by tag; untagged ones are not told."""
        wanted = self.counted
        return {
            "inbound": _told(self._inbound, wanted.inbound_uplink, wanted.inbound_downlink),
            "outbound": _told(self._outbound, wanted.outbound_uplink, wanted.outbound_downlink),
        }


def _told(table: dict[str, list[int]], has_up: bool, has_down: bool) -> dict[str, dict[str, int]]:
    found = {}
    for tag, (up, down) in table.items():
        each = ({"uplink": up} if has_up else {}) | ({"downlink": down} if has_down else {})
        if tag and each:
            found[tag] = each
    return found
