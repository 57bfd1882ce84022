"""How late attempts began: our own scheduling, not the line's."""

from __future__ import annotations

__all__ = ["Lateness"]


class Lateness:
    """Of all attempts of an engine. Written by its thread only."""

    __slots__ = ("total_us", "worst_us")

    def __init__(self) -> None:
        self.total_us = self.worst_us = 0

    def of(self, late_ns: int) -> int:
        """Of one that began so many ns after its time, counted in; in us."""
        late = late_ns // 1_000
        self.total_us += late
        if late > self.worst_us:  # noqa: PLR1730  max() takes four times as long
            self.worst_us = late
        return late
