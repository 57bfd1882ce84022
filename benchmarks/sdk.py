"""What the SDK adds to a call: a pick, an attempt around nothing, a swap of a large list, and its import.

The neighbour that a pick must beat is `random.choices` with weights that are already summed. Everything runs in this one
process, interleaved by `measured`, so that a busy machine slows both sides; the ratios are what counts.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

from reachline.client.answer import line_list, parsed
from reachline.model import LineId, Version
from reachline.testing.bench import RESULTS, Figure, finish, measured
from reachline.testing.door import document, line
from reachline.upstream import Cluster, LineList, Listed
from reachline.upstream.listing import target

SOURCE = Path(__file__).parents[1] / "src"


def listed(count: int, counter: int = 1) -> LineList:
    lines = tuple(
        Listed(LineId(f"payments/n{number}"), target(f"tcp://10.0.0.1:{1 + number}"), 100, 100)
        for number in range(count)
    )
    return LineList(cluster="payments", lines=lines, version=Version(1, counter))


def cluster(count: int) -> Cluster:
    made = Cluster("payments", clock=time.monotonic, rng=random.Random(1))
    made.replace(listed(count), source="center")
    made.wake()
    return made


def each_us(call: Callable[[], object], number: int) -> Callable[[], float]:
    """Microseconds of one call, the loop around it included."""
    return lambda: timeit.timeit(call, number=number) / number * 1e6


def pick_figures(lines: int, number: int) -> tuple[list[Figure], float]:
    """A pick and its neighbour over as many lines; the figures and how many times faster the pick is."""
    made, rng = cluster(lines), random.Random(1)
    names, sums = list(range(lines)), list(accumulate([100] * lines))
    picked = measured(f"pick() of {lines} lines", "µs", each_us(made.pick, number), bound="≤ 0.5")
    chosen = measured(
        f"random.choices of {lines}", "µs", each_us(lambda: rng.choices(names, cum_weights=sums)[0], number)
    )
    return [picked, chosen], chosen.median / picked.median


def attempt_figure(number: int) -> Figure:
    made = cluster(3)

    def attempt() -> None:
        with made.attempt():
            pass

    return measured("attempt() around nothing", "µs", each_us(attempt, number), bound="≤ 4")


def failed_attempt_figure(number: int) -> Figure:
    made = cluster(3)

    def attempt() -> None:
        try:
            with made.attempt():
                raise ConnectionResetError
        except ConnectionResetError:
            return

    return measured("attempt() that fails", "µs", each_us(attempt, number // 10))


def swap_figures(lines: int) -> list[Figure]:
    """Taking a new list while picks go on, reading it, and taking one line out of it by the local breaker."""
    made = cluster(lines)
    fresh = iter([listed(lines, counter) for counter in range(2, 12)])
    body = json.dumps(document(*(line(f"n{number}", 100) for number in range(lines)))).encode()

    def swap() -> float:
        found = next(fresh)
        began = time.perf_counter()
        made.replace(found, source="center")
        return (time.perf_counter() - began) * 1e3

    def read() -> float:
        began = time.perf_counter()
        line_list(parsed(body), cluster="payments")
        return (time.perf_counter() - began) * 1e3

    def trip() -> float:
        pick = made.pick()
        assert pick is not None
        began = time.perf_counter()
        made.report(pick, "refused")
        made.report(pick, "refused")
        return (time.perf_counter() - began) * 1e3

    return [
        measured(f"swap to a list of {lines}", "ms", swap, bound="≤ 50"),
        measured(f"reading it ({len(body) / 1e6:.1f} MB of JSON)", "ms", read, runs=3),
        measured("a local breaker opens in it", "ms", trip),
    ]


def import_figure() -> Figure:
    """What `import reachline` adds to a bare interpreter, as that interpreter's own clock has it."""
    script = "import time; t = time.perf_counter(); import reachline; print(time.perf_counter() - t)"

    def run() -> float:
        done = subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
        )
        return float(done.stdout) * 1e3

    return measured("import reachline", "ms", run, runs=7, bound="≤ 50")


def first_use_figure() -> Figure:
    script = "import time; t = time.perf_counter(); import reachline; reachline.connect; print(time.perf_counter() - t)"

    def run() -> float:
        done = subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
        )
        return float(done.stdout) * 1e3

    return measured("import of the whole SDK", "ms", run, runs=7)


def main() -> int:
    """Exit 1 where the pick is not faster than its neighbour: the one bound that no machine excuses."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, default=200_000, help="calls in one run of the small figures")
    parser.add_argument("--lines", type=int, default=10_000, help="lines of the large list")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    figures: list[Figure] = []
    ratios = {}
    for lines in (3, 100):
        found, ratios[lines] = pick_figures(lines, asked.number)
        figures += found
    figures += [attempt_figure(asked.number), failed_attempt_figure(asked.number), *swap_figures(asked.lines)]
    figures += [import_figure(), first_use_figure()]
    finish("sdk", figures, directory=asked.results)
    for lines, ratio in ratios.items():
        print(f"a pick of {lines} lines is {ratio:.1f} times as fast as random.choices with prepared weights")
    return 0 if min(ratios.values()) > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
