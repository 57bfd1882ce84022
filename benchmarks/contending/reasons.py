"""Why Reachline falls short where it does: words beside the page's figures, shown only while a figure does fall short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["REASONS"]

_SAME_CLIENTS: Final = (
    "Both modes have the same clients, whose own breakers leave the line within a second or two, long before either center has decided; what"
    " differs after that is less than the chance of calls that fail on healthy lines."
)
REASONS: Final[Mapping[tuple[str, str], str]] = {
    ("S01", "false_trips_per_h"): (
        "In one seed a trial failed by calls made before the repair, and the line was shut in the very moment of the repair, when it counts as"
        " well already: of the fault, not against health."
    ),
    ("S03", "reachline-literal"): _SAME_CLIENTS,
    ("S10", "reachline-literal"): (
        "The center of `fast` opens soon and tries the line again while it flaps; calls of trials that fall into a bad phase are probably what it"
        " costs more. That of `literal` opens late and hardly tries: its clients' own breakers do the work, at the price of its flaps."
    ),
    ("S13", "reachline-literal"): _SAME_CLIENTS,
}
"""By the scenario's short id, and the limit or the contender."""
