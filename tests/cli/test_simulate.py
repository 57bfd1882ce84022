"""`reachline simulate`: exit codes, the shape of its JSON, and one line for what it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reachline.cli.main import main
from reachline.simulate.bound import highest

FILE = """
scenarios:
- id: S1_gone
  duration_s: 20
  lines: {L1: {base: 100}, L2: {base: 100}}
  traffic: {rps: 20, sdk_instances: 2}
  agents: {count: 3}
  phases: [{from: 10, to: 20, line: L1, set: {connect_fail: 1.0}}]
  truth: [{line: L1, from: 10, to: 20, class: down}]
  limits: {t_detect: 8}
- id: S2_well
  duration_s: 5
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "scenarios.yaml"
    path.write_text(FILE)
    return str(path)


def test_one_row_for_each_run_and_exit_code_one_where_a_limit_is_broken(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--scenario", "S1", "--contender", "none", "--contender", "reachline", "--seeds", "2", "-o", "json"]

    assert main(["simulate", file, *asked]) == 1
    rows = json.loads(capsys.readouterr().out)

    assert [(row["scenario"], row["contender"], row["seed"]) for row in rows] == [
        ("S1_gone", name, seed) for name in ("none", "reachline") for seed in (1, 2)
    ]
    assert all(set(row) == {"scenario", "contender", "seed", "metrics", "limits", "ok"} for row in rows)
    assert [row["ok"] for row in rows] == [False, False, True, True]
    assert rows[0]["limits"] == {"t_detect": False}


def test_each_row_tells_what_all_runs_of_its_contender_prove_of_false_opens(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", file, "--scenario", "S2", "--contender", "oracle", "--seeds", "3", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)

    hours = sum(row["metrics"]["line_hours"] for row in rows)
    assert [row["metrics"]["false_opens_at_most_per_1000_h"] for row in rows] == [
        pytest.approx(1_000 * highest(0, hours), rel=1e-3)
    ] * 3


def test_a_table_ends_with_what_is_proven_of_false_opens(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", file, "--scenario", "S2", "--contender", "oracle", "--seeds", "1"]) == 0

    assert "oracle: 0 false opens in 0.0 line-hours, at most" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--scenario", "S3"], "--scenario: is not known"),
        (["--contender", "reachlin"], "--contender: is not known; did you mean reachline? (got 'reachlin')"),
    ],
)
def test_a_name_that_is_none_is_refused_with_what_was_meant(
    file: str, asked: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", file, *asked]) == 2
    assert said in capsys.readouterr().err


def test_a_file_with_an_unknown_key_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(FILE.replace("truth:", "thruth:"))

    assert main(["simulate", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "wrong.yaml:9:3: scenarios[0].thruth: unknown key; did you mean 'truth'?" in line


@pytest.mark.parametrize(
    ("count", "hours", "rate"), [(0, 3_000, 2.996 / 3_000), (1, 3_000, 4.744 / 3_000), (5, 1, 10.513)]
)
def test_few_events_bound_a_rate_as_a_poisson_process_does(count: int, hours: float, rate: float) -> None:
    assert highest(count, hours) == pytest.approx(rate, rel=1e-3)
