"""The page of a run: what holds, what falls short and where the time goes there, every figure with its span. Pure."""

from __future__ import annotations

import html
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.probing.results import Offset, Pace, Profile, Results, Verdict
from benchmarks.probing.table import BUSY, NOT_ASKED, TITLES, idle, is_disturbed, middle, verdicts

__all__ = ["page", "summary"]

_HEAD: Final = """# Probing

*Written by `make bench-probe ARGS=--write-docs`; not to be edited.*

What an agent's probes cost and how true their times are, beside the programs people use today. Ratios count, absolute figures are of the
machine below: both sides of a ratio run in turn on the same core, round by round, and the row is the median of the rounds' ratios with the
lowest and highest of them.
"""
_DISTURBED: Final = """**The machine was busy with other things during this run: most sides had less than their core. Not to be relied on.**
"""
_METHOD: Final = """## How it is measured

- A figure is probes per **CPU-second** (user and system) of the prober's process alone. The prober has one core to itself; its target, and the
  client that asks blackbox_exporter, have the other.
- Our side is the engine as an agent runs it: timeouts armed, every result recorded in its line's window, all 64 windows read with their
  histograms once a second, as often as 640 lines are in their heartbeats. What scheduling and heartbeats of 10 000 lines cost on top is
  the row of the whole agent: the role itself, attached to a center in another process.
- The C loop and the bare loop in Python make the same system calls and keep nothing: they are the limit, not products. On loopback the
  peer's half of the stack is charged to the sender, which flatters all of them alike.
- blackbox_exporter is asked over HTTP for each probe, which is how it is used; its CPU is the kernel's account of its process.
- fping's start-up is measured apart and taken off.
- Round trips are held against the kernel's stamps of the packets themselves, captured on the device they leave by, on a path of 20 ms
  that varies by 4. The row is the worst of all rates.
- Lateness is a start after its due time; starts have slots of a millisecond.
- Memory is the growth of a process by its lines, each with a full window.
"""
_SIDES: Final = ("engine", "c", "python", "blackbox", "fping")


def page(found: Results) -> str:
    """Markdown."""
    parts = [
        _HEAD,
        _DISTURBED if is_disturbed(found) else "",
        "\n".join(_bounds(found)),
        "\n".join(_short(found)),
        _METHOD,
        "\n".join(_rates(found)),
    ]
    parts += ["\n".join(_paces(found)), "\n".join(_lab(found)), "\n".join(_memory(found)), "\n".join(_made(found))]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def summary(found: Results) -> str:
    """The rows for a terminal."""
    head = f"{'':66} {'measured':>10} {'span':>22} {'blocking':>10} {'goal':>9}"
    asked = (row for row in verdicts(found) if row.lack != NOT_ASKED)
    return "\n".join([head, *(_line(row) for row in asked)])


def _line(row: Verdict) -> str:
    shown = f"{row.state} ({row.lack})" if row.lack else row.state
    figures = (
        f"{_figure(row, row.value):>10} {_span(row):>22} {_bound(row, row.blocking):>10} {_bound(row, row.goal):>9}"
    )
    return f"{_title(row)[:66]:66} {figures}  {shown}"


def _title(row: Verdict) -> str:
    return f"{TITLES[row.cell]}, {row.what}"


def _figure(row: Verdict, value: float | None) -> str:
    if value is None:
        return "–"
    return _with_unit(row, value, f"{value:.3g}" if abs(value) < 1_000 else f"{value:,.0f}")


def _bound(row: Verdict, bound: float) -> str:
    return f"{'≥' if row.is_more_better else '≤'} {_with_unit(row, bound, f'{bound:g}')}"


def _with_unit(row: Verdict, value: float, shown: str) -> str:
    if not row.unit:
        return f"{value:.1%}"
    return f"{shown} {row.unit}"


def _span(row: Verdict) -> str:
    return "–" if row.low is None or row.low == row.high else f"{_figure(row, row.low)} … {_figure(row, row.high)}"


def _bounds(found: Results) -> Iterator[str]:
    yield "## What is wanted, and what is\n"
    yield "| | measured | span | blocking | goal | |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in verdicts(found):
        state = row.state if row.state != "falls short" else "**falls short**"
        shown = f"{state}: {row.lack}" if row.lack else state
        cells = (
            _title(row),
            _figure(row, row.value),
            _span(row),
            _bound(row, row.blocking),
            _bound(row, row.goal),
            shown,
        )
        yield f"| {' | '.join(cells)} |"


def _short(found: Results) -> Iterator[str]:
    yield "## What falls short\n"
    rows = [row for row in verdicts(found) if row.state == "falls short"]
    if not rows:
        yield "Nothing of what was measured."
    for cell in dict.fromkeys(row.cell for row in rows):
        yield f"### {TITLES[cell]}\n"
        for row in (row for row in rows if row.cell == cell):
            yield f"- {row.what}: {_figure(row, row.value)}, where {_bound(row, row.blocking)} is wanted"
        yield ""
        if profile := found.profiles.get(cell):
            yield from _profile(profile)


def _profile(profile: Profile) -> Iterator[str]:
    yield f"Of its CPU, {profile.kernel:.0%} is the kernel's. By line of code, calls into C and the kernel included ({profile.samples} samples):\n"
    yield "| share | where | line |"
    yield "| --- | --- | --- |"
    for spot in profile.spots:
        yield f"| {spot.share:.1%} | {_code(spot.place)} | {_code(spot.source or '…')} |"
    yield ""


def _code(text: str) -> str:
    """For a cell of a table: a bar within backticks ends it for some readers, and escaped is shown as it is by others."""
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>"


def _rates(found: Results) -> Iterator[str]:
    yield "## Probes per CPU-second\n"
    sides = [side for side in _SIDES if side in found.peers]
    yield f"| | {' | '.join(found.peers[side].title for side in sides)} |"
    yield f"| --- |{' --- |' * len(sides)}"
    for kind, seen in found.rates.items():
        cells = [_rate(found, kind, side) for side in sides]
        yield f"| {TITLES[kind]} | {' | '.join(cells)} |"
        del seen
    yield "\nHow each was run:\n"
    for side in sides:
        peer = found.peers[side]
        yield f"- {peer.title}: {f'`{peer.how}`' if peer.how else peer.lack}"
    yield from _notes(found)


def _rate(found: Results, kind: str, side: str) -> str:
    samples = found.rates[kind].get(side, ())
    if not samples:
        return ""
    median, low, high = middle(samples)
    return f"{median:,.0f} ({low:,.0f} … {high:,.0f})"


def _notes(found: Results) -> Iterator[str]:
    """Neighbours that were not at their best, and probes that failed: both make a figure doubtful."""
    for kind, seen in found.rates.items():
        for side, samples in seen.items():
            share, bad = idle(samples), sum(sample.bad for sample in samples)
            if share is not None:
                yield f"- {found.peers[side].title}, {TITLES[kind]}: had only {share:.0%} of its core ({BUSY:.0%} is wanted)"
            if bad:
                yield f"- {found.peers[side].title}, {TITLES[kind]}: {bad} of {sum(each.count for each in samples)} probes failed"
    for cell, lack in found.lacks.items():
        yield f"- not measured, {cell}: {lack}"


def _paces(found: Results) -> Iterator[str]:
    if not found.paced and not found.agent:
        return
    yield "## At a fixed rate\n"
    yield "| | ended a second | share of a core | start lateness p50 | p99 | failed |"
    yield "| --- | --- | --- | --- | --- | --- |"
    if found.paced:
        yield _pace(found.paced)
    if agent := found.agent:
        p50, p99 = agent.late_p50_us / 1_000, agent.late_p99_us / 1_000
        yield (
            f"| whole agent, {agent.lines:,} lines once a second | {agent.ended:,.0f} | {agent.core:.1%} | {p50:.2f} ms | {p99:.2f} ms | {agent.bad} |"
        )
        yield "\nThe agent's lateness is that of each line's latest start in a heartbeat."


def _pace(paces: Sequence[Pace]) -> str:
    def figures(values: Sequence[float], shown: str) -> str:
        low, high = format(min(values), shown), format(max(values), shown)
        return f"{low} … {high}" if low != high else low

    cells = (
        f"engine, {paces[0].rate:,} connects a second",
        figures([pace.ended for pace in paces], ",.0f"),
        figures([pace.core for pace in paces], ".1%"),
        f"{figures([pace.late_p50_us / 1_000 for pace in paces], '.2f')} ms",
        f"{figures([pace.late_p99_us / 1_000 for pace in paces], '.2f')} ms",
        str(sum(pace.bad for pace in paces)),
    )
    return f"| {' | '.join(cells)} |"


def _lab(found: Results) -> Iterator[str]:
    if not found.lab:
        return
    yield "## Round trips against packet stamps\n"
    yield "| | stall each second | probes compared | not comparable | error p50 | p99 | worst |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    cases: dict[tuple[str, int, int], list[Offset]] = {}
    for offset in found.lab:
        cases.setdefault((offset.kind, offset.rate, offset.stall_ms), []).append(offset)
    for (kind, rate, stall), each in cases.items():
        p50, p99 = (statistics.median(values) for values in ([o.p50_us for o in each], [o.p99_us for o in each]))
        worst = max(offset.worst_us for offset in each)
        count, missing = sum(offset.count for offset in each), sum(offset.missing for offset in each)
        yield f"| {TITLES[kind]}, {rate:,}/s | {f'{stall} ms' if stall else '–'} | {count:,} | {missing} | {p50:.1f} µs | {p99:.0f} µs | {worst:.0f} µs |"


def _memory(found: Results) -> Iterator[str]:
    memory, drift = found.memory, found.drift
    if memory is None or drift is None:
        return
    yield "## Memory\n"
    yield f"- a line's window and counters: {memory.window:,.0f} bytes (of {memory.lines:,} lines)"
    if found.agent:
        yield f"- all an agent keeps of a line with one kind, by the growth of its process: {found.agent.line_bytes:,.0f} bytes"
    yield (
        f"- {drift.seconds:.0f} seconds of all kinds at once, refused and unanswered ones among them, {drift.probes:,} probes: "
        f"{drift.early_kb:,} kB in the second quarter, {drift.late_kb:,} kB in the last; "
        f"open files {drift.files_early} and {drift.files_late} at most"
    )


def _made(found: Results) -> Iterator[str]:
    yield "## The machine\n"
    run = found.run
    yield f"{run.rounds} rounds, {run.seconds:g} s a cell, {run.took:.0f} s in all.\n"
    if run.is_crowded:
        yield "Prober and target shared the only core: nobody had one of its own.\n"
    yield "| | |"
    yield "| --- | --- |"
    for name, value in found.machine.items():
        yield f"| {name} | {value} |"
