"""`reachline up`: ready soon, agents kept alive, refusals in one line, and nothing left behind however it ends."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from tests.e2e.upped import ENDS_WITHIN, Upped
from tests.measured import best_of

from reachline.testing.parts import free_port
from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e

ANY = ("--port", "0", "--agents-port", "0")


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """The smallest document there is: nobody listens at its line, which is a state and no error."""
    path = tmp_path / "small.yaml"
    path.write_text(f"clusters:\n  shop:\n    lines: [tcp://127.0.0.1:{free_port()}]\n")
    return path


def test_one_local_agent_watches_a_document_that_names_none(document: Path, tmp_path: Path) -> None:
    with Upped(str(document), *ANY, directory=tmp_path) as running:
        eventually(lambda: running.attached() == {"local"}, within=60)

        assert "Reachline is up: 1 line, watched by local." in running.said
        assert running.get("healthz")["status"] == "ok"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_within_five_seconds(document: Path, tmp_path: Path, number: signal.Signals) -> None:
    def measure() -> None:
        with Upped(str(document), *ANY, directory=tmp_path) as running:
            eventually(running.attached, within=60)
            assert len(running.family()) == 1

            began = time.monotonic()
            assert running.end(number) == 0
            assert running.family() == {}
            spent = time.monotonic() - began

            assert list((tmp_path / "tmp").iterdir()) == []
            assert "Traceback" not in running.said
            assert spent <= ENDS_WITHIN

    best_of(3, measure)


def test_an_impatient_person_changes_nothing(document: Path, tmp_path: Path) -> None:
    with Upped(str(document), *ANY, directory=tmp_path) as running:
        eventually(running.attached, within=60)

        # Ctrl-C at every moment of the end, the interpreter's own included.
        eventually(lambda: interrupted(running) is not None, within=60, every=0.003, what="it has ended")

        assert running.process.returncode == 0
        assert running.family() == {}
        assert list((tmp_path / "tmp").iterdir()) == []
        assert "Traceback" not in running.said


def interrupted(running: Upped) -> int | None:
    running.process.send_signal(signal.SIGINT)
    return running.process.poll()


def test_a_killed_parent_leaves_no_child(document: Path, tmp_path: Path) -> None:
    with Upped(str(document), *ANY, directory=tmp_path) as running:
        eventually(running.attached, within=60)

        running.process.kill()

        eventually(lambda: not running.family(), within=60, what="the agent has ended with its parent")


def test_a_killed_agent_is_started_again(document: Path, tmp_path: Path) -> None:
    with Upped(str(document), *ANY, directory=tmp_path) as running:
        eventually(running.attached, within=60)
        (first,) = running.family()

        os.kill(first, signal.SIGKILL)

        eventually(lambda: running.family() and first not in running.family(), within=60, what="another agent")
        eventually(lambda: running.attached() == {"local"}, within=60)
        assert "agent local ended (signal SIGKILL); it is started again in 0.5 s" in running.said


def refused(*arguments: str, directory: Path) -> list[str]:
    """Lines of an `up` that must end by itself with exit code 2 and leave nothing."""
    with Upped(*arguments, directory=directory) as running:
        assert running.process.wait(30) == 2, running.said
        assert "Traceback" not in running.said
        return running.said.splitlines()


def test_without_a_document_it_says_how_to_use_it(tmp_path: Path) -> None:
    assert any("FILE" in line for line in refused(directory=tmp_path))


def test_a_port_in_use_is_one_line_that_names_it(document: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        (line,) = refused(str(document), "--port", str(port), "--agents-port", "0", directory=tmp_path)

    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


def test_a_missing_document_is_one_line(tmp_path: Path) -> None:
    (line,) = refused("nowhere.yaml", directory=tmp_path)

    assert line.startswith("reachline: nowhere.yaml: cannot be read")


def test_a_story_without_a_demo_is_refused(document: Path, tmp_path: Path) -> None:
    (line,) = refused(str(document), "--story", "x.yaml", directory=tmp_path)

    assert "add --demo" in line


def test_the_demo_refuses_lines_of_other_machines(tmp_path: Path) -> None:
    path = tmp_path / "far.yaml"
    path.write_text("clusters:\n  shop:\n    lines: {east: 'http://192.0.2.1:80'}\n")

    (line,) = refused(str(path), "--demo", *ANY, directory=tmp_path)

    assert "shop/east" in line
    assert "this machine only" in line


def test_the_demo_names_a_port_of_its_lines_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = tmp_path / "taken.yaml"
        path.write_text(f"clusters:\n  shop:\n    lines: {{east: 'http://127.0.0.1:{port}'}}\n")

        (line,) = refused(str(path), "--demo", *ANY, directory=tmp_path)

    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


def test_a_story_with_mistakes_is_refused_with_their_places(document: Path, tmp_path: Path) -> None:
    story = tmp_path / "story.yaml"
    story.write_text(
        "line: east\nlength: 10\nphases: {a: A}\nscript:\n  - {at: 0s, phase: a, title: T, say: S, knobs: {delai: 1s}}\n"
    )

    lines = refused(str(document), "--demo", "--story", str(story), *ANY, directory=tmp_path)

    assert len(lines) == 2
    assert "story.yaml:2:9: length" in lines[0]
    assert "story.yaml:5:50" in lines[1]
    assert "delai" in lines[1]
