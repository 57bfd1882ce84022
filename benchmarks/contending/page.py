"""The page `docs/benchmarks/decisions.md`, from stored runs alone: no number in it is written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.contending.against import OURS, Against, Verdict, against
from benchmarks.contending.paired import Difference
from benchmarks.contending.reasons import REASONS
from benchmarks.contending.shown import PER, asked, number, shown, title
from benchmarks.contending.stored import Key, Stored

from reachline.simulate.bound import CONFIDENCE, highest
from reachline.simulate.limits import passed
from reachline.simulate.runner import CONTENDERS
from reachline.simulate.scenarios import Scenario

__all__ = ["Book", "page"]

_ALWAYS: Final = ("t_detect", "t_drain", "t_restore_full", "bad_requests", "false_trips_per_h", "composite")
"""Columns of every table; what the scenario asks besides comes after them."""
_SOAK_HOURS: Final = 3_000
_SOAK_MOST: Final = 1.0
"""False opens in 1 000 line-hours that a soak may have, and how long it has to be."""
MANY: Final = f"{PER:,}".replace(",", " ")
_HEAD: Final = f"""# Decisions: who steers better

*Written by `make bench-decisions ARGS=--write-docs`; not to be edited.*

Incidents are played in the [simulator](../guide/simulate.md), each with several random seeds, once for every way of steering traffic
("contender"), under the same seeds. All see the same network and only what their own probes and calls tell them. This page says how soon
each noticed, how many calls went wrong, what it cut although nothing was wrong, and where Reachline falls short.

- `reachline` is this release in `fast` mode, `reachline-literal` the rules of the document that Reachline grew from, to the letter.
- `oracle` knows the truth the moment it is so: nobody can do better. `none` never moves anything: what an incident costs if nobody cares.
- The others follow the published rules and defaults of the systems they are named after, rebuilt for the simulator, not those systems
  themselves; [what was added in fairness](../guide/simulate.md#contenders).

Each figure is the median over the seeds, with the lowest and highest of them in brackets. Times are seconds from the start of a fault, or from its
repair, in simulated time; "never" means not before the run ended. A contender that never moved traffic away is "full again" after 0 seconds.
Bad calls are those that failed or came too late beyond the oracle's, of {MANY} calls. A false trip is a line that was shut though it was well.
The [score](../guide/simulate.md#figures-and-limits) is 100 for one who loses nothing that doing nothing loses.
A limit is met when it holds in 95 % of the seeds, which with fewer than twenty seeds means in every one. Limits on what only Reachline tells
(whom it mistrusts, which cause it names) are not held against the others: there "–" stands.
"""
_COMPARED: Final = f"""
## Reachline beside each of the others

Reachline (`fast`) less the other, in pairs under the same seed: the mean of the differences and, in brackets, the bounds between which it is with
95 % certainty. Below zero, Reachline has fewer. On either side the wider of two bounds counts: of a paired bootstrap with a fixed seed, which
for few pairs is too narrow, and of Student's t, which for lopsided differences is. A sign test was not used: five wins of five can happen by chance once in
sixteen times, so it could never call five seeds certain, and it does not say how much. Where neither has more than one bad call of {MANY} beyond the oracle's, nobody has any: equal.
"Not settled" means that zero lies within the bounds: more seeds, or no difference. Some contenders do well under one seed and badly under the
next, so that few pairs settle nothing. Of a hundred such intervals five are off by chance.
"""


class Book(NamedTuple):
    """What the page is made of."""

    scenarios: Sequence[Scenario]
    runs: Mapping[Key, Stored]
    parts: Mapping[str, str]
    """Of each scenario's id: `blocking`, `goal`, `soak`."""
    stale: int
    """Runs of code or scenarios that were changed since."""
    seeds: Mapping[str, int]
    """How many are wanted, by part."""

    def of(self, scenario: str, contender: str) -> list[Stored]:
        """By seed."""
        return [run for (one, name, _), run in sorted(self.runs.items()) if (one, name) == (scenario, contender)]

    def who(self, scenario: str) -> list[str]:
        """Contenders that ran there, in the usual order."""
        return [name for name in CONTENDERS if self.of(scenario, name)]

    def part(self, name: str) -> list[Scenario]:
        """Its scenarios that anybody ran, in the file's order."""
        return [one for one in self.scenarios if self.parts[one.id] == name and self.who(one.id)]


def page(book: Book) -> str:
    """Markdown."""
    compared = [
        against(one.id, name, book.runs)
        for one in book.part("blocking")
        for name in book.who(one.id)
        if name != OURS and book.of(one.id, OURS)
    ]
    parts = [
        [_HEAD],
        _ran(book),
        _short(book, compared),
        _overview(book),
        [_COMPARED],
        _comparisons(compared),
        _each(book),
        _goals(book),
        _soak(book),
    ]
    return "\n".join(line for part in parts for line in part) + "\n"


def _ran(book: Book) -> Iterator[str]:
    """At which commit, how often."""
    commits = Counter(run.commit for run in book.runs.values())
    seeds = {
        part: sorted({len(book.of(one.id, name)) for one in book.part(part) for name in book.who(one.id)})
        for part in ("blocking", "goal")
    }
    told = ", ".join(f"{_spaced(count)} at commit `{name}`" for name, count in commits.most_common())
    last = max((run.at for run in book.runs.values()), default="")
    yield f"{_spaced(len(book.runs))} runs: {told}; the last one ended {last}."
    for part, counts in seeds.items():
        if counts:
            many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
            yield f"Seeds of each {part} scenario and contender: {many}; {book.seeds[part]} are wanted."
    if book.stale:
        yield f"**{_spaced(book.stale)} of the runs are of code that was changed since**, which may or may not change them; the command runs them anew."
    yield ""


def broken(book: Book, scenario: Scenario, contender: str) -> list[str]:
    """Names of limits that do not hold over the seeds; for others than Reachline, of those that they have a figure for."""
    runs = book.of(scenario.id, contender)
    held = passed(run.row for run in runs).get((scenario.id, contender), {})
    return [name for name, is_held in held.items() if not is_held and (_is_ours(contender) or name in runs[0].metrics)]


def _is_ours(contender: str) -> bool:
    return contender.startswith(OURS)


# -- what falls short --------------------------------------------------------------------------------------------------------------------


def _short(book: Book, compared: Sequence[Against]) -> Iterator[str]:
    rivals = [one for one in compared if one.contender != "oracle"]
    fewer, equal, even, more = (
        sum(one.of_calls is verdict for one in rivals)
        for verdict in (Verdict.BETTER, Verdict.EQUAL, Verdict.OPEN, Verdict.WORSE)
    )
    blocking = [one for one in book.part("blocking") if book.of(one.id, OURS)]
    met = sum(not broken(book, one, OURS) for one in blocking)
    yield "## In short\n"
    yield f"- Limits: Reachline meets all of them in {met} of the {len(blocking)} blocking scenarios that were run."
    yield (
        f"- Bad calls, beside every contender but the oracle in each blocking scenario, {len(rivals)} comparisons: fewer in {fewer}, equal"
        f" because nobody has any in {equal}, not settled in {even}, more in {more}."
    )
    yield f"- False trips: no more in {sum(one.trips_no_more for one in rivals)} of {len(rivals)}."
    yield f"- {_returned(book)}"
    yield f"- {_soaked(book)}"
    yield "\n### What falls short\n"
    yield from _lacking(book, rivals) or ["Nothing."]


def _returned(book: Book) -> str:
    """Nobody asks it of most scenarios, but people do."""
    ended = [
        one
        for one in book.part("blocking")
        if one.truth and max(truth.to for truth in one.truth) < one.duration_s and book.of(one.id, OURS)
    ]
    late = [one for one in ended if any(run.metrics["t_restore_full"] is None for run in book.of(one.id, OURS))]
    why = (
        "The wait before a trial doubles with each trial that fails, so a long fault may be followed by a wait as long."
    )
    said = f"; not in {', '.join(_repaired(one) for one in late)} after the repair. {why}" if late else "."
    return f"Lines that were repaired have their full share again before the run ends in {len(ended) - len(late)} of {len(ended)} scenarios{said}"


def _repaired(scenario: Scenario) -> str:
    return f"{scenario.id} ({scenario.duration_s - max(truth.to for truth in scenario.truth):g} s)"


def _lacking(book: Book, rivals: Sequence[Against]) -> list[str]:
    found = []
    for part in ("blocking", "goal"):
        for one in book.part(part):
            for name in broken(book, one, OURS):
                said = f"{title(name)} {shown(name, book.of(one.id, OURS))}, asked {asked(one)[name]}"
                found.append(f"- {one.id} ({part}), limit: {said}.{_reason(one.id, name)}")
    for rival in rivals:
        if rival.of_calls in {Verdict.OPEN, Verdict.WORSE}:
            word = "more bad calls than" if rival.of_calls is Verdict.WORSE else "bad calls, not settled against"
            found.append(
                f"- {rival.scenario}, {word} `{rival.contender}`: {_bounds(rival.bad)} of {MANY}.{_reason(rival.scenario, rival.contender)}"
            )
        if not rival.trips_no_more:
            said = f"- {rival.scenario}, more false trips than `{rival.contender}`: {_bounds(rival.trips)} a line-hour."
            found.append(said + _reason(rival.scenario, "false_trips"))
    return found + _missing(book)


def _missing(book: Book) -> list[str]:
    """What was not run at all, or less often than wanted."""
    found = []
    never = [
        one.id for one in book.scenarios if book.parts[one.id] in {"blocking", "goal"} and not book.of(one.id, OURS)
    ]
    if never:
        found.append(f"- Not run yet: {', '.join(never)}.")
    alone = [one.id for one in book.part("blocking") if len(book.who(one.id)) < len(CONTENDERS)]
    if alone:
        found.append(f"- Not run yet by every contender: {', '.join(alone)}.")
    return found


def _reason(scenario: str, what: str) -> str:
    reason = REASONS.get((scenario.partition("_")[0], what), "")
    return f" {reason}" if reason else ""


# -- tables ------------------------------------------------------------------------------------------------------------------------------


def _overview(book: Book) -> Iterator[str]:
    """Bad calls of everybody everywhere."""
    ran = {name for one in book.part("blocking") for name in book.who(one.id)}
    names = [name for name in CONTENDERS if name in ran]
    yield f"\n## Bad calls of {MANY}, beyond the oracle's\n"
    yield f"| scenario | {' | '.join(names)} |"
    yield f"| --- |{' --- |' * len(names)}"
    for one in book.part("blocking"):
        cells = (book.of(one.id, name) for name in names)
        yield f"| {one.id} | {' | '.join(shown('bad_requests', runs) if runs else '' for runs in cells)} |"


def _comparisons(compared: Sequence[Against]) -> Iterator[str]:
    yield f"| scenario | beside | pairs | bad calls of {MANY} | | false trips a line-hour | |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for one in compared:
        verdict = "–" if one.contender == "oracle" else one.of_calls.value
        trips = "none" if one.trips[:3] == (0.0, 0.0, 0.0) else _bounds(one.trips)
        no_more = "no more" if one.trips_no_more else "**more**"
        yield f"| {one.scenario} | {one.contender} | {one.bad.pairs} | {_bounds(one.bad)} | {verdict} | {trips} | {no_more} |"


def _bounds(found: Difference) -> str:
    if found.pairs < 2:
        return f"{number(found.mean)} (one pair)"
    return f"{number(found.mean)} ({number(found.low)} … {number(found.high)})"


def _each(book: Book) -> Iterator[str]:
    yield "\n## Scenario by scenario"
    for one in book.part("blocking"):
        wanted = asked(one)
        always = [name for name in _ALWAYS if one.truth or not name.startswith("t_")]
        names = [*always, *(name for name in wanted if name not in always)]
        yield f"\n### {one.id}\n\n{one.title[:1].upper()}{one.title[1:]}.\n"
        yield f"| | seeds | {' | '.join(title(name) for name in names)} | limits |"
        yield f"| --- | --- |{' --- |' * len(names)} --- |"
        yield f"| *asked* | | {' | '.join(wanted.get(name, '') for name in names)} | |"
        for contender in book.who(one.id):
            runs = book.of(one.id, contender)
            cells = " | ".join(shown(name, runs) for name in names)
            failed = broken(book, one, contender)
            verdict = f"broken: {', '.join(title(name).partition(' (')[0] for name in failed)}" if failed else "met"
            yield f"| {contender} | {len(runs)} | {cells} | {verdict} |"


def _goals(book: Book) -> Iterator[str]:
    if not (ran := book.part("goal")):
        return
    yield "\n## The other scenarios\n"
    yield "Goals, Reachline alone: what each asks, and what came of it.\n"
    yield "| scenario | what happens | seeds | asked | came to | |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for one in ran:
        runs, failed = book.of(one.id, OURS), broken(book, one, OURS)
        for at, (name, wanted) in enumerate(asked(one).items() if runs else ()):
            head = f"{one.id} | {one.title} | {len(runs)}" if not at else " | | "
            verdict = "**broken**" if name in failed else "met"
            yield f"| {head} | {title(name)} {wanted} | {shown(name, runs)} | {verdict} |"


def _soak(book: Book) -> Iterator[str]:
    yield "\n## The soak: a healthy day, again and again\n"
    yield f"{_soaked(book)} Asked are {_spaced(_SOAK_HOURS)} line-hours and at most {_SOAK_MOST:g} false open in 1 000.\n"
    for one in book.part("soak"):
        yield "| contender | days | line-hours | false opens | at most, in 1 000 line-hours | falsely degraded a line-hour | decisions a line-hour |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        for name in book.who(one.id):
            runs = book.of(one.id, name)
            opens, hours = _opens(runs)
            cells = " | ".join(shown(key, runs) for key in ("false_degrades_per_h", "decisions_per_h"))
            yield f"| {name} | {len(runs)} | {_spaced(hours)} | {opens:g} | {1_000 * highest(round(opens), hours):.3g} | {cells} |"


def _spaced(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def _soaked(book: Book) -> str:
    runs = [run for one in book.part("soak") for run in book.of(one.id, OURS)]
    if not runs:
        return "Soak: not run yet."
    opens, hours = _opens(runs)
    most = 1_000 * highest(round(opens), hours)
    enough = "enough" if hours >= _SOAK_HOURS and most <= _SOAK_MOST else "not enough yet"
    return (
        f"Soak: {_spaced(hours)} line-hours of health, {opens:g} false opens, so at most {most:.3g} in 1 000 line-hours ({CONFIDENCE:.0%} sure):"
        f" {enough}."
    )


def _opens(runs: Sequence[Stored]) -> tuple[float, float]:
    def total(name: str) -> float:
        figures = (run.metrics.get(name) for run in runs)
        return sum(float(each) for each in figures if isinstance(each, int | float))

    return total("false_trips"), total("line_hours")
