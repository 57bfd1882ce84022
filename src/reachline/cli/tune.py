"""`reachline tune`: settings searched on recorded or simulated evidence, proved on evidence the search has not seen. Never applied."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, NamedTuple

import typer
import yaml

from reachline.cli.documents import document_in
from reachline.cli.render import Column, Output, OutputOption, console, show, write_json
from reachline.cli.whatif import proposed, told_progress, unread
from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.doors.units import seconds, text_of_seconds, text_of_share
from reachline.errors import ConfigError, Problem
from reachline.model import Scope, Seconds
from reachline.net.reload import text_of
from reachline.store.tuning import Candidate, Part, Score, halves, pruned, scored, search
from reachline.store.whatif import Proposed, segments_since

__all__ = ["SPACE", "command", "with_keys"]

SPACE: Final[Mapping[str, tuple[str, ...]]] = {
    "mode": ("literal", "fast"),
    "preset": ("quick_recovery", "default", "high_stability"),
    "patience.degraded": ("1", "2", "3", "4"),
    "patience.failed": ("2", "3", "4", "6"),
    "patience.recover": ("2", "3", "6"),
    "limits.loss.degraded": ("0.5%", "1%", "2%", "3%"),
    "limits.loss.failed": ("3%", "5%", "8%", "15%"),
    "limits.timeout.degraded": ("1%", "2%", "4%"),
    "limits.timeout.failed": ("3%", "5%", "8%", "15%"),
    "limits.p95.degraded": ("150ms", "200ms", "300ms", "400ms"),
    "limits.p95.failed": ("400ms", "500ms", "800ms"),
    "limits.jitter.degraded": ("100ms", "150ms", "250ms"),
    "limits.errors.failed": ("5%", "10%", "20%"),
    "judge.vote_share": ("50%", "60%", "66.7%"),
    "circuit_breaker.cooldown_seconds": ("30", "60", "120"),
}
"""What is searched: keys of a cluster, and values that are worth a try. Intervals of probes are not: no evidence can tell of them."""


class _Found(NamedTuple):
    """What the search came to; scores before and after, on what was searched and on what was not."""

    best: Candidate
    learnt: tuple[Score, Score]
    proven: tuple[Score, Score]
    without: Mapping[str, Score]
    false_trip_ms: int

    @property
    def is_proven(self) -> bool:
        """Whether unseen evidence says that it is better, or at least no worse where it holds no fault at all."""
        before, after = (score.cost(self.false_trip_ms) for score in self.proven)
        return bool(self.best) and (after < before or (after == before and not self.proven[0].faults))


def command(
    settings: Annotated[Path, typer.Option("--settings", help="The document to begin with.", metavar="FILE")],
    cluster: Annotated[str, typer.Option("--cluster", help="Which one; needed where FILE has several.")] = "",
    since: Annotated[str, typer.Option("--since", help="How far back: `7d`, `12h`.")] = "7d",
    journal: Annotated[
        Path | None, typer.Option("--journal", help="The journal's directory. Default: the one that FILE names.")
    ] = None,
    scenarios: Annotated[
        Path | None, typer.Option("--scenarios", help="Simulate these instead of reading a journal.")
    ] = None,
    tries: Annotated[int, typer.Option("--tries", min=2, max=100_000, help="Candidates to judge.")] = 80,
    false_trip: Annotated[
        str, typer.Option("--false-trip", help="Acting this much later on every fault is worth one false trip less.")
    ] = "60s",
    processes: Annotated[int, typer.Option("--jobs", min=1, max=256, help="Processes at once.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of the search: the same one finds the same.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Search settings that act sooner on faults, or trip falsely less, and print them as a diff with reasons.

    Seven tenths of the evidence are searched on; the rest shows whether it holds. Changes no file and no center.
    Exit code: 0 better settings are proven, 1 they are not.
    """
    text = text_of(settings)
    document = document_in(text, str(settings))
    name = _cluster(document, cluster, str(settings))
    price_ms = round(1_000 * _positive(false_trip, "--false-trip"))
    with _evidence(document, name, journal, scenarios, _positive(since, "--since")) as (learn, prove):
        with _asking(_Maker(text, str(settings), name), learn, processes, tries) as ask:
            best, score, before = search(SPACE, ask, tries=tries, false_trip_ms=price_ms, rng=Random(seed))
            best, score, without = pruned(best, score, ask, false_trip_ms=price_ms)
        maker = _Maker(text, str(settings), name)
        unseen = [scored(prove, maker.proposed(one)) for one in ({}, best)]
    found = _Found(best, (before, score), (unseen[0], unseen[1]), without, price_ms)
    if output is Output.JSON:
        write_json(_document(found, name))
    else:
        _print(found, name, document)
    if not found.is_proven:
        raise typer.Exit(1)


class _Maker(NamedTuple):
    """Turns candidates into what a journal is judged by; goes to other processes."""

    text: str
    file: str
    cluster: str

    def proposed(self, candidate: Candidate) -> Proposed:
        """ConfigError where the document with these keys is none."""
        text = with_keys(self.text, self.cluster, candidate) if candidate else self.text
        document = reach.read(text, name=self.file, environ=os.environ)
        return proposed(document, [self.cluster], place=self.file)[Scope(cluster=self.cluster)]


def with_keys(text: str, cluster: str, candidate: Candidate) -> str:
    """The document with these keys in that cluster; a preset or a mode comes with its own numbers, so it stands there too."""
    data = yaml.safe_load(text)
    block = data["clusters"][cluster]
    for key, value in candidate.items():
        place = block
        *above, last = key.split(".")
        for part in above:
            place[part] = dict(place.get(part) or {})
            place = place[part]
        place[last] = yaml.safe_load(value)
    return json.dumps(data)


def _score(maker: _Maker, parts: Sequence[Part], candidate: Candidate) -> Score | None:
    """In a process of its own."""
    try:
        wanted = maker.proposed(candidate)
    except ConfigError:
        return None
    return scored(parts, wanted)


@contextmanager
def _asking(
    maker: _Maker, parts: Sequence[Part], processes: int, tries: int
) -> Iterator[Callable[[Sequence[Candidate]], Sequence[Score | None]]]:
    known: dict[frozenset[tuple[str, str]], Score | None] = {}
    work = partial(_score, maker, parts)
    # Spawned, not forked: a bar has a thread.
    with told_progress("searching") as tell, ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:

        def ask(candidates: Sequence[Candidate]) -> Sequence[Score | None]:
            new = [one for one in candidates if frozenset(one.items()) not in known]
            found = pool.map(work, new) if processes > 1 else map(work, new)
            for one, score in zip(new, found, strict=True):
                known[frozenset(one.items())] = score
                tell(min(1.0, len(known) / tries))
            return [known[frozenset(one.items())] for one in candidates]

        yield ask


@contextmanager
def _evidence(
    document: Document, cluster: str, journal: Path | None, scenarios: Path | None, ago: Seconds
) -> Iterator[tuple[list[Part], list[Part]]]:
    """Evidence to search on, and evidence to prove it on."""
    if scenarios is not None:
        from reachline.cli.tune_past import simulated  # noqa: PLC0415  (a journal needs no simulator)

        with TemporaryDirectory(prefix="reachline-tune-") as place:
            with told_progress("simulating") as tell:
                parts = simulated(scenarios, Path(place), tell)
            yield parts
        return
    directory = journal or Path(document.center.journal)
    begin = time.time() - ago
    with unread(directory):
        learn, prove = halves(segments_since(directory, begin), Scope(cluster=cluster), begin)
        yield [learn], [prove]  # what cannot be read of it later is said as what cannot be read now


def _cluster(document: Document, name: str, place: str) -> str:
    if name in document.clusters:
        return name
    if not name and len(document.clusters) == 1:
        return next(iter(document.clusters))
    rule = "there is no such cluster" if name else "has several clusters"
    hint = f"--cluster with one of {', '.join(document.clusters)}"
    raise ConfigError(Problem(place=place, path="clusters", value=name, rule=rule, hint=hint))


def _positive(text: str, option: str) -> Seconds:
    found = seconds(text)
    if not found:
        hint = "write a number and a unit (s, m, h, d): 60s, 7d"
        raise ConfigError(Problem(place="tune", path=option, value=text, rule="is no duration", hint=hint))
    return found


def _print(found: _Found, cluster: str, document: Document) -> None:
    screen = console()
    rows = [("searched", *found.learnt), ("not seen by the search", *found.proven)]
    show(Output.TABLE, rows, _columns(), document=None)
    if not found.best:
        screen.print("\nNothing that was tried is better than these settings.", highlight=False)
        return
    screen.print(f"\n clusters.{cluster}", highlight=False)
    now = {key: _shown(document, cluster, key) for key in found.best}
    for key, value in sorted(found.best.items()):
        screen.print(f"-  {key}: {now[key]}", style="red", highlight=False)
        screen.print(f"+  {key}: {value}   # {_reason(found, key)}", style="green", highlight=False)
    if found.is_proven:
        verdict = "It holds on evidence that the search has not seen."
    else:
        verdict = "Not proven: evidence that the search has not seen does not say that it is better."
    screen.print(f"\n{verdict} Nothing was changed.", highlight=False)


def _columns() -> list[Column[tuple[str, Score, Score]]]:
    def both(title: str, shown: Callable[[Score], str]) -> Column[tuple[str, Score, Score]]:
        def cell(row: tuple[str, Score, Score]) -> str:
            was, would = shown(row[1]), shown(row[2])
            return was if was == would else f"{was} → {would}"

        return Column(title=title, cell=cell, align="right")

    return [
        Column(title="evidence", cell=lambda row: row[0]),
        Column(title="line-hours", cell=lambda row: f"{row[1].line_ms / 3_600_000:.1f}", align="right"),
        Column(title="faults", cell=lambda row: str(row[1].faults), align="right"),
        both("acted after, mean", lambda one: _span(one.mttr_ms)),
        both("never", lambda one: str(one.missed)),
        both("false trips", lambda one: str(one.false_trips)),
        both("false degrades", lambda one: str(one.false_degrades)),
    ]


def _reason(found: _Found, key: str) -> str:
    """What is worse without it, in words."""
    best, without = found.learnt[1], found.without[key]
    said = [
        f"{what} {was} instead of {now}"
        for what, was, now in (
            ("acts after", _span(without.mttr_ms), _span(best.mttr_ms)),
            ("false trips", str(without.false_trips), str(best.false_trips)),
            ("false degrades", str(without.false_degrades), str(best.false_degrades)),
        )
        if was != now
    ]
    return f"without it: {', '.join(said)}"


def _shown(document: Document, cluster: str, key: str) -> str:
    """The value in force, as `config show` has it."""
    from reachline.doors.effective import effective  # noqa: PLC0415  (only for people)

    value: Any = effective(document, cluster).settings
    for part in key.split("."):
        value = getattr(value, part)
    if isinstance(value, float) and key.startswith(("limits.p95", "limits.jitter")):
        return text_of_seconds(value)
    if isinstance(value, float) and key.startswith(("limits", "judge")):
        return text_of_share(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _document(found: _Found, cluster: str) -> dict[str, object]:
    def told(score: Score) -> dict[str, object]:
        return {
            "faults": score.faults,
            "mttr": score.mttr_ms / 1_000,
            "missed": score.missed,
            "false_trips": score.false_trips,
            "false_degrades": score.false_degrades,
            "line_hours": round(score.line_ms / 3_600_000, 3),
        }

    return {
        "cluster": cluster,
        "proven": found.is_proven,
        "changes": {
            key: {"value": value, "without": told(found.without[key])} for key, value in sorted(found.best.items())
        },
        "searched": {"before": told(found.learnt[0]), "after": told(found.learnt[1])},
        "unseen": {"before": told(found.proven[0]), "after": told(found.proven[1])},
    }


def _span(ms: int) -> str:
    return text_of_seconds(round(ms / 1_000, 1))
