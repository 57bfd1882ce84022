"""`reachline tune --scenarios`: evidence that was simulated is searched and proved like a journal's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reachline.cli.main import main
from reachline.cli.tune_past import simulated

SCENARIOS = """
version: 1
scenarios:
  - id: short
    title: a line that dies for half a minute
    duration_s: 140
    warmup_s: 60
    rng_seeds: [1]
    agents: {count: 3}
    traffic: {rps: 60, sdk_instances: 2}
    lines: {L1: {base: 100}, L2: {base: 100}}
    phases: [{from: 70, to: 110, line: L1, set: {connect_fail: 1.0}}]
    truth: [{line: L1, from: 70, to: 110, class: down}]
    limits: {t_detect: 10}
"""


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    file = tmp_path / "scenarios.yaml"
    file.write_text(SCENARIOS)
    return file


def test_a_scenario_with_one_seed_is_proved_on_another(scenarios: Path, tmp_path: Path) -> None:
    told: list[float] = []

    learn, prove = simulated(scenarios, tmp_path / "past", told.append)

    assert (len(learn), len(prove), told) == (1, 1, [0.5, 1.0])
    assert learn[0].paths[0].read_bytes() != prove[0].paths[0].read_bytes()
    assert {line.id.rpartition("/")[2] for line in learn[0].lines} == {"L1", "L2"}
    assert len(learn[0].vantages) == 3


def test_the_fault_of_the_scenario_is_found_in_its_evidence_and_settings_are_held_against_it(
    scenarios: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "now.yaml"
    settings.write_text("clusters: {mine: {lines: ['tcp://a.test:443']}}\nmode: fast\n")

    code = main(["tune", "--settings", str(settings), "--scenarios", str(scenarios), "--tries", "2", "-o", "json"])

    found = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    assert [found[part]["before"]["faults"] for part in ("searched", "unseen")] == [1, 1]
    assert found["searched"]["before"]["missed"] == 0
    assert 0 < found["searched"]["before"]["mttr"] <= 30
