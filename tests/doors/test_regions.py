"""Regions in the document: what they carry reaches every cluster's rules, and a mistyped name is told."""

from __future__ import annotations

import pytest

from reachline.doors import reach
from reachline.errors import ConfigError

TEXT = """
regions: {west: {capacity: 7}, east: {capacity: 1000}, north: {}}
clusters:
  a: {priority: 9, lines: {one: {to: "tcp://10.0.0.1:1", region: east}, two: {to: "tcp://10.0.0.2:1", region: west}}}
  b: {lines: {one: {to: "tcp://10.0.0.3:1", region: north}, two: "tcp://10.0.0.4:1"}}
"""


def test_every_cluster_knows_what_regions_carry_its_priority_and_where_its_lines_stand() -> None:
    document = reach.read(TEXT, name="x.yaml")

    assert [reach.rules(document, name).regions for name in "ab"] == [(("east", 1000), ("west", 7))] * 2
    assert [reach.rules(document, name).priority for name in "ab"] == [9, 0]
    assert [line.region for name in "ab" for line in reach.lines(document, name)] == ["east", "west", "north", ""]
    assert not document.warnings


def test_a_region_that_no_line_stands_in_is_odd_and_the_nearest_one_is_named() -> None:
    document = reach.read(TEXT.replace("region: west", "region: wets"), name="x.yaml")

    (warning,) = document.warnings
    assert (warning.path, warning.rule) == ("regions.west", "no line stands in this region")
    assert warning.hint == "did you mean wets?"


def test_a_region_that_carries_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"regions\.west\.capacity"):
        reach.read(TEXT.replace("capacity: 7", "capacity: 0"), name="x.yaml")
