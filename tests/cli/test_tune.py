"""`reachline tune`: finds what was put into the evidence, says why, proves it on what comes later, changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from reachline.cli.main import main
from reachline.cli.tune import SPACE, with_keys
from reachline.doors import reach
from reachline.model import LineId, Reading
from reachline.testing.past import dead, record

LINES = "lines: {a: 'tcp://a.test:443', b: 'tcp://b.test:443', c: 'tcp://c.test:443'}"
DOCUMENT = f"clusters: {{payments: {{{LINES}}}}}\nagents: {{v1: {{}}, v2: {{}}, v3: {{}}}}\n"

SHORT = ("--tries", "10", "--seed", "161")
"""A search that comes to patience among the first."""


def both(*said: Callable[[int, str, LineId], Reading]) -> Callable[[int, str, LineId], Reading]:
    """The worst of these, as a vantage says it."""
    return lambda number, vantage, line: max(
        (one(number, vantage, line) for one in said), key=lambda reading: reading.fresh_failed
    )


def tuned(directory: Path, text: str, capsys: pytest.CaptureFixture[str], *also: str, code: int = 0) -> dict[str, Any]:
    file = directory.parent / "now.yaml"
    file.write_text(DOCUMENT + text)
    before = file.read_text()

    assert main(["tune", "--settings", str(file), "--journal", str(directory), "-o", "json", *also]) == code

    assert file.read_text() == before
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def past(tmp_path: Path, *, later: bool) -> Path:
    """Two faults to search on; a third one later, if wanted."""
    faults = [dead(8, 12), dead(20, 24)] + [dead(41, 45, line=LineId("payments/b"))] * later
    return record(tmp_path / "journal", both(*faults), rounds=48, unix=round(time.time()) - 3_600)


def test_patience_that_is_too_long_is_found_with_its_reason_and_holds_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tuned(past(tmp_path, later=True), "patience: {degraded: 4, failed: 4}", capsys, *SHORT)

    assert found["proven"] is True
    assert found["searched"]["before"]["faults"] == 2
    assert found["searched"]["after"]["mttr"] < found["searched"]["before"]["mttr"]
    assert found["unseen"]["after"]["mttr"] < found["unseen"]["before"]["mttr"]
    for change in found["changes"].values():
        assert change["without"]["mttr"] > found["searched"]["after"]["mttr"]


def test_processes_find_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = past(tmp_path, later=True)
    text = "patience: {degraded: 4, failed: 4}"

    one, two = (tuned(directory, text, capsys, "--tries", "4", "--seed", "5", "--jobs", jobs) for jobs in ("1", "2"))

    assert one == two
    assert one["changes"]


def test_where_nothing_ever_failed_nothing_is_proposed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = record(tmp_path / "journal", dead(0, 0), rounds=20, unix=round(time.time()) - 3_600)

    found = tuned(directory, "", capsys, "--tries", "6", code=1)

    assert (found["changes"], found["proven"]) == ({}, False)


def test_people_get_a_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = past(tmp_path, later=True)
    file = tmp_path / "now.yaml"
    file.write_text(DOCUMENT + "patience: {degraded: 4, failed: 4}")

    assert main(["tune", "--settings", str(file), "--journal", str(directory), *SHORT]) == 0

    text = capsys.readouterr().out
    removed = [line for line in text.splitlines() if line.startswith("-")]
    added = [line for line in text.splitlines() if line.startswith("+")]
    assert len(removed) == len(added) >= 1
    assert all("# without it: " in line for line in added)
    assert "Nothing was changed." in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since", "soon"], "is no duration"),
        (["--false-trip", "0s"], "is no duration"),
        (["--cluster", "orders"], "there is no such cluster"),
        (["--journal", "/nowhere"], "no journal segments here"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    file = tmp_path / "now.yaml"
    file.write_text(DOCUMENT)

    assert main(["tune", "--settings", str(file), *arguments]) == 2

    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("key", sorted(SPACE))
def test_every_value_that_is_searched_is_one_of_a_document(key: str) -> None:
    for value in SPACE[key]:
        text = with_keys(DOCUMENT, "payments", {key: value})

        assert reach.read(text, name="test").clusters["payments"]
        assert yaml.safe_load(text)["agents"].keys() == {"v1", "v2", "v3"}
