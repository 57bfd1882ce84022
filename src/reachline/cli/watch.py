"""`reachline watch TARGET…`: look at targets live, without a center or a document. Exit code 0: all healthy, 1: not, 2: usage."""

from __future__ import annotations

import asyncio
import io
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from random import Random
from typing import Annotated

import typer

from reachline.agent.probed import Probed
from reachline.agent.prober import Attempt, Prober
from reachline.cli.watch_state import Sight, Watch, watch_rules
from reachline.cli.watch_targets import Pace, Target, read_targets
from reachline.cli.watch_text import as_csv, as_json, csv_head, line_of, markdown
from reachline.model import Seconds

__all__ = ["Form", "command"]


class Form(StrEnum):
    """How `watch` shows what it sees."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


def command(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET",
            help="https:// http:// tcp://host:port tls:// dns://name[@server] icmp:// grpc:// redis:// udp://, with "
            "?via=PROXY&source=IP&interface=NAME&family=6 and options of the probe behind it.",
        ),
    ],
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between rounds.")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="Rounds, then the end; unset: until stopped.")] = None,
    timeout: Annotated[float, typer.Option(min=0.01, max=60, help="Seconds after which an answer is late.")] = 1.0,
    output: Annotated[
        Form,
        typer.Option(
            "-o",
            "--output",
            help="A live table (one line an interval without a terminal), JSON or CSV a round, a Markdown report.",
        ),
    ] = Form.TABLE,
) -> None:
    """Watch targets live: state and its reason, loss, RTT by the kernel's clock, percentiles, jitter.

    Exit code 0 when all are healthy in the end, 1 otherwise.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without UTF-8 gets a question mark for a dash, not an error.
        sys.stdout.reconfigure(errors="replace")
    # What it has to say is on the screen; the prober's events are an agent's.
    logging.getLogger("reachline").addHandler(logging.NullHandler())
    pace = Pace(interval=interval, timeout=timeout, patience=2 * timeout)
    well = asyncio.run(_watch(read_targets(targets, pace), pace, count=count, form=output))
    raise typer.Exit(0 if well else 1)


class _Run:
    """One run of `watch`: what it knows, and that it is to end. Written by the prober's callback and by signals."""

    def __init__(self, targets: tuple[Target, ...], pace: Pace, count: int | None) -> None:
        self.watch = Watch(targets, watch_rules(pace.interval), count=count)
        self.prober = Prober(rng=Random(), ended=self._ended, rounds=count)
        self.stop = asyncio.Event()
        self.rounds: asyncio.Queue[Sight | None] = asyncio.Queue()
        """Every round as it ended, None at the end; empty unless somebody listens."""
        self.listens = False
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """Enough seen."""
        self.stop.set()
        self.rounds.put_nowait(None)

    def _ended(self, probed: Probed, attempt: Attempt) -> None:
        row = self.watch.ended(probed, attempt, self._loop.time())
        if self.listens:
            self.rounds.put_nowait(self.watch.sight(row, self.prober))
        if self.watch.is_done:
            self.end()


async def _watch(targets: tuple[Target, ...], pace: Pace, *, count: int | None, form: Form) -> bool:
    """Watches until told to stop; whether all is well then."""
    run = _Run(targets, pace, count)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, run.end)
    async with run.prober:
        run.prober.adopt((target.plan for target in targets), at_once=True)
        match form:
            case Form.JSON:
                await _each_round(run, as_json)
            case Form.CSV:
                print(csv_head(), flush=True)
                await _each_round(run, as_csv)
            case Form.MD:
                await run.stop.wait()
                print(markdown(run.watch.sights(run.prober)))
            case Form.TABLE if sys.stdin.isatty() and sys.stdout.isatty():
                await _screen(run)
                print(markdown(run.watch.sights(run.prober)))
            case Form.TABLE if count is not None:
                await _each_count(run)
            case Form.TABLE:
                await _each_interval(run, pace.interval)
    return run.watch.is_well


async def _each_round(run: _Run, text: Callable[[Sight], str]) -> None:
    run.listens = True
    while (sight := await run.rounds.get()) is not None:
        print(text(sight), flush=True)


async def _each_interval(run: _Run, interval: Seconds) -> None:
    """One line an interval, and a last one with what came since."""
    due = asyncio.get_running_loop().time()
    while not run.stop.is_set():
        due += interval
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await run.stop.wait()
        print(line_of(run.watch.sights(run.prober)), flush=True)


async def _each_count(run: _Run) -> None:
    """One line for each round that every target has had; a last one where it is told to stop before the last round."""
    run.listens = True
    told = 0
    while await run.rounds.get() is not None:
        # A round of one target completes one line at most, so that none is told twice and none is left out.
        if run.watch.rounds > told:
            told += 1
            print(line_of(run.watch.sights(run.prober)), flush=True)
    if not run.watch.is_done:
        print(line_of(run.watch.sights(run.prober)), flush=True)


async def _screen(run: _Run) -> None:
    """The live table until `q`, a signal, or the last round."""
    from reachline.cli.watch_screen import WatchApp  # noqa: PLC0415  (the other forms start without it)

    rows = run.watch.rows
    app = WatchApp(
        tuple(rows),
        state=lambda target: rows[target].health.name.lower(),
        sight=lambda target: run.watch.sight(rows[target], run.prober),
        history=lambda target: list(rows[target].history),
    )

    async def leave() -> None:
        await run.stop.wait()
        app.exit()

    async with asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(leave(), name="leave")
        await app.run_async()
        leaving.cancel()
