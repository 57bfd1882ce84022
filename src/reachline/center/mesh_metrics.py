"""What `/metrics` says of the mesh: each way as its own end tells it. Any thread may write it.

Of n agents there are n² ways: where they are many, only those in trouble have series.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from reachline.center.matrix import Ways
from reachline.center.metrics import escaped, family

__all__ = ["text"]

_MOST: Final = 2_000
"""Ways that all have their series: six each, of 45 agents."""
_SIDES: Final[tuple[tuple[str, Literal["loss", "rise"], Literal["loss_back", "rise_back"], str], ...]] = (
    ("mesh_loss_ratio", "loss", "loss_back", "Probes lost between two agents, each way, over the last minutes."),
    ("mesh_rise_seconds", "rise", "rise_back", "Delay between two agents over what is usual, each way."),
)


def text(ways: Ways) -> bytes:
    """As Prometheus text; `way` is seen from the vantage."""
    count = sum(len(row) for row in ways.told.values())
    return "".join(_families(ways, only_trouble=count > _MOST)).encode()


def _families(ways: Ways, *, only_trouble: bool) -> Iterator[str]:
    rows = ways.rows(only_trouble=only_trouble)
    known = [
        (f'{{vantage="{escaped(way["vantage"])}",peer="{escaped(way["peer"])}"', way)
        for way in rows
        if way["told_by"] == way["vantage"] and way["state"] != "stale"
    ]
    silent = [(f"{labels}}}", float(way["state"] == "silent")) for labels, way in known]
    yield family("mesh_silent", "gauge", "1 while an agent's probes get no answer from another.", silent)
    trips = [(f"{labels}}}", way["rtt"]) for labels, way in known if way["rtt"] is not None]
    yield family("mesh_rtt_seconds", "gauge", "Median round trip between two agents.", trips)
    for name, there, back, help_ in _SIDES:
        both = (("forward", there), ("reverse", back))
        sides = [(f'{labels},way="{side}"}}', way[key]) for labels, way in known for side, key in both]
        yield family(name, "gauge", help_, [(labels, value) for labels, value in sides if value is not None])
    named = [(labels, fault, way[fault]) for labels, way in known for fault in _FAULTS if way[fault]]
    faults = [(f'{labels},fault="{fault}",way="{way}"}}', 1.0) for labels, fault, way in named]
    yield family("mesh_fault", "gauge", "1 for a fault between two agents whose way is certain.", faults)


_FAULTS: Final[tuple[Literal["losing", "delayed"], ...]] = ("losing", "delayed")
