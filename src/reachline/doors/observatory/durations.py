"""Go's durations, as Xray reads them: `10s`, `2h45m`, `1.5h`, `-5s`, to the nanosecond. Exact: integers in, integers out."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MS", "SECOND", "nanoseconds", "text_of"]

MS: Final = 1_000_000
"""Nanoseconds."""
SECOND: Final = 1_000_000_000
_UNITS: Final = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": MS, "s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND,
}  # fmt: skip
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_LONGEST: Final = 64
"""Characters: no duration that people write has more."""
_MOST: Final = 2**63 - 1
"""Go's own limit, 292 years."""


def nanoseconds(text: str) -> int | None:
    """The duration as Go parses it, fractions cut below a nanosecond; None where Go refuses it."""
    sign, rest = (text[:1], text[1:]) if text[:1] in {"+", "-"} else ("", text)
    if rest == "0":
        return 0
    if not rest or len(text) > _LONGEST:
        return None
    total, at = 0, 0
    while at < len(rest):
        found = _PART.match(rest, at)
        if found is None or not (found[1] or found[2]):
            return None
        total += _scaled(found[1], found[2] or "", _UNITS[found[3]])
        at = found.end()
    if total > _MOST:
        return None
    return -total if sign == "-" else total


def _scaled(whole: str, fraction: str, unit: int) -> int:
    parts: int = 10 ** len(fraction)
    return int(whole or "0") * unit + int(fraction or "0") * unit // parts


def text_of(nanos: int) -> str:
    """The shortest text in one unit that means the same."""
    for unit in ("h", "m", "s", "ms", "us"):
        if nanos and nanos % _UNITS[unit] == 0:
            return f"{nanos // _UNITS[unit]}{unit}"
    return f"{nanos}ns" if nanos else "0s"
