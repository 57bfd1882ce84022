"""`/metrics`: per-line series by our own writer (labels built once a line), process metrics by prometheus-client.

A value that is not known is absent, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest

from reachline.center.api.desk import Desk
from reachline.center.board import Board
from reachline.model import Gate, Health, Line, LineId, Standing
from reachline.wire.view import GATES, HEALTHS, Figures

__all__ = ["exposition"]

Sample = tuple[str, float]
"""Labels in braces (or empty text) and a value."""

_PROCESS: Final = CollectorRegistry()
for _collector in (ProcessCollector, PlatformCollector, GCCollector):
    _collector(registry=_PROCESS)

_HEALTHS: Final = tuple(health for health in Health if health is not Health.TIMEOUT)


class _Counted(NamedTuple):
    """A counter kept in `Board.counts`: its help, its label, and the label's values that exist from the start."""

    help: str
    label: str = ""
    values: tuple[str, ...] = ("",)


_COUNTERS: Final[Mapping[str, _Counted]] = {
    "heartbeats": _Counted("Heartbeat parts received from agents.", "arrival", ("new", "duplicate", "stranger")),
    "heartbeats_replayed": _Counted("Heartbeat parts from an agent's backlog: shown, never judged."),
    "frames_refused": _Counted("Streams ended for what the peer sent.", "reason", ("hello", "malformed")),
    "reports_unknown": _Counted("Reports on lines that the document does not have, or not for that agent."),
    "reports_foreign": _Counted(
        "Heartbeats of foreign agents over HTTP.", "answer", ("taken", "unknown", "ambiguous", "attached")
    ),
    "outcomes": _Counted("Calls that clients reported.", "result", ("ok", "failed", "late", "errors")),
    "outcomes_unknown": _Counted("Reported rows on lines that the document does not have."),
    "decisions": _Counted("Changes of lines that were published."),
    "published_ahead": _Counted("Ticks published before the journal had them, for it took too long or refused."),
    "reloads": _Counted("Changes of the document on disk.", "result", ("applied", "refused")),
}


def exposition(desk: Desk) -> bytes:
    """Everything as Prometheus text."""
    parts = (*_of_lines(desk.board), *_of_center(desk), *_counters(desk.board.counts))
    return "".join(parts).encode() + generate_latest(_PROCESS)


def _family(name: str, kind: str, help_: str, samples: Iterable[Sample]) -> str:
    """One metric with its samples; nothing where there are none."""
    full = f"reachline_{name}"
    rows = "".join([f"{full}{labels} {value!r}\n" for labels, value in samples])
    return f"# HELP {full} {help_}\n# TYPE {full} {kind}\n{rows}" if rows else ""


class _Row(NamedTuple):
    labels: str
    """Without the closing brace, so that a state can follow."""
    standing: Standing
    figures: Figures


_LABELS: dict[LineId, tuple[Line, str]] = {}


def _labels(line: Line) -> str:
    kept = _LABELS.get(line.id)
    if kept is None or kept[0] is not line:
        pairs = {"line": line.id, "cluster": line.scope.cluster, "provider": line.provider}
        text = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs.items() if value)
        kept = _LABELS[line.id] = (line, f"{{{text}")
    return kept[1]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _of_lines(board: Board) -> Iterator[str]:
    rows = list(_rows(board))
    whole = [(f"{row.labels}}}", row) for row in rows]
    yield _family(
        "line_weight",
        "gauge",
        "Published weight of a line, in points; 0 while its breaker is open.",
        [(labels, row.standing.weight) for labels, row in whole],
    )
    yield _family(
        "line_score", "gauge", "Score of a line, 0 to 100.", [(labels, row.standing.score) for labels, row in whole]
    )
    yield _family("line_state", "gauge", "Health of a line: 1 for the state it is in.", _one_of(rows, _HEALTHS))
    yield _family("line_breaker", "gauge", "Breaker of a line: 1 for the state it is in.", _one_of(rows, tuple(Gate)))
    yield _family(
        "line_blind",
        "gauge",
        "1 while no fresh vantage sees the line.",
        [(labels, int(row.standing.blind)) for labels, row in whole],
    )
    for name, help_ in _FIGURES.items():
        field = name.partition("_")[0]
        known = [(labels, getattr(row.figures, field)) for labels, row in whole]
        yield _family(f"line_{name}", "gauge", help_, [(labels, value) for labels, value in known if value is not None])


_FIGURES: Final = {
    "p50_seconds": "Median round trip of answered attempts, pooled over fresh vantages.",
    "p95_seconds": "95th percentile of the round trip of answered attempts, pooled over fresh vantages.",
    "ewma_seconds": "Smoothed round trip of the median vantage.",
    "loss_ratio": "Lost packets per packet sent, of the worst probe kind.",
    "timeout_ratio": "Attempts not answered in time, of the worst probe kind.",
}


def _rows(board: Board) -> Iterator[_Row]:
    now_ms = board.clock()
    for cell in board.cells():
        cluster = cell.value
        for standing in cluster.snapshot.standings:
            figures = board.readings.figures(standing.line, now_ms, fresh_ms=cluster.rules.quorum.fresh_ms)
            yield _Row(_labels(cluster.lines[standing.line]), standing, figures)


def _one_of(rows: Iterable[_Row], states: tuple[Health, ...] | tuple[Gate, ...]) -> Iterator[Sample]:
    for row in rows:
        for state in states:
            name = HEALTHS[state] if isinstance(state, Health) else GATES[state]
            yield f'{row.labels},state="{name}"}}', int(state in (row.standing.health, row.standing.gate))


def _of_center(desk: Desk) -> Iterator[str]:
    board = desk.board
    states = Counter(row["state"] for row in board.roster.rows(board.clock()))
    agents = [(f'{{state="{state}"}}', float(states[state])) for state in ("attached", "silent", "expected")]
    yield _family("agents", "gauge", "Agents by state.", agents)
    yield _family(
        "config_last_reload_successful",
        "gauge",
        "1 while the document on disk is the one in force.",
        [("", int(board.config.is_current))],
    )
    yield _family(
        "config_last_reload_success_timestamp_seconds",
        "gauge",
        "When the document in force was read.",
        [("", board.config.loaded)],
    )
    yield _family("snapshot_epoch", "gauge", "Epoch of the published versions.", [("", board.version.epoch)])
    yield _family("snapshot_age_seconds", "gauge", "Seconds since the newest judgement.", [("", board.age())])
    yield _family("live_subscribers", "gauge", "Readers of the live stream.", [("", len(desk.stream.readers))])
    yield _family(
        "live_resyncs_total",
        "counter",
        "Times a slow reader was dropped and resynchronised.",
        [("", desk.stream.readers.dropped)],
    )
    yield _family(
        "journal_writable", "gauge", "1 while the journal takes records.", [("", int(not board.journal_fault))]
    )
    for name, value in desk.journal_figures().items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield _family(f"journal_{name}", kind, f"Journal: {name.replace('_', ' ')}.", [("", value)])


def _counters(counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    for name, counted in _COUNTERS.items():
        labels = {value: f'{{{counted.label}="{value}"}}' if counted.label else "" for value in counted.values}
        yield _family(
            f"{name}_total",
            "counter",
            counted.help,
            [(text, counts.get((name, value), 0)) for value, text in labels.items()],
        )
