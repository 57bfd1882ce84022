"""What benchmarks share: repeated measuring, a table for people, JSON for comparison. Says what machine it ran on.

A benchmark is `benchmarks/<name>.py`; it measures, then calls `finish`. Figures of one run on a shared machine are noisy: the
table shows the middle of several runs with their span, and a bound is asserted by a test, never here.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import ssl
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from reachline import __version__
from reachline.cli.render import Column, console, table

__all__ = ["RESULTS", "Figure", "finish", "machine", "measured"]

RESULTS: Final = Path("benchmarks/results")
"""Where `finish` writes unless told otherwise; not committed."""


class Figure(NamedTuple):
    """One line of a benchmark's table: the median of `runs` runs, and the lowest and highest of them."""

    what: str
    unit: str
    median: float
    low: float
    high: float
    runs: int
    bound: str = ""
    """What it is meant to stay under or over, for the reader."""


def measured(what: str, unit: str, run: Callable[[], float], *, runs: int = 5, bound: str = "") -> Figure:
    """`run` called once to warm up and then `runs` times; it returns the figure of one run."""
    run()
    values = sorted(run() for _ in range(runs))
    return Figure(what, unit, statistics.median(values), values[0], values[-1], runs, bound)


def finish(name: str, figures: Sequence[Figure], *, directory: Path = RESULTS) -> Path:
    """Prints the table, writes `<directory>/<name>.json` and returns its path."""
    columns: list[Column[Figure]] = [
        Column(title=name.upper(), cell=lambda row: row.what),
        Column(title="MEDIAN", cell=lambda row: f"{row.median:.4g}", align="right"),
        Column(title="SPAN", cell=lambda row: f"{row.low:.4g} – {row.high:.4g}", align="right"),
        Column(title="UNIT", cell=lambda row: row.unit),
        Column(title="BOUND", cell=lambda row: row.bound),
    ]
    console().print(table(figures, columns))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(
        json.dumps({"name": name, "machine": machine(), "figures": [row._asdict() for row in figures]}, indent=2)
    )
    return path


def machine() -> dict[str, str]:
    """What ran it, in words that name no machine: when, cores, load (runnable processes, last minute), processor, kernel, versions."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
        "release": __version__,
    }


def _processor() -> str:
    """As the kernel calls it; nothing where it does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return ""
