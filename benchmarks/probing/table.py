"""What was measured, held against what is wanted. Pure: values in, rows out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from benchmarks.probing.results import Offset, Results, Sample, Verdict

__all__ = ["BUSY", "NOT_ASKED", "SLACK", "TITLES", "idle", "is_disturbed", "middle", "ratios", "verdicts"]

BUSY: Final = 0.95
"""Of its core: a neighbour that had less was not at its best, and is named."""
SLACK: Final = 0.01
"""Growth of a process over half a run that is the allocator's own, in shares of its size."""
NOT_ASKED: Final = "not asked for"
TITLES: Final = {
    "tcp": "TCP connect",
    "http": "HTTP GET on a new connection",
    "icmp": "ICMP echo",
    "dns": "DNS over UDP",
    "tls": "TLS 1.3 handshake",
    "paced": "10 000 connects a second",
    "agent": "a whole agent, 10 000 lines once a second",
    "rtt": "round trip against packet stamps",
    "memory": "memory",
}


class _Ratio(NamedTuple):
    kind: str
    peer: str
    name: str
    blocking: float
    goal: float


_RATIOS: Final = (
    _Ratio("tcp", "blackbox", "blackbox_exporter", 4.5, 5.5),
    _Ratio("tcp", "c", "the C loop", 0.65, 0.8),
    _Ratio("http", "blackbox", "blackbox_exporter", 4.5, 6.0),
    _Ratio("http", "c", "the C loop", 0.65, 0.8),
    _Ratio("icmp", "blackbox", "blackbox_exporter", 18.0, 30.0),
    _Ratio("icmp", "fping", "fping", 1.0, 1.5),
    _Ratio("dns", "blackbox", "blackbox_exporter", 8.0, 12.0),
    _Ratio("tls", "blackbox", "blackbox_exporter", 0.7, 0.85),
)
_CORE: Final = (0.45, 0.30)
_AGENT_CORE: Final = (0.60, 0.60)
"""With scheduling and heartbeats; there is no goal beyond it."""
_KEPT_UP: Final = (0.99, 0.99)
"""Of the rate that was asked for: a second's probes that end just after it are no more than a per cent of ten seconds'."""


def middle(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """(median, lowest, highest) of probes per CPU-second."""
    return _spread([sample.rate for sample in samples])


def ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[float]:
    """Ours over theirs, round by round: both saw the same moment of the machine."""
    return [mine.rate / other.rate for mine, other in zip(ours, theirs, strict=False) if other.rate]


def idle(samples: Sequence[Sample]) -> float | None:
    """The share of its core a side had in the middle, where that is too little to judge it by."""
    share = statistics.median(sample.busy for sample in samples)
    return share if share < BUSY else None


def is_disturbed(found: Results) -> bool:
    """Whether most sides had less of their core than they need: the machine had other things to do."""
    sides = [samples for seen in found.rates.values() for samples in seen.values()]
    return 2 * sum(idle(samples) is not None for samples in sides) > len(sides)


def verdicts(found: Results) -> tuple[Verdict, ...]:
    """All rows in the order of the page; one that was not measured says why."""
    return (*_rate_rows(found), *_pace_rows(found), *_lab_rows(found), *_memory_rows(found))


def _rate_rows(found: Results) -> Iterator[Verdict]:
    for want in _RATIOS:
        sides = found.rates.get(want.kind, {})
        values = ratios(sides.get("engine", ()), sides.get(want.peer, ()))
        lack = found.lacks.get(f"{want.kind} by {want.peer}") or found.lacks.get(f"{want.kind} by engine", "")
        yield _row(want.kind, f"against {want.name}", "×", values, (want.blocking, want.goal), lack, more=True)


def _pace_rows(found: Results) -> Iterator[Verdict]:
    """What fell behind its rate is not cheap: a share of a core is of the whole rate, at what each probe that ended took."""
    lack, paces = found.lacks.get("paced", ""), found.paced
    late = [pace.late_p99_us / 1_000 for pace in paces]
    yield _row(
        "paced", "share of a core", "", [_share(each.core, each.ended, each.rate) for each in paces], _CORE, lack
    )
    yield _row("paced", "start lateness, p99", "ms", late, (1.5, 1.5), lack)
    yield _row("paced", "kept up with", "", [pace.ended / pace.rate for pace in paces], _KEPT_UP, lack, more=True)
    lack, agents = found.lacks.get("agent", ""), [found.agent] if found.agent else []
    shares = [_share(each.core, each.ended, each.lines) for each in agents]
    yield _row("agent", "share of a core", "", shares, _AGENT_CORE, lack)
    yield _row("agent", "kept up with", "", [each.ended / each.lines for each in agents], _KEPT_UP, lack, more=True)


def _share(core: float, ended: float, wanted: float) -> float:
    return core * wanted / ended if ended else math.inf


def _lab_rows(found: Results) -> Iterator[Verdict]:
    """The worst case of each row is the row: it holds at every rate."""
    lack = found.lacks.get("rtt", "")
    stalls: tuple[tuple[str, Callable[[Offset], bool]], ...] = (
        ("", lambda offset: not offset.stall_ms),
        (", stalled 40 ms each second", lambda offset: bool(offset.stall_ms)),
    )
    for words, belongs in stalls:
        cases = [offset for offset in found.lab if belongs(offset) and offset.count]
        yield _row("rtt", f"error p50{words}", "µs", _worst(cases, lambda each: each.p50_us), (20.0, 10.0), lack)
        yield _row("rtt", f"error p99{words}", "µs", _worst(cases, lambda each: each.p99_us), (300.0, 150.0), lack)


def _worst(cases: Sequence[Offset], figure: Callable[[Offset], float]) -> list[float]:
    """By case the median over rounds; of the cases the worst one's rounds."""
    by_case: dict[tuple[str, int], list[float]] = {}
    for case in cases:
        by_case.setdefault((case.kind, case.rate), []).append(figure(case))
    return max(by_case.values(), key=statistics.median, default=[])


def _memory_rows(found: Results) -> Iterator[Verdict]:
    lack = found.lacks.get("memory", "")
    bytes_ = [found.memory.window] if found.memory else []
    yield _row("memory", "a line's window and counters", "B", bytes_, (2_000.0, 1_200.0), lack)
    drift = found.drift
    growth = [drift.late_kb / drift.early_kb - 1] if drift and drift.early_kb else []
    yield _row("memory", "growth of a long run", "", growth, (SLACK, SLACK), lack)


def _row(  # noqa: PLR0917
    cell: str, what: str, unit: str, values: Iterable[float], bounds: tuple[float, float], lack: str, *, more: bool = False
) -> Verdict:  # fmt: skip
    known = list(values)
    value, low, high = _spread(known) if known else (None, None, None)
    return Verdict(
        cell=cell, what=what, unit=unit, value=value, low=low, high=high, blocking=bounds[0], goal=bounds[1],
        is_more_better=more, lack="" if known else lack or NOT_ASKED,
    )  # fmt: skip


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)
