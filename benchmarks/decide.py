"""What deciding costs, in both modes: a slice of evidence into the ledger, and a tick, at 10 000 lines seen by five vantages; a
journal replayed; a simulated incident of twenty minutes.

    make bench-decide                        prints the table, writes benchmarks/results/decide.json
    make bench-decide ARGS=--write-docs      and docs/benchmarks/deciding.md anew

One process, one core, no sockets. Slices and ticks show their 99th percentile and their span, and their CPU time apart: on a
machine that does other work beside it, the wall clock measures that work too. Ticks run with the collector held, as in the center.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import math
import pstats
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from reachline import __version__
from reachline.core.ledger import Ledger
from reachline.core.rules import Rules
from reachline.doors import reach
from reachline.model import LineId, Reading, VantageId, Version
from reachline.net import collector
from reachline.simulate.runner import play
from reachline.simulate.scenarios import Scenario
from reachline.store.records import Opened, Record, Reported, Ticked
from reachline.store.replay import replay
from reachline.store.segment import ROOT, Meta, SegmentWriter, create
from reachline.testing.bench import Figure, finish, machine
from reachline.testing.builders import line, reading, scope, vantages

LINES = 10_000
VANTAGES = 5
SLICE = 100
TICK_MS = 10_000
TOUCHED = 0.02
"""Of the lines change their state or counts in an ordinary tick."""
MODES = ("literal", "fast")
REPLAYED = 1_000
"""Lines of the journal that is replayed…"""
HEARTBEATS = 12
"""…and heartbeats of every vantage."""
LATE = 10
"""Of 200 attempts, on a line that loses."""
SETTLED = 4
"""Healthy heartbeats after which no line is looked at any more."""
PROFILED = 4
"""Ticks of a profile, and how many functions it names."""
DEAREST = 8
FLOOR = """
Where all lines are touched, those that are alike share one row: a tick judges it once, and each line costs a word, a weight, a standing
and its name in the seal, made anew, for readers and checkpoints hold the old ones. Where no two are alike each is judged by itself."""
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "deciding.md"


class Spent(NamedTuple):
    """Milliseconds by the clock on the wall and by this thread's own."""

    wall: float
    cpu: float


def rules(mode: str) -> Rules:
    """The default preset's."""
    document = reach.read(f"mode: {mode}\nclusters: {{payments: {{lines: ['tcp://a.test:443']}}}}", name="bench")
    return reach.rules(document, "payments")


def ledger(seen_by: Sequence[VantageId], mode: str, count: int = LINES) -> Ledger:
    """All lines there are, nothing known of them."""
    lines = tuple(line(f"l{number:05d}") for number in range(count))
    return Ledger(scope(), lines, rules(mode), vantages=frozenset(seen_by), version=Version(1, 0), now_ms=0)


def sliced(lines: Sequence[LineId], said: Sequence[Reading]) -> Iterator[list[tuple[LineId, Reading]]]:
    """The same readings of all lines, in the parts in which heartbeats bring them."""
    for at in range(0, len(lines), SLICE):
        yield [(name, one) for name in lines[at : at + SLICE] for one in said]


def heard(book: Ledger, lines: Sequence[LineId], said: Reading, seen_by: Sequence[VantageId], now_ms: int) -> None:
    """Every vantage says this of these lines."""
    for vantage in seen_by:
        for part in sliced(lines, [said]):
            book.report(vantage, part, now_ms=now_ms)


def heard_apart(book: Ledger, lines: Sequence[LineId], seen_by: Sequence[VantageId], now_ms: int, rng: Random) -> None:
    """Each vantage lost of each of these lines what it lost, on average as much as where all lose alike."""
    lost = [reading(ok=200 - late, late=late) for late in range(2 * LATE + 1)]
    for vantage in seen_by:
        for at in range(0, len(lines), SLICE):
            part = [(name, rng.choice(lost)) for name in lines[at : at + SLICE]]
            book.report(vantage, part, now_ms=now_ms)


def tick(book: Ledger, now_ms: int, profile: cProfile.Profile | None = None) -> tuple[Spent, Spent]:
    """What one tick took, and what it takes to tell its decisions: the journal's writer does that, in its own thread."""
    with collector.held():
        if profile:
            profile.enable()
        began, worked = time.perf_counter(), time.thread_time()
        closed = book.close(now_ms)
        taken = Spent(1_000 * (time.perf_counter() - began), 1_000 * (time.thread_time() - worked))
        if profile:
            profile.disable()
        began, worked = time.perf_counter(), time.thread_time()
        tuple(closed.changes)
        return taken, Spent(1_000 * (time.perf_counter() - began), 1_000 * (time.thread_time() - worked))


def ticks(
    mode: str, share: float, count: int, profile: cProfile.Profile | None = None, *, mixed: bool = False
) -> tuple[list[Spent], list[Spent]]:
    """Ticks in each of which `share` of the lines turns bad while those of the last one come back; and their decisions told.

    All lose alike, or (`mixed`) each as chance wants it to each vantage: then hardly two lines are alike.
    """
    seen_by, rng = vantages(VANTAGES), Random("decide")
    book = ledger(seen_by, mode)
    names = list(book.lines)
    now_ms = 0
    for _ in range(SETTLED):
        now_ms += TICK_MS
        heard(book, names, reading(), seen_by, now_ms)
        book.close(now_ms)
    found, told = [], []
    for _ in range(count):
        now_ms += TICK_MS
        bad = set(rng.sample(names, round(share * LINES)))
        heard(book, [name for name in names if name not in bad], reading(), seen_by, now_ms)
        if mixed:
            heard_apart(book, sorted(bad), seen_by, now_ms, rng)
        else:
            heard(book, sorted(bad), reading(ok=200 - LATE, late=LATE), seen_by, now_ms)
        gc.collect()  # what reporting left behind is not the tick's
        taken, telling = tick(book, now_ms, profile)
        found.append(taken)
        told.append(telling)
    return found, told


def slices(mode: str, said: Reading, count: int) -> list[Spent]:
    """What each heartbeat slice of 100 lines took, of which all is the same; the lines were healthy so far."""
    seen_by = vantages(VANTAGES)
    book, found = ledger(seen_by, mode), []
    for number in range(1, SETTLED + 1):
        heard(book, list(book.lines), reading(), seen_by, number * TICK_MS)
        book.close(number * TICK_MS)
    gc.collect()
    for part in list(sliced(list(book.lines), [said]))[:count]:
        began, worked = time.perf_counter(), time.thread_time()
        book.report(seen_by[0], part, now_ms=(SETTLED + 1) * TICK_MS)
        found.append(Spent(1_000 * (time.perf_counter() - began), 1_000 * (time.thread_time() - worked)))
    return found


def profiled(mode: str, share: float) -> list[str]:
    """The functions that most of some ticks' time is spent in, by their own time, as Markdown rows."""
    profile = cProfile.Profile()
    ticks(mode, share, PROFILED, profile)
    stats = pstats.Stats(profile)
    own = {where: row[2] for where, row in stats.stats.items()}  # type: ignore[attr-defined]
    whole = sum(own.values())
    dearest = sorted(own, key=lambda where: own[where], reverse=True)[:DEAREST]
    return [f"| `{_named(file, name)}` | {100 * own[file, at, name] / whole:.0f} % |" for file, at, name in dearest]


def _named(file: str, name: str) -> str:
    """A function as readers know it; built-in ones have no file, and an address that is another one in each run."""
    return f"{Path(file).stem}.{name}" if file != "~" else name.strip("<>").partition(" of type")[0]


def records(mode: str) -> Iterator[Record]:
    """A journal's records: a hundredth of the lines loses in every heartbeat."""
    seen_by, rng = vantages(VANTAGES), Random("replay")
    book, where = ledger(seen_by, mode, REPLAYED), scope()
    names = list(book.lines)
    yield Opened(scope=where, at_ms=0, checkpoint=book.freeze())
    for number in range(1, HEARTBEATS + 1):
        now_ms = TICK_MS * number
        bad = set(rng.sample(names, REPLAYED // 100))
        for vantage in seen_by:
            for at in range(0, len(names), SLICE):
                said = [
                    (name, reading(ok=200 - LATE, late=LATE) if name in bad else reading())
                    for name in names[at : at + SLICE]
                ]
                book.report(vantage, said, now_ms=now_ms)
                yield Reported(scope=where, at_ms=now_ms, vantage=vantage, readings=tuple(said))
        closed = book.close(now_ms)
        yield Ticked(scope=where, at_ms=now_ms, changes=closed.changes, digest=closed.digest)


def replays(mode: str, count: int) -> list[float]:
    """Readings a second of each of so many replays of one journal; SystemExit where a replay decides otherwise."""
    with TemporaryDirectory() as directory:
        meta = Meta(release=__version__, epoch=1, number=1, first=1, chain=ROOT, opened_ms=0, opened_unix_ms=0)
        path = create(Path(directory), meta)
        writer = SegmentWriter(path, meta)
        writer.write(enumerate(records(mode), 1))
        writer.close()
        found = []
        for _ in range(count):
            began = time.perf_counter()
            done = replay(path)
            found.append(done.readings / (time.perf_counter() - began))
            if done.difference is not None:
                raise SystemExit(f"bench-decide: {done.difference}")
    return found


def simulations(mode: str, count: int) -> list[float]:
    """Seconds of each run of an incident: twenty minutes, five agents, twenty clients, 900 calls a second."""
    incident = Scenario.model_validate(
        {
            "id": "brownout",
            "duration_s": 1_200,
            "lines": {"l1": {}, "l2": {}, "l3": {}},
            "phases": [{"from": 300.0, "to": 600.0, "line": "l1", "set": {"timeout": 0.06, "loss": 0.04}}],
            "truth": [{"line": "l1", "from": 300.0, "to": 600.0, "class": "down"}],
        }
    )
    found = []
    for seed in range(1, count + 1):
        began = time.perf_counter()
        play(incident, "reachline", seed=seed, mode=mode)
        found.append(time.perf_counter() - began)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def figures_of(what: str, spent: Sequence[Spent], bound: str) -> Iterator[Figure]:
    """The 99th percentile of the time on the wall beside its span, and the median of the CPU time beside its own."""
    wall, cpu = [one.wall for one in spent], [one.cpu for one in spent]
    yield Figure(what, "ms, p99", percentile(wall, 0.99), min(wall), max(wall), len(wall), bound)
    yield Figure(f"{what}: CPU", "ms, median", statistics.median(cpu), min(cpu), max(cpu), len(cpu), "")


def middle(what: str, unit: str, values: Sequence[float], bound: str) -> Figure:
    """The median beside the span."""
    return Figure(what, unit, statistics.median(values), min(values), max(values), len(values), bound)


def measured(mode: str, count: int) -> Iterator[Figure]:
    """All rows of one mode."""
    lossy = reading(ok=200 - LATE, late=LATE)
    yield from figures_of(f"{mode}: slice of 100 healthy lines", slices(mode, reading(), 100), "≤ 1, goal 0.3")
    yield from figures_of(f"{mode}: slice of 100 lines that lose", slices(mode, lossy, 100), "")
    yield from figures_of(f"{mode}: tick, 2 % touched", ticks(mode, TOUCHED, count)[0], "≤ 40, goal 20")
    every, told = ticks(mode, 1.0, max(5, count // 5))
    yield from figures_of(f"{mode}: tick, all touched", every, "≤ 200, goal 100")
    yield from figures_of(f"{mode}: its decisions told", told, "")
    mixed, _ = ticks(mode, 1.0, max(5, count // 5), mixed=True)
    yield from figures_of(f"{mode}: tick, all touched, no two seen alike", mixed, "≤ 200, goal 100")
    yield middle(f"{mode}: journal replayed", "readings/s", replays(mode, 3), "≥ 50 000, goal 200 000")
    yield middle(f"{mode}: twenty minutes simulated", "s", simulations(mode, 3), "≤ 3, goal 1")


def is_short(row: Figure) -> bool:
    """Whether a figure is beyond its bound; a goal is none."""
    sign, _, number = row.bound.partition(",")[0].partition(" ")
    if not number:
        return False
    limit = float("".join(number.split()))
    return row.median > limit if sign == "≤" else row.median < limit


def lacking(figures: Sequence[Figure], modes: Sequence[str]) -> list[str]:
    """What falls short of its bound, and where the time of ticks goes."""
    short = [f"- {row.what}: {row.median:,.4g} {row.unit}, asked {row.bound}" for row in figures if is_short(row)]
    found = ["\n## What falls short\n", *(short or ["Nothing."])]
    found += [FLOOR] if any("all touched" in one for one in short) else []
    for mode in modes if short else ():
        found += [f"\nWhere a tick of `{mode}` mode spends its own time, all lines touched:\n", "| function | share |"]
        found += ["| --- | --- |", *profiled(mode, 1.0)]
    return found


def page(figures: Sequence[Figure], modes: Sequence[str]) -> str:
    """Markdown."""
    rows = [
        f"| {row.what} | {row.median:,.4g} {row.unit} | {row.low:,.4g} to {row.high:,.4g} | {row.bound} |"
        for row in figures
    ]
    made = machine()
    return "\n".join(
        [
            "# Deciding\n",
            "*Written by `make bench-decide ARGS=--write-docs`; not to be edited.*\n",
            f"{LINES:,} lines seen by {VANTAGES} vantages, one process, one core, no sockets. In each tick the named share of the lines",
            "turns bad while those of the last tick come back: a line that comes back is looked at for three more ticks.\n",
            "| what | measured | span | bound |",
            "| --- | --- | --- | --- |",
            *rows,
            *lacking(figures, modes),
            f"\nMade {made['at']}, {made['cores']} cores, {made['processor']}, Python {made['python']}, release {made['release']}.",
            "",
        ]
    )


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(
        prog="bench-decide", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ticks", type=int, default=50)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks/deciding.md")
    asked = parser.parse_args()
    gc.freeze()
    figures = [row for mode in asked.modes for row in measured(mode, asked.ticks)]
    finish("decide", figures)
    if asked.write_docs:
        PAGE.write_text(page(figures, asked.modes))


if __name__ == "__main__":
    main()
