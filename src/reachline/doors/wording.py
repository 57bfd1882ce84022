"""How places and words of a document are said to people. Plain texts; knows no settings model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Final

from reachline.doors.origin import Path

__all__ = ["WIDEST", "dotted", "nearest"]

WIDEST: Final = 60
"""Characters of a value or key shown in a problem: one line on a terminal."""
_BEGINNING: Final = 3
"""Letters that say which word was begun."""


def dotted(path: Path) -> str:
    """`clusters.shop.lines[1].to`; keys that are no plain names are quoted."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[\w-]+", step):
            text += f".{step}"
        else:
            text += f'."{step[:WIDEST]}"' if step else '.""'
    return text.removeprefix(".")


def nearest(word: str, known: Sequence[str]) -> str:
    """The known word that was most likely meant, or empty text: a slip of the fingers, or its beginning."""
    begun = [name for name in known if len(word) >= _BEGINNING and name.startswith(word)]
    return next(iter(begun or difflib.get_close_matches(word, known, 1)), "")
