"""`watch` without a screen: one line an interval, JSON lines, CSV, a Markdown report, and sparklines for all of them."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Iterable, Sequence
from typing import Final

from reachline.cli.render import milliseconds, percent
from reachline.cli.watch_state import Bar, Sight

__all__ = ["BLOCKS", "PLAIN", "as_csv", "as_json", "csv_head", "levels", "line_of", "markdown"]

BLOCKS: Final = "▁▂▃▄▅▆▇█"
PLAIN: Final = "_.-=+*#@"
"""Where the terminal cannot show blocks."""
_NAMED: Final = 6
"""Targets told one by one in a line of text; of more, only those that are not healthy."""


def levels(bars: Sequence[Bar], glyphs: str) -> str:
    """One glyph a bar by its height between the lowest and the highest RTT; a space for a gap.

    Flat at the bottom while all are alike: within a fifth, so that the noise of a steady line does not look like waves.
    """
    rtts = [bar.rtt for bar in bars if bar.rtt is not None]
    if not rtts:
        return " " * len(bars)
    low = min(rtts)
    high = max(*rtts, low * 1.2)
    top = len(glyphs) - 1
    return "".join(
        " " if bar.rtt is None else glyphs[math.floor(top * (bar.rtt - low) / (high - low) + 0.5) if high > low else 0]
        for bar in bars
    )


def line_of(sights: Sequence[Sight]) -> str:
    """One interval in one line: how many are in which state, and the targets themselves where there are few or they are bad."""
    states: dict[str, int] = {}
    for sight in sights:
        states[sight.state] = states.get(sight.state, 0) + 1
    told = [sight for sight in sights if sight.state != "healthy"] if len(sights) > _NAMED else list(sights)
    parts = [_brief(sight) for sight in told[:_NAMED]]
    if len(told) > _NAMED:
        parts.append(f"and {len(told) - _NAMED} more")
    head = "" if len(sights) == 1 else ", ".join(f"{count} {state}" for state, count in states.items()) + " | "
    return f"{time.strftime('%H:%M:%S')} {head}{' | '.join(parts)}"


def _brief(sight: Sight) -> str:
    figures = (
        f"loss {percent(sight.loss)}, p50 {milliseconds(sight.p50)}, p95 {milliseconds(sight.p95)}, "
        f"jitter {milliseconds(sight.jitter)}"
    )
    now = milliseconds(sight.rtt) if sight.ok else sight.failure or "–"
    reason = f" ({sight.reason})" if sight.reason else ""
    return f"{sight.target} {sight.state}{reason}: {now}; {figures}"


def as_json(sight: Sight) -> str:
    """One object a line and round; durations in seconds, shares 0…1, null where not known."""
    document = {"time": round(time.time(), 6), **sight._asdict()}
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def csv_head() -> str:
    """The names of the columns."""
    return _csv(("time", *Sight._fields))


def as_csv(sight: Sight) -> str:
    """One row a line and round, in the units of JSON; empty where not known."""
    return _csv((round(time.time(), 6), *sight))


def _csv(values: Iterable[object]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow("" if value is None else value for value in values)
    return out.getvalue()


def markdown(sights: Sequence[Sight]) -> str:
    """A report to paste into a ticket."""
    head = ("target", "state", "reason", "rounds", "loss", "last", "EWMA", "P50", "P95", "jitter")
    rows = [
        (
            sight.target,
            sight.state,
            sight.reason,
            str(sight.rounds),
            f"{sight.lost}/{sight.sent} ({percent(sight.loss)})" if sight.sent else "–",
            *map(milliseconds, (sight.last, sight.ewma, sight.p50, sight.p95, sight.jitter)),
        )
        for sight in sights
    ]
    cells = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)
