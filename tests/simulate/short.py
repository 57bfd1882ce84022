"""Scenarios of a minute or two, for tests: the smallest that show what they are about."""

from __future__ import annotations

from typing import Any

import yaml

from reachline.simulate.reading import read
from reachline.simulate.scenarios import Scenario

LINES = {name: {"base": 100, "provider": name.lower(), "capacity_rps": 600} for name in ("L1", "L2", "L3")}


def scenario(**said: Any) -> Scenario:
    """One healthy minute of 90 calls a second over three lines, but for what is said."""
    usual: dict[str, Any] = {
        "id": "short",
        "duration_s": 60,
        "lines": LINES,
        "traffic": {"rps": 90, "sdk_instances": 4},
    }
    return read(yaml.safe_dump({"scenarios": [usual | said]}), name="short.yaml")[0]


def hard_down(**said: Any) -> Scenario:
    """L1 is gone from the 30th to the 50th second."""
    usual: dict[str, Any] = {
        "duration_s": 55,
        "phases": [{"from": 30, "to": 50, "line": "L1", "set": {"connect_fail": 1.0}}],
        "truth": [{"line": "L1", "from": 30, "to": 50, "class": "down"}],
        "limits": {"t_detect": 5, "t_drain": 8, "sdk_local_avoid": 1.5, "false_trips_per_h": 0},
    }
    return scenario(**(usual | said))
