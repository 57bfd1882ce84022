"""What probing costs beside blackbox_exporter, fping and a loop in C; how true its times are; what a line weighs.

Every figure counts as a ratio of one run. It never fails for being slow: what is short of its bound is printed and written down.

    make bench-probe                        all of it, under ten minutes
    make bench-probe ARGS=--quick           whether it works, under 90 seconds
    make bench-probe ARGS="--cells tcp,icmp --rounds 3"
    make bench-probe ARGS=--write-docs      and docs/benchmarks/probing.md anew
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from benchmarks.probing.measuring import CELLS, FULL, QUICK, Plan, run
from benchmarks.probing.page import page, summary
from benchmarks.probing.process import ROOT
from benchmarks.probing.results import Results

from reachline.testing.bench import RESULTS

PAGE: Final = ROOT / "docs" / "benchmarks" / "probing.md"


def plan_of(given: argparse.Namespace) -> Plan:
    """The plan that the command line asks for."""
    plan = QUICK if given.quick else FULL
    changes = {"rounds": given.rounds, "seconds": given.seconds, "drift": given.drift, "cells": given.cells}
    return msgspec.structs.replace(plan, **{name: value for name, value in changes.items() if value is not None})


def cells(text: str) -> tuple[str, ...]:
    """Names of cells, comma-separated."""
    wanted = tuple(text.split(","))
    if unknown := [name for name in wanted if name not in CELLS]:
        raise argparse.ArgumentTypeError(f"no cell is called {unknown[0]!r}; there are {', '.join(CELLS)}")
    return wanted


def positive(text: str) -> float:
    """A number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def whole(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def arguments() -> argparse.ArgumentParser:
    """What may be asked for."""
    parser = argparse.ArgumentParser(
        prog="bench-probe", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--cells", type=cells, help=f"of {','.join(CELLS)}; default all")
    parser.add_argument("--rounds", type=whole, help=f"default {FULL.rounds}")
    parser.add_argument("--seconds", type=positive, help=f"of each cell; default {FULL.seconds:g}")
    parser.add_argument("--drift", type=positive, help=f"seconds of the long run; default {FULL.drift:g}")
    parser.add_argument("--results", type=Path, default=ROOT / RESULTS, help="directory for probe.json")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks/probing.md")
    parser.add_argument(
        "--from", dest="stored", type=Path, help="write the page of a stored probe.json, measure nothing"
    )
    return parser


def stored(path: Path) -> Results:
    """The results of an earlier run; SystemExit with one line where the file holds none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Results)
    except (OSError, msgspec.MsgspecError) as error:
        print(f"bench-probe: {path} holds no results of a run: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def main(words: Sequence[str] | None = None) -> int:
    """By the command line's words, unless others are given."""
    given = arguments().parse_args(words)
    if given.stored:
        found = stored(given.stored)
    else:
        found = run(plan_of(given), lambda what: print(what, file=sys.stderr, flush=True))
        given.results.mkdir(parents=True, exist_ok=True)
        (given.results / "probe.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    print(summary(found))
    for cell, lack in found.lacks.items():
        print(f"{cell}: {lack}")
    if given.write_docs:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(found))
        print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
