"""Why Reachline falls short where it does: words beside the page's figures, shown only while a figure does fall short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["REASONS"]

REASONS: Final[Mapping[tuple[str, str], str]] = {}
"""By the scenario's short id, and the limit or the contender."""
