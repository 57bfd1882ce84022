"""What a call's end shows outlier detection, as Envoy's router tells it: a reset is of our own side there too."""

from __future__ import annotations

from typing import Final

from reachline.core.outlier_events import Saw
from reachline.upstream.outcome import Column

__all__ = ["shown"]

_SAWS: Final = {
    Column.OK: Saw.ANSWERED, Column.ERRORS: Saw.FAILED, Column.LATE: Saw.TIMEOUT, Column.FAILED: Saw.UNCONNECTED,
}  # fmt: skip
_SHOWN: Final = tuple(_SAWS.get(each) for each in Column)
"""By place, as the tally's columns: an enum's hash costs as much as a pick on Python 3.11, and so does the look-up of a member."""


def shown(column: Column) -> Saw | None:
    """None: a call that ended so shows nothing."""
    return _SHOWN[column]
