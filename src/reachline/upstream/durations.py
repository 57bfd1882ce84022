"""Durations of settings: numbers are seconds, texts are as protobuf writes them (`0.25s`)."""

from __future__ import annotations

import math
import re
from typing import Final

from reachline.doors.envoy.fields import Block
from reachline.model import Seconds

__all__ = ["in_words", "seconds"]

_TEXT: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)s")
_LONGEST: Final = 315_576_000.0
"""Ten years: any longer one is a mistake of units."""


def seconds(block: Block, name: str, default: Seconds, *, endless: bool = False) -> Seconds:
    """The field in seconds; `endless`: it may be `math.inf`. What cannot be is told and read as the default."""
    value = block.raw(name)
    if value is None:
        return default
    if isinstance(value, str) and (found := _TEXT.fullmatch(value)):
        value = float(found[1])
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Written so that NaN is refused too.
        if 0 <= value <= _LONGEST or (endless and value == math.inf):
            return float(value)
        block.refuse(name, "must be from 0 s to ten years" + (", or math.inf" if endless else ""))
        return default
    block.refuse(name, "must be seconds, for example 0.25 or '0.25s'")
    return default


def in_words(value: object) -> object:
    """A number of seconds as Envoy's documents write it; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST:
        return value
    return f"{value:.9f}s"
