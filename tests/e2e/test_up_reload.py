"""`reachline up` while its document is edited: the agents beside it are those of the document in force, and the house stands."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from tests.e2e.upped import Upped

from reachline.compose import _Child, _keep
from reachline.errors import ReachlineError
from reachline.testing.parts import free_port
from reachline.testing.wait import eventually, until

pytestmark = pytest.mark.e2e

ANY = ("--port", "0", "--agents-port", "0")


class Edited:
    """A document whose `agents:` a test rewrites."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clusters = f"clusters:\n  shop:\n    lines: [tcp://127.0.0.1:{free_port()}]\n"
        self.name("")

    def name(self, agents: str) -> None:
        """Put these agents into the document, whole, as an editor saves."""
        draft = self.path.with_suffix(".new")
        draft.write_text(self._clusters + (f"agents: {agents}\n" if agents else ""))
        draft.replace(self.path)


@pytest.fixture
def document(tmp_path: Path) -> Edited:
    return Edited(tmp_path / "small.yaml")


def is_watched_by(running: Upped, *agents: str) -> bool:
    """Whether these agents, and no others, are attached and alive."""
    assert running.process.poll() is None, running.said
    return running.attached() == set(agents) and len(running.family()) == len(agents)


def test_agents_follow_the_document_as_it_names_renames_and_drops_them(document: Edited, tmp_path: Path) -> None:
    with Upped(str(document.path), *ANY, directory=tmp_path) as running:
        eventually(lambda: is_watched_by(running, "local"), within=30)

        document.name("{edge-03: {locality: {zone: az1}}}")
        eventually(lambda: is_watched_by(running, "edge-03"), within=30, what="edge-03 takes the place of local")
        (first,) = running.family()
        document.name("{edge-03: {locality: {zone: az1}}, edge-04: {locality: {zone: az2}}}")
        eventually(lambda: is_watched_by(running, "edge-03", "edge-04"), within=30, what="edge-04 beside it")
        assert first in running.family(), "an agent that did not change lives on"
        document.name("{edge-05: {locality: {zone: az2}}}")
        eventually(lambda: is_watched_by(running, "edge-05"), within=30, what="edge-05 alone")
        document.name("")
        eventually(lambda: is_watched_by(running, "local"), within=30, what="local again")

        assert "refused to start" not in running.said
        assert "agent local is no longer named" in running.said


def test_an_agent_whose_token_changed_is_started_anew_with_the_new_one(document: Edited, tmp_path: Path) -> None:
    document.name("{edge-03: {token: first-of-its-tokens}}")
    with Upped(str(document.path), *ANY, directory=tmp_path) as running:
        eventually(lambda: is_watched_by(running, "edge-03"), within=30)
        (first,) = running.family()

        document.name("{edge-03: {token: second-of-its-tokens}}")

        eventually(lambda: first not in running.family() and is_watched_by(running, "edge-03"), within=30)
        assert "agent edge-03 is started anew: the document changed" in running.said
        assert "of-its-tokens" not in running.said


def test_the_end_is_whole_also_while_an_agent_is_being_replaced(document: Edited, tmp_path: Path) -> None:
    with Upped(str(document.path), *ANY, "--log", "json", "--log-level", "info", directory=tmp_path) as running:
        eventually(lambda: is_watched_by(running, "local"), within=30)
        assert '{"event": "agent_started"' in running.said, "agents log as the center does"
        document.name("{edge-03: {}}")
        eventually(lambda: "no longer named" in running.said, within=30)

        assert running.end(signal.SIGTERM) == 0

        assert running.family() == {}
        assert "Traceback" not in running.said


TWICE = """\
import os, pathlib, sys
lives = pathlib.Path(os.environ["LIVES"])
lives.write_text(lives.read_text() + "x" if lives.exists() else "x")
sys.exit(int(os.environ["FIRST"]) if lives.read_text() == "x" else 2)
"""
"""A child that ends as FIRST says, and is refused each time it is started again."""


async def _lives(tmp_path: Path, first: int, *, until_lives: int, may_refuse: bool) -> list[str]:
    """What is said of such a child until it has lived so often; it is kept until then."""
    (tmp_path / "twice.py").write_text(TWICE)
    lives, said = tmp_path / "lives", list[str]()
    child = _Child("agent a", "twice", (), {"PYTHONPATH": str(tmp_path), "LIVES": str(lives), "FIRST": str(first)})
    keeping = asyncio.ensure_future(_keep(child, said.append, may_refuse=may_refuse))
    try:
        await until(lambda: keeping.done() or (lives.exists() and len(lives.read_text()) >= until_lives), within=30)
        if keeping.done():
            await keeping
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})
    return said


def test_a_child_that_is_refused_at_our_own_start_ends_it(tmp_path: Path) -> None:
    with pytest.raises(ReachlineError, match="agent a refused to start"):
        asyncio.run(_lives(tmp_path, 2, until_lives=2, may_refuse=True))


@pytest.mark.parametrize(("first", "may_refuse"), [(0, True), (2, False)])
def test_a_child_that_is_refused_later_on_is_started_again(tmp_path: Path, first: int, may_refuse: bool) -> None:
    said = asyncio.run(_lives(tmp_path, first, until_lives=3, may_refuse=may_refuse))

    assert said[0] == f"agent a ended (exit {first}); it is started again in 0.5 s"
    assert said[1] == "agent a ended (exit 2); it is started again in 1 s"
