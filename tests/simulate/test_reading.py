"""A scenario file is read whole, defaults filled in, or refused with every problem and its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from reachline.errors import ConfigError
from reachline.simulate.reading import read

ONE = """
defaults:
  traffic: {rps: 10, retry: {max: 3}}
  lines: {L1: {base: 100}, L2: {base: 50}}
scenarios:
- id: a
  traffic: {retry: {budget: null}}
  phases: [{from: 1, to: 2, line: L1, set: {loss: 0.5}}]
  limits: {t_detect: 5}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, name="file.yaml")
    return [str(each) for each in caught.value.problems]


def test_the_example_is_read_whole(root: Path) -> None:
    found = read((root / "examples/scenarios.yaml").read_text(), name="scenarios.yaml")

    assert len({each.id for each in found}) == len(found) == 30
    assert {each.traffic.sdk_instances for each in found} == {20}
    assert all(each.limits.model_fields_set for each in found)


def test_a_scenario_s_own_keys_win_over_the_defaults_key_by_key() -> None:
    (one,) = read(ONE, name="file.yaml")

    assert (one.traffic.rps, one.traffic.retry.max, one.traffic.retry.budget) == (10, 3, None)
    assert [line.base for line in one.lines.values()] == [100, 50]


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (
            "  limits: {t_detect",
            "  limit: {t_detect",
            "file.yaml:9:3: scenarios[0].limit: unknown key; did you mean 'limits'?",
        ),
        (
            "set: {loss",
            "set: {los",
            "scenarios[0].phases[0].set.los: unknown key; did you mean 'loss'?",
        ),
        (
            "traffic: {rps: 10, ",
            "traffic: {rsp: 10, ",
            "file.yaml:3:13: defaults.traffic.rsp: unknown key; did you mean 'rps'?",
        ),
        ("{t_detect: 5}", "{t_detect: soon}", "limits.t_detect: must be a number (got 'soon')"),
        ("line: L1", "line: L7", "scenarios[0].phases[0].line: names no line of this scenario"),
        ("to: 2", "to: 1", "scenarios[0].phases[0].to: must be after from (got 1)"),
        ("line: L1, ", "", "says what happens, but to no line; line: NAME, or line: all"),
        ("from: 1, ", "from: 1, every_s: 5, ", "every_s and for_s belong together"),
        ("base: 50", "base: 0", "defaults.lines.L2.base: must be at least 1 (got 0)"),
        ("loss: 0.5", "loss: 1.5", "set.loss: must be at most 1"),
    ],
)
def test_what_is_wrong_is_told_with_place_value_rule_and_hint(was: str, now: str, said: str) -> None:
    assert any(said in each for each in problems(ONE.replace(was, now)))


def test_an_id_stands_once() -> None:
    assert any("scenarios[1].id: stands twice" in each for each in problems(ONE + "- id: a\n"))
