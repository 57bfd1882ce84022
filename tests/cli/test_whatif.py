"""`reachline what-if`: the difference for people and for scripts, and one line for what cannot be judged."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from reachline.cli.main import main
from reachline.testing.past import dead, record

LINES = "lines: {a: 'tcp://a.test:443', b: 'tcp://b.test:443', c: 'tcp://c.test:443'}"
DOCUMENT = f"clusters: {{payments: {{{LINES}}}}}\nagents: {{v1: {{}}, v2: {{}}, v3: {{}}}}\n"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Seven minutes that ended an hour ago, in which a line was dead for one of them."""
    return record(tmp_path / "journal", dead(10, 15), unix=round(time.time()) - 3_600 - 400)


def told(journal: Path, text: str, capsys: pytest.CaptureFixture[str], *also: str) -> dict[str, Any]:
    file = journal.parent / "new.yaml"
    file.write_text(DOCUMENT + text)
    code = main(["what-if", "--settings", str(file), "--journal", str(journal), "-o", "json", *also])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    found: dict[str, Any] = json.loads(captured.out)
    return found


def test_the_same_settings_make_no_difference(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(journal, "", capsys)

    cluster = found["clusters"]["payments"]
    assert (cluster["moved_traffic_seconds"], cluster["warnings"]) == (0, [])
    assert all(line["recorded"] == line["proposed"] for line in cluster["lines"].values())
    assert found["to"] - found["from"] == pytest.approx(400, abs=11)


def test_less_patience_is_told_with_its_times_and_traffic(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = told(journal, "patience: {failed: 2, degraded: 1}", capsys)["clusters"]["payments"]

    (fault,) = cluster["faults"]
    (was,), (would,) = cluster["trips"]["recorded"], cluster["trips"]["proposed"]
    assert (fault["acted_after"], fault["would_act_after"]) == (30, 20)
    assert was["at"] - would["at"] == pytest.approx(10)
    assert cluster["moved_traffic_seconds"] > 3
    assert cluster["false_trips"] == {"recorded": 0, "proposed": 0}


def test_the_table_shows_what_differs_only(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = journal.parent / "new.yaml"
    file.write_text(DOCUMENT + "patience: {failed: 2, degraded: 1}")

    assert main(["what-if", "--settings", str(file), "--journal", str(journal)]) == 0

    text = capsys.readouterr().out
    assert "traffic-seconds go over other lines" in text
    assert "at fault, by hindsight" in text.lower()
    assert "30s" in text
    assert "20s" in text


def test_since_begins_there(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(journal, "", capsys, "--since", "62m")

    assert found["clusters"]["payments"]["faults"] == []
    assert found["to"] - found["from"] < 130


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since", "soon"], "is no duration"),
        (["--cluster", "orders"], "there is no such cluster"),
        (["--journal", "/nowhere"], "no journal segments here"),
        (["--since", "1m"], "holds nothing of the span"),
    ],
)
def test_what_cannot_be_judged_is_one_line_and_exit_2(
    journal: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    file = journal.parent / "new.yaml"
    file.write_text(DOCUMENT)
    place = [] if "--journal" in arguments else ["--journal", str(journal)]

    assert main(["what-if", "--settings", str(file), *place, *arguments]) == 2

    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_cluster_that_the_journal_does_not_know_is_named(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = journal.parent / "new.yaml"
    file.write_text(DOCUMENT.replace("{payments:", "{orders: {lines: ['tcp://o.test:1']}, payments:"))

    assert main(["what-if", "--settings", str(file), "--journal", str(journal), "-o", "json"]) == 0

    captured = capsys.readouterr()
    assert "orders: the journal holds nothing of it" in captured.err
    assert json.loads(captured.out)["unknown"] == ["orders"]
