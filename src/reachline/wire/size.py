"""How large a frame between agent and center may be. Apart from the frames, so that a stream can be bounded without their codec."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_FRAME"]

MAX_FRAME: Final = 4 << 20
"""Bytes. A slice of 100 lines with all nine kinds and histograms is below 2 MiB; four leave room."""
