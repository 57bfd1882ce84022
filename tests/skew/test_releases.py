"""An agent of the last release with this center, and the reverse: whole processes, real sockets, ordinary verdicts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.world import TARGET
from tests.skew.releases import Pair, last_release, next_major

from reachline.testing.parts import free_port, is_open, started
from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e

DOCUMENT = """
preset: quick_recovery
judge: {{tick: 500ms, heartbeat: 500ms}}
clusters:
  shop:
    probes: {{tcp: {{every: 1s}}, http: {{every: 1s}}{kinds}}}
    lines:
      web: 'http://127.0.0.1:{port}'
{more}
"""
MORE = "      cache: 'redis://127.0.0.1:{port}'"


@pytest.fixture(scope="module")
def port(tmp_path_factory) -> Iterator[int]:
    """An HTTP service: a process, so that nothing here holds it up."""
    number = free_port()
    log = tmp_path_factory.mktemp("target") / "target.log"
    with started((sys.executable, "-c", TARGET, str(number)), log=log):
        eventually(lambda: is_open(number), what="the target")
        yield number


@pytest.fixture(scope="module")
def last(root: Path, tmp_path_factory) -> Path:
    return last_release(root, tmp_path_factory.mktemp("last"))


def is_served(pair: Pair) -> bool:
    """Whether the agent is attached, and the line judged by both of its kinds."""
    page = pair.line("web")
    agents = (pair.get("/api/v1/agents") or {"agents": ()})["agents"]
    return (
        page.get("health") == "healthy"
        and {row["kind"] for row in page["readings"] if not row["error"]} == {"tcp", "http"}
        and [row["state"] for row in agents] == ["attached"]
    )


def test_each_release_is_served_by_the_other(root: Path, last: Path, port: int, tmp_path: Path) -> None:
    this = root / "src"
    with_kinds = Pair(
        tmp_path, "new", DOCUMENT.format(port=port, kinds=", passive: {every: 1s}", more=MORE.format(port=port))
    )
    plain = Pair(tmp_path, "old", DOCUMENT.format(port=port, kinds="", more=""))
    with ExitStack() as stack:
        stack.enter_context(with_kinds.center(this))
        stack.enter_context(plain.center(last))
        stack.enter_context(with_kinds.agent(last))
        stack.enter_context(plain.agent(this))

        for pair in (with_kinds, plain):
            eventually(lambda pair=pair: is_served(pair), within=60, what="a verdict on both kinds")  # type: ignore[misc]
            assert "malformed" not in pair.said("center") + pair.said("agent")

        told = {row["kind"]: row["error"] for row in with_kinds.line("cache")["readings"]}
        assert "this agent cannot probe redis" in told["redis"]
        assert told["tcp"] == "", "what it knows of the line it does"
        (agent,) = with_kinds.get("/api/v1/agents")["agents"]
        assert (agent["lacks"], agent["lines"]) == (["passive", "redis"], 2)
        assert "plan_reduced" in with_kinds.said("center")
        assert "agent edge (0.1.0) is too old to probe passive, redis" in with_kinds.status()


def test_another_major_is_refused_by_name_on_both_sides(root: Path, port: int, tmp_path: Path) -> None:
    this, other = root / "src", next_major(root, tmp_path)
    document = DOCUMENT.format(port=port, kinds="", more="")
    newer_center, newer_agent = Pair(tmp_path, "center", document), Pair(tmp_path, "agent", document)
    with ExitStack() as stack:
        stack.enter_context(newer_center.center(other))
        stack.enter_context(newer_agent.center(this))
        agents = stack.enter_context(newer_center.agent(this)), stack.enter_context(newer_agent.agent(other))
        codes = tuple(agent.wait(60) for agent in agents)

    assert codes == (2, 2), "no waiting mends it"
    assert "the center speaks protocol 2, this agent 1" in newer_center.said("agent")
    assert "protocol 1 is not spoken here; this center speaks 2" in newer_center.said("center")
    assert "protocol 2 is not spoken here; this center speaks 1" in newer_agent.said("center")
    assert "the center speaks protocol 1, this agent 2" in newer_agent.said("agent")
    assert "Traceback" not in newer_center.said("agent") + newer_agent.said("agent")
