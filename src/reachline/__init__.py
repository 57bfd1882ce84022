"""Reachline: is this line good enough to carry traffic now? Public names load on first use (PEP 562)."""

from __future__ import annotations

import importlib
from typing import Any, Final

__version__ = "0.1.0"

_HOME: Final = {
    "connect": "reachline.client",
    "connect_sync": "reachline.client",
    "ReachlineError": "reachline.errors",
    "ConfigError": "reachline.errors",
    "Shed": "reachline.errors",
}
__all__ = ["ConfigError", "ReachlineError", "Shed", "__version__", "connect", "connect_sync"]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'reachline' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
