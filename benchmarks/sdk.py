"""What the SDK adds to a call: a pick by each policy, an attempt around nothing, a swap of a large list, and its import.

The neighbour that a pick must beat is `random.choices` with weights that are already summed. Everything runs in this one
process, interleaved by `measured`, so that a busy machine slows both sides; the ratios are what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from benchmarks.sdk_calls import figures as call_figures

from reachline.client.answer import line_list, parsed
from reachline.core.hashing import murmur2_64, xxh64
from reachline.core.pick import TABLE, Member, Memory, Policy, build
from reachline.core.pick.table import HASHING
from reachline.members import Membership, compare
from reachline.model import LineId, Version
from reachline.testing.bench import RESULTS, Figure, finish, measured
from reachline.testing.door import document, line
from reachline.upstream import Cluster, LineList, Listed
from reachline.upstream.kept import KeptCluster
from reachline.upstream.listing import target
from reachline.upstream.reading import read

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
    """Microseconds of this thread's processor for one call, the loop around it included: what others run does not count."""
    return lambda: timeit.timeit(call, timer=time.thread_time, number=number) / number * 1e6


def pick_figures(lines: int, number: int) -> tuple[list[Figure], float]:
    """A pick and its neighbour over as many lines; the figures and how many times faster the pick is."""
    made, rng = cluster(lines), random.Random(1)
    names, sums = list(range(lines)), list(accumulate([100] * lines))
    picked = measured(f"pick() of {lines} lines", "µs", each_us(made.pick, number), bound="≤ 0.5")
    chosen = measured(
        f"random.choices of {lines}", "µs", each_us(lambda: rng.choices(names, cum_weights=sums)[0], number)
    )
    return [picked, chosen], chosen.median / picked.median


def turns_figures(number: int, rounds: int = 9) -> list[Figure]:
    """`attempt()` and `pick()` measured in turns with what a slow moment of the machine slows as much: a loop of thirty steps, and `random.choices`."""
    made, near, rng = cluster(3), kept([f"10.0.0.{each}:443" for each in range(1, 11)]), random.Random(1)

    def attempt() -> None:
        with made.attempt():
            pass

    def attempt_kept() -> None:
        with near.attempt():
            pass

    def steps() -> None:
        total = 0
        for each in range(30):
            total += each & 3

    sums = [100, 200, 300]
    calls = {
        "steps": each_us(steps, number // 10),
        "random.choices": each_us(lambda: rng.choices((0, 1, 2), cum_weights=sums)[0], number // 10),
        "pick()": each_us(made.pick, number // 10),
        "attempt()": each_us(attempt, number // 10),
        "attempt() kept in process": each_us(attempt_kept, number // 10),
    }
    took: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            took[name].append(call())
    found = [_spread("a loop of thirty steps, in turns with the next ones", "µs", took["steps"])]
    for name in list(calls)[2:]:
        for unit, base in (("loops", "steps"), ("choices", "random.choices")):
            shares = [one / other for one, other in zip(took[name], took[base], strict=True)]
            found.append(_spread(f"  {name} in {unit}", "x", shares))
    return found


def _spread(what: str, unit: str, values: Sequence[float]) -> Figure:
    return Figure(what, unit, statistics.median(values), min(values), max(values), len(values))


BOUNDS = {"least_request": "≤ 1", "ring_hash": "≤ 1.5", "maglev": "≤ 1.5"}
"""Microseconds of a pick; the other policies are weighted picks, ≤ 0.5."""


def endpoints(count: int, *, step: int = 0) -> list[Member[int]]:
    """Alike, or each by `step` heavier than the one before."""
    return [
        Member(number, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:443", 100 + step * number)
        for number in range(count)
    ]


def policy_figures(count: int, number: int) -> list[Figure]:
    """One pick by each policy among so many endpoints; look-ups of hash policies from a hash that is there already."""
    rng, key = random.Random(1), xxh64(b"customer-4711")
    figures = []
    for name in TABLE:
        pick = build(endpoints(count), Policy(name=name), Memory(), rng).pick
        given = key if name in HASHING else None
        run = each_us(lambda pick=pick, given=given: pick(rng, given), number)  # type: ignore[misc]
        figures.append(measured(f"{name} of {count}", "µs", run, bound=BOUNDS.get(name, "≤ 0.5")))
    for name in ("round_robin", "least_request"):
        pick = build(endpoints(count, step=7), Policy(name=name), Memory(), rng).pick
        run = each_us(lambda pick=pick: pick(rng), number)  # type: ignore[misc]
        figures.append(
            measured(f"{name} of {count}, all weights different", "µs", run, bound=BOUNDS.get(name, "≤ 0.5"))
        )
    return figures


def hash_figures(number: int) -> list[Figure]:
    """What comes before a look-up where the caller has a text and no hash."""
    return [
        measured("xxHash64 of 13 bytes", "µs", each_us(lambda: xxh64(b"customer-4711"), number)),
        measured("xxHash64 of 36 bytes", "µs", each_us(lambda: xxh64(b"6fa459ea-ee8a-3ca4-894e-db77e160355e"), number)),
        measured("MurmurHash2 of 13 bytes", "µs", each_us(lambda: murmur2_64(b"customer-4711"), number)),
    ]


def build_figures(count: int) -> list[Figure]:
    """A new picker of many endpoints, by each policy: one weight has moved, and the process knows the endpoints. Processor time."""
    rng, figures = random.Random(1), []
    before, after = endpoints(count), endpoints(count)
    after[0] = after[0]._replace(weight=101)
    for name in TABLE:
        memory = Memory()

        def swap(name: str = name, memory: Memory = memory) -> float:
            began = time.thread_time()
            build(after, Policy(name=name), memory, rng)
            return (time.thread_time() - began) * 1e3

        build(before, Policy(name=name), memory, rng)
        figures.append(measured(f"swap to {count} endpoints, {name}", "ms", swap, bound="≤ 50"))

    def first() -> float:
        began = time.thread_time()
        build(before, Policy(name="maglev"), Memory(), rng)
        return (time.thread_time() - began) * 1e3

    return [*figures, measured("the same for the first time, maglev", "ms", first, runs=3)]


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


def kept(targets: list[str], policy: str = "weighted_random") -> KeptCluster:
    settings = read({"payments": {"targets": targets, "policy": policy, "outliers": True}}, place="benchmark")[
        "payments"
    ]
    made = KeptCluster(settings, clock=time.monotonic, wall=time.time, rng=random.Random(1))
    made.update(compare(Membership(), settings.membership))
    made.wake()
    made.turn()
    return made


def kept_figures(count: int, number: int) -> list[Figure]:
    """Of a cluster kept in process: an attempt with outlier detection, and a new endpoint among many, from update to picker."""
    names = [f"10.{each >> 16}.{each >> 8 & 255}.{each & 255}:443" for each in range(1, count + 2)]
    small, other = kept(names[:10]), kept(names[-1:]).settings.membership.members[0]

    def around_nothing() -> None:
        with small.attempt():
            pass

    found = [
        measured("kept in process: attempt() around nothing", "µs", each_us(around_nothing, number // 10), bound="≤ 4")
    ]
    for policy in ("weighted_random", "maglev"):
        large = kept(names[:-1], policy)
        before = large.settings.membership
        after = Membership(members=(*before.members[1:], other))

        swap = swapping(large, before, after)
        what = f"kept: one of {count} endpoints is another, {policy}"
        found.append(measured(what, "ms", lambda swap=swap: swap().processor, bound="≤ 50"))  # type: ignore[misc]
        found += stall_figures(large, swap, f"{count}, {policy}")
    return found


class Swapped(NamedTuple):
    """Milliseconds from the new list of endpoints to the picker that serves it: of the thread's processor, and by the clock."""

    processor: float
    clock: float


def swapping(large: KeptCluster, before: Membership, after: Membership) -> Callable[[], Swapped]:
    """Has the cluster take `after` and, which is not measured, `before` again."""

    def swap() -> Swapped:
        began, at = time.thread_time(), time.perf_counter()
        large.update(compare(before, after))
        large.turn()
        took = Swapped((time.thread_time() - began) * 1e3, (time.perf_counter() - at) * 1e3)
        large.update(compare(after, before))
        large.turn()
        return took

    return swap


def stall_figures(large: KeptCluster, swap: Callable[[], Swapped], which: str) -> list[Figure]:
    """When picks see the swap, and what it holds up while a thread aside makes it, as the client's does.

    A pick waits for no lock, but for the interpreter, which hands over every 5 ms: the longest pick is about one such turn. The
    last row is a loop that does nothing else. A busy machine adds its own pauses to each of them.
    """

    def attempt() -> None:
        with large.attempt():
            pass

    async def late() -> float:
        loop, latest = asyncio.get_running_loop(), 0.0
        swapper = asyncio.create_task(asyncio.to_thread(swap))
        while not swapper.done():
            due = loop.time() + 0.001
            await asyncio.wait({swapper}, timeout=0.001)
            latest = max(latest, loop.time() - due)
        return latest * 1e3

    return [
        measured(f"  until picks see it, clock ({which})", "ms", lambda: swap().clock),
        measured("  the same while a thread picks all the time", "ms", lambda: meanwhile(large.pick, swap).swapped),
        measured("  longest pick meanwhile", "ms", lambda: meanwhile(large.pick, swap).longest),
        measured("  longest attempt()", "ms", lambda: meanwhile(attempt, swap).longest),
        measured("  a loop's timer is late by", "ms", lambda: asyncio.run(late())),
    ]


class Meanwhile(NamedTuple):
    """Milliseconds of the longest of all calls made while another thread swaps, and of the swap, by the clock."""

    longest: float
    swapped: float


def meanwhile(call: Callable[[], object], swap: Callable[[], Swapped]) -> Meanwhile:
    found, took = 0.0, list[Swapped]()
    swapper = threading.Thread(target=lambda: took.append(swap()))
    swapper.start()
    while swapper.is_alive():
        began = time.perf_counter()
        call()
        found = max(found, time.perf_counter() - began)
    swapper.join()
    return Meanwhile(found * 1e3, took[0].clock)


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
    parser.add_argument("--rounds", type=int, default=60, help="rounds of whole HTTP calls, forty of each kind in each")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    figures: list[Figure] = []
    ratios = {}
    for lines in (3, 100):
        found, ratios[lines] = pick_figures(lines, asked.number)
        figures += found
    figures += turns_figures(asked.number)
    for endpoint_count in (100, asked.lines):
        figures += policy_figures(endpoint_count, asked.number)
    figures += hash_figures(asked.number)
    figures += [attempt_figure(asked.number), failed_attempt_figure(asked.number), *swap_figures(asked.lines)]
    figures += [*build_figures(asked.lines), *kept_figures(asked.lines, asked.number)]
    figures += [*call_figures(asked.rounds), import_figure(), first_use_figure()]
    finish("sdk", figures, directory=asked.results)
    for lines, ratio in ratios.items():
        print(f"a pick of {lines} lines is {ratio:.1f} times as fast as random.choices with prepared weights")
    return 0 if min(ratios.values()) > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
