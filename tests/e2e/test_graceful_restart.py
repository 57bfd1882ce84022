"""A center that is stopped and started again under real agents: none of them ends, and all of them report again."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.world import ENDS_WITHIN, World, world
from tests.measured import best_of

from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]  # a minute, on a machine that is not busy

AGENTS = ("a1", "a2", "a3", "a4")


@contextmanager
def pending_post(there: World) -> Iterator[socket.socket]:
    """A request whose body never ends, on its way in the center."""
    head = b"POST /api/v1/outcomes HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", there.http), timeout=ENDS_WITHIN) as waiting:
        waiting.sendall(head)
        assert there.is_ready()
        yield waiting


def end_center(there: World) -> tuple[int, float]:
    """SIGTERM; its exit code, and how long it took."""
    began = time.monotonic()
    process = there.running.pop("center")
    process.terminate()
    return process.wait(ENDS_WITHIN), time.monotonic() - began


def have_reported(there: World) -> bool:
    """Every agent is attached to this center and has told it something, twice."""
    rows = (there.get("/api/v1/agents") or {"agents": []})["agents"]
    heard = {row["agent"] for row in rows if row["state"] == "attached" and row["heartbeats"] >= 2}
    return heard == set(AGENTS)


def are_alive(there: World) -> bool:
    return all(there.running[name].poll() is None for name in AGENTS)


def test_agents_outlive_a_center_that_stops_and_report_to_the_next_one(tmp_path: Path) -> None:
    with world(tmp_path, preset="quick_recovery", targets="a", agents=AGENTS) as there:
        eventually(lambda: have_reported(there), within=60, every=0.1, what="all agents to report")

        assert end_center(there)[0] == 0
        there.start_center()
        eventually(lambda: have_reported(there), within=60, every=0.1, what="all agents to report again")

        def measure() -> None:
            with pending_post(there) as waiting:
                code, took = end_center(there)
                answer = waiting.recv(4096)
            there.start_center()
            eventually(lambda: have_reported(there), within=60, every=0.1, what="all agents to report once more")
            assert (code, answer.split(b" ")[1]) == (0, b"503")
            assert took < 5

        best_of(3, measure)
        assert are_alive(there)
        said = (tmp_path / "center.log").read_text()
        assert "Traceback" not in said
        assert "error" not in said
        codes = there.stop()
        assert {name: codes[name] for name in (*AGENTS, "center")} == dict.fromkeys((*AGENTS, "center"), 0)
        assert all("refuses this agent" not in (tmp_path / f"{name}.log").read_text() for name in AGENTS)
