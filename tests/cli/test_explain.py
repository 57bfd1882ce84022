"""Three lines trip for three reasons; each explanation is held, number by number, against the journal's own records."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from reachline.cli.main import main
from reachline.core.ledger import Ledger
from reachline.core.rules import Rules
from reachline.doors import reach
from reachline.model import CENSORED_US, Change, Counts, Kind, Line, LineId, Reading, Version
from reachline.store.journal import Journal
from reachline.store.records import Bodies, Reported, Ticked
from reachline.store.segment import Meta, Segment, listed
from reachline.testing import builders

TICK_MS = 10_000
VANTAGES = builders.vantages(3)
DOCUMENT = "clusters: {payments: {lines: ['https://a.example/', 'https://b.example/', 'https://c.example/', 'https://d.example/']}}"
LINES: tuple[Line, ...] = builders.lines(*"abcdefg")
"""So many that three of them may be open at once."""
A, B, C, D, *OTHERS = (line.id for line in LINES)

WELL = builders.reading(Kind.HTTP, ok=200)
CUT_OFF = builders.reading(Kind.TCP, ok=195)._replace(
    counts=Counts(ok=195, unreachable=3), rounds_ok=0, recent=5, recent_bad=0
)
"""The newest three rounds failed; the window before them is still good."""
SILENT = builders.reading(Kind.HTTP, ok=180, late=20)._replace(p95_us=CENSORED_US, jitter_us=None)
BROKEN = builders.reading(Kind.HTTP, ok=23, errors=17, recent_bad=3)


class Incident(NamedTuple):
    """A journal in which lines a, b and c trip at 60 s, and the others stay well; how it was written."""

    directory: Path
    rules: Rules
    meta: Meta
    changes: dict[LineId, list[Change]]
    readings: dict[tuple[LineId, int], dict[str, Reading]]
    """What each vantage said of a line in the tick that ended then, read back from the records."""


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Incident:
    directory = tmp_path_factory.mktemp("incident") / "journal"
    rules = reach.rules(reach.read(DOCUMENT, name="test"), "payments")
    journal = Journal.open(directory)
    ledger = Ledger(
        builders.scope(), LINES, rules, vantages=frozenset(VANTAGES), version=Version(journal.epoch, 0), now_ms=0
    )
    journal.follow({ledger.scope: ledger})
    for number in range(1, 8):
        bad = number >= 4
        said = ((A, CUT_OFF), (B, SILENT), (C, BROKEN)) if bad else ((A, WELL), (B, WELL), (C, WELL))
        for vantage in VANTAGES:
            record = Reported(
                scope=ledger.scope,
                at_ms=number * TICK_MS - 100,
                vantage=vantage,
                readings=(*said, *((line, WELL) for line in (D, *OTHERS))),
            )
            journal.append(record)
            ledger.report(vantage, record.readings, now_ms=record.at_ms)
        closed = ledger.close(number * TICK_MS)
        journal.append(Ticked(scope=ledger.scope, at_ms=number * TICK_MS, changes=closed.changes, digest=closed.digest))
    journal.close()
    return read(directory, rules)


def read(directory: Path, rules: Rules) -> Incident:
    """The incident as the records have it, and nothing but they."""
    (path,) = listed(directory)
    bodies, found = Bodies(), Incident(directory, rules, _meta(path), {}, {})
    with Segment(path) as segment:
        for stored in segment.records():
            record = bodies.read(stored.kind, stored.scope, stored.at_ms, stored.body)
            if isinstance(record, Ticked):
                for change in record.changes:
                    found.changes.setdefault(change.line, []).append(change)
            elif isinstance(record, Reported):
                for line, reading in record.readings:
                    found.readings.setdefault((line, record.at_ms + 100), {})[record.vantage] = reading
    return found


def _meta(path: Path) -> Meta:
    with Segment(path) as segment:
        return segment.meta


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["explain", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], incident: Incident, line: LineId, *more: str) -> dict[str, object]:
    code, out, err = explained(capsys, line, "--journal", str(incident.directory), "-o", "json", *more)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def clock(incident: Incident, at_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(incident.meta.unix(at_ms)))


def counts_of(reading: Reading, metric: str) -> tuple[int, int]:
    """Numerator and denominator of a metric, from the evidence itself."""
    counts = reading.counts
    return {
        "connect": (reading.rounds_ok, reading.rounds),
        "timeout": (counts.late, counts.attempts),
        "errors": (counts.attempts - counts.ok - counts.late, counts.attempts),
    }[metric]


@pytest.mark.parametrize(
    ("line", "metric", "kind", "sentence"),
    [
        (A, "connect", "tcp", "TCP connecting: 0 of the last 3 rounds ok (fails at 0)"),
        (B, "timeout", "http", "HTTP timeouts: 20 of 200 (10 %), limit 5 %"),
        (C, "errors", "http", "HTTP errors: 17 of 40 (43 %), limit 10 %"),
    ],
)
def test_three_trips_name_three_rules_with_counts_denominators_and_the_next_deadline_to_the_second(
    capsys: pytest.CaptureFixture[str], incident: Incident, line: LineId, metric: str, kind: str, sentence: str
) -> None:
    told = document(capsys, incident, line)
    text = str(told["text"])

    (trip,) = [change for change in incident.changes[line] if change.after.gate.name == "OPEN"]
    facts = dict(trip.facts)
    evidence = incident.readings[line, trip.at_ms]
    limit = next(limit.failed_enter for limit in incident.rules.limits if limit.metric == metric)
    assert told["rule"] == trip.rule == f"vote.{metric}.failed"
    assert told["facts"] == facts
    assert told["votes"] == [
        {
            "vantage": vantage,
            "zone": "failed",
            "metric": f"{kind}.{metric}",
            "numerator": counts_of(evidence[vantage], metric)[0],
            "denominator": counts_of(evidence[vantage], metric)[1],
            "limit": limit,
            "text": sentence,
        }
        for vantage in VANTAGES
    ]
    assert (told["breaker"], told["weight"], told["next"]) == ("open", 0, incident.meta.unix(facts["until_ms"]))
    assert f"{', '.join(VANTAGES)}: failed, {sentence}" in text
    assert f"Why    {trip.rule} at {clock(incident, trip.at_ms)}:" in text
    assert f"{facts['down_ticks']} ticks in a row ({facts['failed_patience']} are asked)" in text
    left = round((facts["until_ms"] - 7 * TICK_MS) / 1_000)
    assert f"Next   {clock(incident, facts['until_ms'])} (in {left} s): the cooldown" in text
    assert "a trial with 5 % of its weight begins" in text
    assert "3 of 3 vantages are fresh (2 needed): failed 3, degraded 0, healthy 0 of 3 votes" in text


def test_what_came_before_is_told_newest_first_with_weights(
    capsys: pytest.CaptureFixture[str], incident: Incident
) -> None:
    told = document(capsys, incident, B)

    before = [change for change in incident.changes[B] if change.after.gate.name != "OPEN"]
    assert told["earlier"] == [
        {"at": incident.meta.unix(change.at_ms), "rule": change.rule, "move": move}
        for change, move in zip(
            reversed(before), ["healthy → degraded, weight 100 → 87", "unknown → healthy, weight 100"], strict=True
        )
    ]


def test_a_line_that_is_well_says_so(capsys: pytest.CaptureFixture[str], incident: Incident) -> None:
    code, out, _ = explained(capsys, D, "--journal", str(incident.directory))

    assert code == 0
    assert out.startswith("payments/d is healthy; weight 100 of 100, score 100, since ")
    assert "Next   nothing is due." in out
    assert "3 failed ticks in a row open it (0 so far)" in out


def test_any_moment_of_the_past_can_be_asked_for(capsys: pytest.CaptureFixture[str], incident: Incident) -> None:
    then = [
        document(capsys, incident, A, "--at", f"{incident.meta.unix(at_ms):.3f}")
        for at_ms in (3 * TICK_MS + 500, 5 * TICK_MS + 500, 6 * TICK_MS + 500)
    ]

    assert [(one["health"], one["breaker"], one["weight"]) for one in then] == [
        ("healthy", "closed", 100),
        ("degraded", "closed", 87),
        ("unhealthy", "open", 0),
    ]
    assert [one["rule"] for one in then] == ["judge.recovered", "vote.connect.degraded", "vote.connect.failed"]


def test_a_moment_long_after_the_last_record_is_told_as_such(
    capsys: pytest.CaptureFixture[str], incident: Incident
) -> None:
    told = document(capsys, incident, A, "--at", f"{incident.meta.unix(3_600_000):.0f}")

    assert told["ended"] == incident.meta.unix(7 * TICK_MS)
    assert f"The journal ends at {clock(incident, 7 * TICK_MS)}: this is how the line stood then." in str(told["text"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("payments/aa",), "no line payments/aa then; did you mean payments/a?"),
        (("payments/a", "--at", "yesterday"), "--at: is not a moment; write 14:03:22"),
        (("payments/a", "--at", "25:00"), "--at: is not a moment"),
        (("payments/a", "--at", "-99999999999999d"), "--at: is no moment that a journal can hold; from 1970 to 2242"),
        (("payments/a", "--at", f"-{'9' * 400}d"), "--at: is no moment"),
        (("payments/a", "--at", "0001-01-01"), "--at: is no"),
        (("payments/a", "--at", "2500-01-01"), "--at: is no moment"),
        (("payments/a", "--at", "99999999999"), "--at: is no moment"),
        (("payments/a", "--at", "-300d"), "the journal begins at"),
        (("payments/a", "--center", "http://127.0.0.1:1"), "--journal and --center exclude each other"),
    ],
)
def test_a_wrong_question_gets_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], incident: Incident, arguments: tuple[str, ...], complaint: str
) -> None:
    code, out, err = explained(capsys, *arguments, "--journal", str(incident.directory))

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


@contextmanager
def center(status: int, answer: object, *, token: str = "") -> Iterator[tuple[str, list[str]]]:
    """Something that answers like a center, to those with its token if it has one, and what it was asked."""
    asked: list[str] = []
    refusal = {"error": {"code": "unauthorized", "message": "this center asks for its token", "hint": ""}}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            is_known = not token or self.headers["Authorization"] == f"Bearer {token}"
            body = json.dumps(answer if is_known else refusal).encode()
            self.send_response(status if is_known else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the library names it)
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_running_center_is_asked_over_http(capsys: pytest.CaptureFixture[str]) -> None:
    with center(200, {"text": "payments/a@az 1 is healthy"}) as (url, asked):
        code, out, _ = explained(capsys, "payments/a@az 1", "--center", f"{url}/", "--at", "1790000000")

    assert (code, out) == (0, "payments/a@az 1 is healthy\n")
    assert asked == ["/api/v1/explain/payments/a@az%201?at=1790000000.0"]


def test_the_centers_own_refusal_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    with center(404, {"error": {"code": "not_found", "message": "no line x/y", "hint": "did you mean x/z?"}}) as (
        url,
        _,
    ):
        code, _, err = explained(capsys, "x/y", "--center", url)

    assert code == 2
    assert "no line x/y; did you mean x/z?" in err


def test_a_center_with_a_token_is_asked_with_the_one_of_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with center(200, {"text": "x/y is healthy"}, token="t0ken") as (url, _):
        monkeypatch.setenv("REACHLINE_CENTER", url)
        without = explained(capsys, "x/y")
        monkeypatch.setenv("REACHLINE_TOKEN", "t0ken")

        assert explained(capsys, "x/y") == (0, "x/y is healthy\n", "")

    assert without == (1, "", "reachline: this center asks for its token; set REACHLINE_TOKEN\n")


def test_a_journal_is_read_also_where_the_environment_names_a_center(
    capsys: pytest.CaptureFixture[str], incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REACHLINE_CENTER", "http://127.0.0.1:1")

    code, out, _ = explained(capsys, D, "--journal", str(incident.directory))

    assert (code, out.partition(";")[0]) == (0, "payments/d is healthy")


def test_no_center_there_points_to_the_journal(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = explained(capsys, "x/y", "--center", "http://127.0.0.1:1")

    assert (code, err.count("\n")) == (1, 1)
    assert "no center answers" in err
    assert "--journal DIRECTORY" in err
