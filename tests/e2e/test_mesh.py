"""The mesh as an operator sees it: a center, two agents that the document names, one of which dies."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tests.e2e.test_center import World, world

from reachline.testing.parts import free_port
from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e

DOCUMENT = """
judge: {tick: 1s, heartbeat: 1s}
clusters:
  payments:
    lines: {a: "tcp://127.0.0.1:PORT_A", b: "tcp://127.0.0.1:PORT_B"}
agents: {one: {mesh: "127.0.0.1:MESH_1"}, two: {mesh: "127.0.0.1:MESH_2"}}
mesh: {every: 50ms}
center: {grpc: "127.0.0.1:GRPC", http: "127.0.0.1:0", journal: JOURNAL}
"""


def state(there: World, vantage: str, peer: str) -> Any:
    ways = there.get("/api/v1/mesh")["ways"]
    return next((way for way in ways if (way["vantage"], way["peer"]) == (vantage, peer)), {"state": ""})


def told(there: World, *arguments: str) -> str:
    command = [sys.executable, "-m", "reachline", "mesh", "--center", there.url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def test_two_agents_hear_each_other_and_one_that_dies_is_shown_as_silent(tmp_path) -> None:
    text = DOCUMENT.replace("MESH_1", str(free_port())).replace("MESH_2", str(free_port()))
    with world(tmp_path, text, "one", "two", healthy=False) as there:
        pairs = (("one", "two"), ("two", "one"))

        def both_are_heard() -> bool:
            found = [state(there, *pair) for pair in pairs]
            return all((way["state"], way.get("told_by")) == ("heard", way.get("vantage")) for way in found)

        eventually(both_are_heard, within=45, every=0.1, what="each way to be told by its own end")

        there.agents[0].child.kill()
        eventually(lambda: state(there, "two", "one")["state"] == "silent", within=30, every=0.1, what="silence")

        assert "silent for" in told(there, "one")
        assert state(there, "two", "one")["losing"] == ""  # nobody can say which way, or whether it is the agent
