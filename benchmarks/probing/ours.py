"""Our side: the engine as an agent runs it, with every result recorded in its line's window and the windows read in turn.

A cell of these runs in a process of its own, pinned to a core. The agent as a whole is measured in `role`.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import gc
import resource
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

from benchmarks.probing.asking import Target
from benchmarks.probing.results import Pace, Profile, Sample
from benchmarks.probing.sampling import Sampler

from reachline.core.window import Columns, Window
from reachline.model import Clock, Endpoint, Failure, Kind, Seconds
from reachline.net.engine import Done, Engine, Job, Phases
from reachline.talk import build

__all__ = [
    "WARM_UP",
    "WINDOW",
    "Kept",
    "cpu",
    "job",
    "jobs",
    "nested",
    "paced",
    "quantile",
    "saturated",
]

WINDOW: Final = 64
"""Probes in flight, here and in the loops we are compared with: enough to keep a core busy, few enough not to queue for long."""
WARM_UP: Final[Seconds] = 0.3
"""Before anything is counted: routes, caches and the processor's clock are then as they stay."""
_LINES: Final = 64
_READ_EVERY: Final[Seconds] = 0.125
_READ_AT_ONCE: Final = 8
"""Windows read (summary and histogram) every eighth of a second: all 64 each second, as many as 640 lines have in a heartbeat of
ten seconds; so many at once is what an agent reads in one go."""
_AHEAD: Final[Seconds] = 0.05
"""How long before its time a start is handed over: what an agent does."""
_PATIENCE: Final[Seconds] = 6.0
"""With a first round of ten thousand lines, which costs about a second of a core."""
_ON_TIME_US: Final = 5_000
"""Later than any start is that is not behind others."""
_ROUND: Final[Seconds] = 1.0
"""Between two probes of a line at a fixed rate."""


def cpu() -> float:
    """Seconds of CPU this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of ascending values; 0 where there are none."""
    return float(ordered[min(int(len(ordered) * share), len(ordered) - 1)]) if ordered else 0.0


def job(kind: str, token: int, host: str, port: int) -> Job:
    """What to do for one line."""
    options: dict[str, str | int | bool] = {}
    if kind == "dns":
        options = {"name": "example.test"}
    elif kind == "tls":
        options = {"verify": False, "sni": "localhost"}
    endpoint = Endpoint(scheme=kind, host=host, port=0 if kind == "icmp" else port, family=4)
    return Job(token=token, endpoint=endpoint, probe=build(Kind(kind), endpoint, options))


def jobs(kind: str, target: Target, lines: int = _LINES) -> list[Job]:
    """One for each line, over all ports of the target."""
    ports = target.ports(kind)
    return [job(kind, token, target.address, ports[token % len(ports)]) for token in range(lines)]


class Kept:
    """What an agent keeps of each result. `after` is called with the token of each that was recorded."""

    def __init__(self, kind: str, lines: int, after: Callable[[int], None]) -> None:
        columns = Columns()
        self.windows = [Window(columns, Kind(kind)) for _ in range(lines)]
        self.ended = self.bad = 0
        self.late = array.array("q")
        self._next, self._after, self._now = 0, after, time.monotonic
        self._records, self._note, self._rounds = [each.record for each in self.windows], self.late.append, [0] * lines

    def take(  # noqa: PLR0917
        self, token: int, failure: Failure | None, rtt_us: int | None, clock: Clock, late: bool, sent: int, lost: int,
        status: int, note: str, lateness_us: int, phases: Phases | None, /,
    ) -> None:  # fmt: skip
        """One result of the engine."""
        self.ended += 1
        number = self._rounds[token] = self._rounds[token] + 1
        if failure is not None:
            self.bad += 1
        self._note(lateness_us)
        self._records[token](
            self._now(), failure, rtt_us,
            clock=clock, late=late, sent=sent, lost=lost, status=status, number=number, burst=1,
        )  # fmt: skip
        self._after(token)

    def read(self) -> None:
        """The next few windows as for a heartbeat."""
        now = self._now()
        for _ in range(_READ_AT_ONCE):
            window = self.windows[self._next]
            self._next = (self._next + 1) % len(self.windows)
            window.summary(now)
            window.settle()


class Span(NamedTuple):
    """What was used between two moments."""

    cpu: float
    wall: float
    profile: Profile | None


@contextlib.asynccontextmanager
async def nested(done: Done) -> AsyncIterator[Engine]:
    """An engine on the running loop."""
    gc.collect()
    gc.freeze()  # as an agent does with its plan
    engine = Engine(done)
    loop = asyncio.get_running_loop()
    loop.add_reader(engine.fileno(), engine.turn)
    try:
        yield engine
    finally:
        loop.remove_reader(engine.fileno())
        engine.close()


async def spanned(seconds: Seconds, *, is_profiled: bool) -> Span:
    """What the process uses from now on for `seconds`."""
    sampler = Sampler()
    spent, wall = cpu(), time.perf_counter()
    with sampler.running() if is_profiled else contextlib.nullcontext():
        await asyncio.sleep(seconds)
    return Span(cpu() - spent, time.perf_counter() - wall, sampler.profile() if is_profiled else None)


async def _read(kept: Kept) -> None:
    while True:
        await asyncio.sleep(_READ_EVERY)
        kept.read()


async def saturated(kind: str, target: Target, seconds: Seconds, *, is_profiled: bool) -> tuple[Sample, Profile | None]:
    """Always `WINDOW` probes in flight, the next begun as one ends."""
    made = jobs(kind, target)
    kept = Kept(kind, len(made), lambda token: engine.start(made[token], at=0.0))
    async with nested(kept.take) as engine:
        reading = asyncio.create_task(_read(kept))
        for number in range(WINDOW):
            engine.start(made[number % len(made)], at=0.0)
        await asyncio.sleep(WARM_UP)
        ended, bad = kept.ended, kept.bad
        span = await spanned(seconds, is_profiled=is_profiled)
        sample = Sample(count=kept.ended - ended, bad=kept.bad - bad, cpu=span.cpu, wall=span.wall)
        reading.cancel()
    return sample, span.profile


async def paced(rate: int, target: Target, seconds: Seconds, *, is_profiled: bool) -> tuple[Pace, Profile | None]:
    """`rate` connects a second, one of each line: absolute times, handed over a little ahead, as an agent does."""
    made = jobs("tcp", target, rate)
    kept = Kept("tcp", rate, lambda _: None)
    async with nested(kept.take) as engine:
        tasks = [asyncio.create_task(_read(kept)), asyncio.create_task(_feed(engine, made))]
        await _settled(kept, rate)
        ended = kept.ended
        span = await spanned(seconds, is_profiled=is_profiled)
        late = sorted(kept.late[ended:])
        for task in tasks:
            task.cancel()
    pace = Pace(
        rate=rate,
        ended=len(late) / span.wall,
        core=span.cpu / span.wall,
        late_p50_us=quantile(late, 0.5),
        late_p99_us=quantile(late, 0.99),
        bad=kept.bad,
    )
    return pace, span.profile


async def _settled(kept: Kept, lines: int) -> None:
    """Every line has its route, and what finding them all in the first second held up is made up for; or it never will be."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        await asyncio.sleep(2 * _AHEAD)
        if kept.ended > lines and kept.late[-1] < _ON_TIME_US:
            return


async def _feed(engine: Engine, made: Sequence[Job]) -> None:
    """One start of each job a round, evenly, given to the engine in portions."""
    begin, step, number = engine.now() + 2 * _AHEAD, _ROUND / len(made), 0
    while True:
        until = engine.now() + 2 * _AHEAD
        while (at := begin + number * step) < until:
            engine.start(made[number % len(made)], at=at)
            number += 1
        await asyncio.sleep(_AHEAD / 5)
