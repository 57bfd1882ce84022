"""Every example is a document without a warning, and says what its comments say."""

from __future__ import annotations

from pathlib import Path

import pytest

from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.model import Kind, Locality

NAMES = ("minimal", "quickstart", "full", "envoy", "grpc")
HIGHEST = 32_768
"""Where this machine's own outgoing ports begin: a fixed port above may be taken."""


def example(root: Path, name: str) -> Document:
    path = root / "examples" / f"{name}.yaml"
    return reach.read(path.read_text(), name=str(path))


def test_no_example_is_left_out(root: Path) -> None:
    others = {"scenarios"}  # read by the simulator, and tested there

    assert {path.stem for path in (root / "examples").glob("*.yaml")} == set(NAMES) | others


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_good_and_compiles(root: Path, name: str) -> None:
    document = example(root, name)

    assert document.warnings == ()
    for cluster in document.clusters:
        assert reach.lines(document, cluster)
        assert reach.rules(document, cluster).limits


def test_the_smallest_has_three_lines(root: Path) -> None:
    assert len((root / "examples/minimal.yaml").read_text().splitlines()) == 3


def test_the_quickstart_is_the_world_of_the_demo(root: Path) -> None:
    document = example(root, "quickstart")
    lines = reach.lines(document, "shop")
    plan = reach.plan(document, agent="az1", locality=Locality(), number=1)
    http = [probe for line in plan.lines for probe in line.probes if probe.kind is Kind.HTTP]

    assert [str(line.endpoint) for line in lines] == [f"http://127.0.0.1:{port}" for port in (7701, 7702, 7703)]
    assert all(line.endpoint.port < HIGHEST for line in lines)
    assert len(document.agents) == 3
    assert {probe.interval_ms for probe in http} == {2_000}
    assert document.preset == "quick_recovery"
    # A P95 has its minimum of samples within the window also while the line is healthy.
    assert all(probe.max_age_ms // probe.interval_ms * probe.burst >= 20 for probe in http)


def test_the_full_one_grows_lines_for_zones_and_groups(root: Path) -> None:
    document = example(root, "full")

    assert [line.id for line in reach.lines(document, "replication")] == ["replication/az9@az1", "replication/az9@az2"]
    assert reach.rules(document, "search").policy == ("ab_groups", "primary_backup")
    assert not reach.rules(document, "replication").enforce
