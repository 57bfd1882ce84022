"""`/metrics`: per-line series by our own writer (labels built once a line), process metrics by prometheus-client.

A value that is not known is absent, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest

from reachline.center.api.desk import Desk
from reachline.center.board import Board
from reachline.center.condition import FRESH_MS
from reachline.center.incidents import families
from reachline.core import steer
from reachline.core.trust import FULL
from reachline.model import Gate, Health, Line, LineId, Standing
from reachline.wire.frame import Pacing
from reachline.wire.view import GATES, HEALTHS, Figures

__all__ = ["Exposition", "Labels", "escaped", "family"]

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
    "frames_refused": _Counted("Streams ended for what the peer sent.", "reason", ("hello", "identity", "malformed")),
    "requests_refused": _Counted(
        "HTTP requests answered with an error.", "status", ("400", "401", "403", "404", "409", "413", "500", "503")
    ),
    "reports_unknown": _Counted("Reports on lines that the document does not have, or not for that agent."),
    "reports_foreign": _Counted(
        "Heartbeats of foreign agents over HTTP.", "answer", ("taken", "unknown", "ambiguous", "attached")
    ),
    "outcomes": _Counted("Calls that clients reported.", "result", ("ok", "failed", "late", "errors", "shed")),
    "outcomes_unknown": _Counted("Reported rows on lines that the document does not have."),
    "decisions": _Counted("Changes of lines that were published."),
    "plans": _Counted(
        "Times a cluster's part in the plan across regions changed, by why.",
        "reason",
        (steer.SHED, steer.SPENT, steer.FULL, "over"),
    ),
    "published_ahead": _Counted("Ticks published before the journal had them, for it took too long or refused."),
    "xds_requests": _Counted("Messages of clients that follow by xDS.", "kind", ("asked", "ack", "nack", "stale")),
    "xds_answers": _Counted(
        "Answers to them, by what they are of.",
        "type",
        ("Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration"),
    ),
    "xds_refused": _Counted("Their streams that were refused or ended.", "reason", ("full", "malformed", "token")),
    "reloads": _Counted("Changes of the document on disk.", "result", ("applied", "refused")),
}


_JOURNAL: Final[Mapping[str, tuple[str, str, str]]] = {
    "lost_records_total": ("lost", "counter", "Records that a refusing disk cost since the center started."),
    "committed_records": ("committed", "gauge", "Number of the newest record on disk; it goes on over restarts."),
    "waiting_records": ("waiting", "gauge", "Records on their way to the disk."),
    "oldest_waiting_seconds": ("age", "gauge", "How long the oldest of them waits."),
    "hung_total": ("hung", "counter", "Times the disk did not answer in time."),
    "segments": ("segments", "gauge", "Files the journal consists of."),
    "damaged_segments": ("damaged", "gauge", "Those that could not be read when the center started."),
    "bytes": ("bytes", "gauge", "Size of all of them."),
}
"""By metric: the journal's own figure, and how it is shown. Its alarm is `journal_writable`."""


class Labels:
    """Each line's labels, written once. Kept of the lines asked for last alone, so that those that left are forgotten."""

    def __init__(self) -> None:
        self._kept: dict[LineId, tuple[Line, str]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, lines: Iterable[Line]) -> list[str]:
        """In the order of the lines, without the closing brace, so that a state can follow."""
        before, self._kept = self._kept, {}
        for line in lines:
            found = before.get(line.id)
            self._kept[line.id] = found if found and found[0] is line else (line, _labels(line))
        return [labels for _, labels in self._kept.values()]


class Exposition:
    """What `/metrics` says. Its labels are written by whoever asks, on the center's loop."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._labels = Labels()

    def text(self) -> bytes:
        """Everything as Prometheus text."""
        board = self._desk.board
        found = list(_standings(board))
        labels = self._labels.of(line for line, _ in found)
        rows = [row._replace(labels=text) for text, (_, row) in zip(labels, found, strict=True)]
        parts = (
            *_of_lines(rows),
            *_of_paths(board, rows),
            *_of_center(self._desk),
            *_of_planes(self._desk),
            *_counters(board.counts),
            *(family(*each) for each in families(board.log, self._desk.orders.counts())),
        )
        return "".join(parts).encode() + generate_latest(_PROCESS)


def family(name: str, kind: str, help_: str, samples: Iterable[Sample]) -> str:
    """One metric with its samples; nothing where there are none."""
    full = f"reachline_{name}"
    rows = "".join([f"{full}{labels} {value!r}\n" for labels, value in samples])
    return f"# HELP {full} {help_}\n# TYPE {full} {kind}\n{rows}" if rows else ""


class _Row(NamedTuple):
    labels: str
    """Without the closing brace."""
    standing: Standing
    figures: Figures
    fresh_ms: int
    """How old what a vantage said may be and still speak of now."""


def _labels(line: Line) -> str:
    pairs = {"line": line.id, "cluster": line.scope.cluster, "provider": line.provider}
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in pairs.items() if value)


def escaped(value: str) -> str:
    """A label's value as the text format wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _of_lines(rows: Sequence[_Row]) -> Iterator[str]:
    whole = [(f"{row.labels}}}", row) for row in rows]
    yield family(
        "line_weight",
        "gauge",
        "Published weight of a line, in points; 0 while its breaker is open.",
        [(labels, row.standing.weight) for labels, row in whole],
    )
    yield family(
        "line_score", "gauge", "Score of a line, 0 to 100.", [(labels, row.standing.score) for labels, row in whole]
    )
    yield family("line_state", "gauge", "Health of a line: 1 for the state it is in.", _one_of(rows, _HEALTHS))
    yield family("line_breaker", "gauge", "Breaker of a line: 1 for the state it is in.", _one_of(rows, tuple(Gate)))
    yield family(
        "line_blind",
        "gauge",
        "1 while no fresh vantage sees the line.",
        [(labels, int(row.standing.blind)) for labels, row in whole],
    )
    for name, help_ in _FIGURES.items():
        field = name.partition("_")[0]
        known = [(labels, getattr(row.figures, field)) for labels, row in whole]
        yield family(f"line_{name}", "gauge", help_, [(labels, value) for labels, value in known if value is not None])


_FIGURES: Final = {
    "p50_seconds": "Median round trip of answered attempts, pooled over fresh vantages.",
    "p95_seconds": "95th percentile of the round trip of answered attempts, pooled over fresh vantages.",
    "ewma_seconds": "Smoothed round trip of the median vantage.",
    "loss_ratio": "Lost packets per packet sent, of the worst probe kind.",
    "timeout_ratio": "Attempts not answered in time, of the worst probe kind.",
}


def _standings(board: Board) -> Iterator[tuple[Line, _Row]]:
    """Every line with its row, as yet without labels."""
    now_ms = board.clock()
    for cell in board.cells():
        cluster = cell.value
        fresh_ms = cluster.rules.quorum.fresh_ms
        for standing in cluster.snapshot.standings:
            figures = board.readings.figures(standing.line, now_ms, fresh_ms=fresh_ms)
            yield cluster.lines[standing.line], _Row("", standing, figures, max(fresh_ms, FRESH_MS))


def _one_of(rows: Iterable[_Row], states: tuple[Health, ...] | tuple[Gate, ...]) -> Iterator[Sample]:
    for row in rows:
        for state in states:
            name = HEALTHS[state] if isinstance(state, Health) else GATES[state]
            yield f'{row.labels},state="{name}"}}', int(state in (row.standing.health, row.standing.gate))


def _of_center(desk: Desk) -> Iterator[str]:
    board = desk.board
    states = Counter(row["state"] for row in board.roster.rows(board.clock()))
    agents = [(f'{{state="{state}"}}', float(states[state])) for state in ("attached", "silent", "expected")]
    yield family("agents", "gauge", "Agents by state.", agents)
    yield from _of_hosts(board)
    yield family(
        "config_last_reload_successful",
        "gauge",
        "1 while the document on disk is the one in force.",
        [("", int(board.config.is_current))],
    )
    yield family(
        "config_last_reload_success_timestamp_seconds",
        "gauge",
        "When the document in force was read.",
        [("", board.config.loaded)],
    )
    yield family("snapshot_epoch", "gauge", "Epoch of the published versions.", [("", board.version.epoch)])
    yield family("snapshot_age_seconds", "gauge", "Seconds since the newest judgement.", [("", board.age())])
    yield family("live_subscribers", "gauge", "Readers of the live stream.", [("", len(desk.stream.readers))])
    followers = [(f'{{client="{kind}"}}', float(count)) for kind, count in sorted(desk.followers().items())]
    yield family("xds_streams", "gauge", "Streams of clients that follow by xDS.", followers)
    yield family(
        "live_resyncs_total",
        "counter",
        "Times a slow reader was dropped and resynchronised.",
        [("", desk.stream.readers.dropped)],
    )
    yield family(
        "journal_writable", "gauge", "1 while the journal takes records.", [("", int(not board.journal_fault))]
    )
    figures = desk.journal_figures()
    for name, (known, kind, help_) in _JOURNAL.items():
        if known in figures:
            yield family(f"journal_{name}", kind, help_, [("", figures[known])])


def _of_planes(desk: Desk) -> Iterator[str]:
    """What data planes sent, by protocol: what counted, and why the rest did not."""
    figures = desk.evidence.figures()

    def samples(*names: str) -> list[Sample]:
        return [(f'{{by="{by}",result="{name}"}}', float(n)) for (name, by), n in figures.items() if name in names]

    streams = [(f'{{by="{by}"}}', float(count)) for (name, by), count in figures.items() if name == "streams"]
    yield family("evidence_streams", "gauge", "Streams of data planes that send evidence.", streams)
    yield family(
        "evidence_messages_total",
        "counter",
        "Messages of data planes: all that came, and those dropped unread for there were too many.",
        samples("messages", "shed"),
    )
    yield family(
        "evidence_total",
        "counter",
        "Calls and verdicts that data planes told of: those that are evidence, and why others are not.",
        samples("counted", "told_better", "skipped", "unknown", "refused"),
    )


def _of_hosts(board: Board) -> Iterator[str]:
    """What agents say of themselves, as far as it is so now."""
    now_ms = board.clock()
    here = [agent for agent in board.roster.all() if agent.session]
    doubt = [(f'{{agent="{escaped(agent.id)}"}}', float(agent.doubt)) for agent in here]
    yield family(
        "agent_doubt", "gauge", "How far an agent doubts itself, 0 to 7; its vote counts 1 / (1 + this).", doubt
    )
    trust = [(f'{{agent="{escaped(agent.id)}"}}', min(agent.trusts.values(), default=FULL) / FULL) for agent in here]
    yield family(
        "agent_trust", "gauge", "How much an agent's word counts, 0.05 to 1; 0.1 and less is quarantine.", trust
    )
    vitals = [
        (f'{{agent="{escaped(agent.id)}",name="{one.name}",where="{escaped(one.where)}"}}', float(one.value))
        for agent in here
        for one in agent.condition.fresh(now_ms)
    ]
    yield from _of_pacing([(agent.id, agent.pacing) for agent in here if agent.pacing is not None])
    yield family("agent_vital", "gauge", "What is out of the ordinary on an agent's host now, by name.", vitals)


def _of_pacing(here: Sequence[tuple[str, Pacing]]) -> Iterator[str]:
    """How agents keep their limits; what is left out is their doing, not a line's."""
    known = [(f'{{agent="{escaped(id_)}"', pacing) for id_, pacing in here]
    rates = [(f"{label}}}", pacing.rate_milli / 1_000) for label, pacing in known]
    yield family("agent_rate", "gauge", "Attempts a second that an agent's lines ask for now, as stretched.", rates)
    stretched = [(f"{label}}}", pacing.stretch_milli / 1_000) for label, pacing in known]
    yield family("agent_stretch_ratio", "gauge", "By how much an agent stretches all intervals; 1: not.", stretched)
    skipped = [
        (f'{label},cause="{cause}"}}', float(rounds))
        for label, pacing in known
        for cause, rounds in sorted(pacing.skipped.items())
    ]
    yield family("agent_rounds_skipped_total", "counter", "Rounds an agent left out, by cause.", skipped)
    shed = [(f"{label}}}", float(pacing.shed)) for label, pacing in known]
    yield family("agent_attempts_shed_total", "counter", "Attempts left out, for too many were under way.", shed)


def _of_paths(board: Board, rows: Sequence[_Row]) -> Iterator[str]:
    """Of lines whose rounds were left out, and of those that show a dead path; nobody needs the others' zeros."""
    skipped = [(f"{row.labels}}}", float(board.readings.skipped(row.standing.line))) for row in rows]
    help_ = "Rounds that agents left out on a line, for their own limits or lateness."
    yield family("line_rounds_skipped_total", "counter", help_, [sample for sample in skipped if sample[1]])
    now_ms = board.clock()
    found = [
        (f'{row.labels},vantage="{escaped(vantage)}"}}', ports.dead / ports.tried)
        for row in rows
        for (vantage, _), seen in board.readings.seen(row.standing.line).items()
        if (ports := seen.detail.ports) is not None
        and ports.tried
        and not seen.replayed
        and now_ms - seen.at_ms <= row.fresh_ms
    ]
    yield family("line_dead_ports_ratio", "gauge", "Source ports that lead nowhere, of those surveyed.", found)


def _counters(counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    for name, counted in _COUNTERS.items():
        labels = {value: f'{{{counted.label}="{value}"}}' if counted.label else "" for value in counted.values}
        yield family(
            f"{name}_total",
            "counter",
            counted.help,
            [(text, counts.get((name, value), 0)) for value, text in labels.items()],
        )
