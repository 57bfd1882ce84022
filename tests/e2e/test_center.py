"""Whole processes: a center, its agents, lines that die and come back; the center killed and started again."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.measured import best_of

from reachline.store.replay import replay
from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e

# A class and timeouts that a busy machine does not reach: of two lines the guard lets only one open, and it must be the dead one.
QUICK = """
preset: quick_recovery
class: bulk
probes: {tcp: {every: 1s, timeout: 4s}, http: {every: 1s, timeout: 4s}}
circuit_breaker:
  cooldown_seconds: 8
  half_open: {min_window_seconds: 3, min_success_requests: 100}
  recovery: {step_ratios: [0.1, 0.25, 0.5, 1.0], step_interval_seconds: 3}
clusters:
  payments:
    lines: {a: "http://127.0.0.1:PORT_A/", b: "http://127.0.0.1:PORT_B/"}
center: {grpc: "127.0.0.1:GRPC", http: "127.0.0.1:0", journal: JOURNAL}
"""


class Fine(BaseHTTPRequestHandler):
    """Answers 200 to everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    """Two agents' bursts come at once: with the usual five the kernel drops SYNs, which agents rightly call loss."""


class Target:
    """A service on loopback that can die and come back on its port, which stays ours: bound, nobody listens, refused."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port = self._held.getsockname()[1]
        self.start()

    def start(self) -> None:
        self._server = Server(("127.0.0.1", self.port), Fine)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def close(self) -> None:
        self.stop()
        self._held.close()


class Process:
    """One of ours as a child; what it says is kept in a file."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        self.out = directory / f"{name}.log"
        with self.out.open("ab") as out:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "reachline", *arguments], stdout=out, stderr=subprocess.STDOUT, cwd=directory
            )

    def said(self) -> str:
        return self.out.read_text()

    def end(self, how: signal.Signals = signal.SIGTERM, within: float = 60.0) -> int:
        if self.child.poll() is None:
            self.child.send_signal(how)
        return self.child.wait(within)


class World:
    """Two targets, a center, two agents."""

    def __init__(self, directory: Path, text: str) -> None:
        self.directory = directory
        self.journal = directory / "journal"
        self.a, self.b = Target(), Target()
        self.url = ""
        self.agents: list[Process] = []
        self._text = text
        self.started: list[Process] = []

    def start_center(self, port: str) -> Process:
        text = self._text.replace("PORT_A", str(self.a.port)).replace("PORT_B", str(self.b.port))
        file = self.directory / "reachline.yaml"
        file.write_text(text.replace("GRPC", port).replace("JOURNAL", str(self.journal)))
        before = (self.directory / "center.log").read_text() if (self.directory / "center.log").exists() else ""
        self.started.append(Process(self.directory, "center", "center", str(file)))
        told = re.compile(r"reachline center: (\S+) \(agents: (\S+)\)")
        found = eventually(
            lambda: told.search(self.center.said()[len(before) :]), within=60, what="the center to be ready"
        )
        assert found
        self.url, self.grpc = found.groups()
        return self.center

    @property
    def center(self) -> Process:
        """The one that was started last."""
        return self.started[-1]

    def start_agent(self, name: str) -> None:
        self.agents.append(Process(self.directory, name, "agent", "--id", name, "--center", self.grpc))

    def get(self, path: str) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, timeout=30) as answer:
            return json.load(answer)

    def post(self, path: str, document: object) -> None:
        request = urllib.request.Request(self.url + path, json.dumps(document).encode())
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            assert answer.status == 202

    def line(self, name: str) -> Any:
        rows = self.get("/api/v1/lines")["lines"]
        return next(row for row in rows if row["line"] == f"payments/{name}")

    def end(self) -> None:
        for process in (*self.agents, *self.started):
            process.child.kill()
            process.child.wait(60)
        self.a.close()
        self.b.close()


def _all_healthy(there: World) -> bool:
    return all(there.line(name)["health"] == "healthy" for name in "ab")


@contextmanager
def world(directory: Path, text: str, *agents: str, healthy: bool = True) -> Iterator[World]:
    made = World(directory, text)
    try:
        made.start_center("0")
        for name in agents:
            made.start_agent(name)
        if healthy:
            eventually(lambda: _all_healthy(made), within=120, every=0.2, what="both lines to be healthy")
        yield made
    finally:
        made.end()


@pytest.mark.slow
def test_a_dead_line_is_taken_out_by_both_votes_and_comes_back_by_the_ramp(tmp_path):
    with world(tmp_path, QUICK, "one", "two") as there:
        there.a.stop()
        died = time.monotonic()
        row = eventually(lambda: (row := there.line("a"))["weight"] == 0 and row, within=30, every=0.1, what="weight 0")

        assert time.monotonic() - died < 20
        assert (row["breaker"], row["health"]) == ("open", "unhealthy")
        decision = there.get("/api/v1/changes?line=payments/a")["changes"][-1]
        assert decision["rule"].endswith(".failed")
        assert sorted(vote["vantage"] for vote in decision["votes"]) == ["one", "two"]
        assert all(vote["zone"] == "failed" for vote in decision["votes"])

        there.a.start()
        row = eventually(lambda: (row := there.line("a"))["breaker"] == "half_open" and row, within=30, every=0.1)
        assert 0 < row["weight"] <= 10
        batch = {"client": "test", "cluster": "payments"}
        steps = set()

        def is_closed() -> bool:
            row = there.line("a")
            steps.add((row["breaker"], row["step"]))
            there.post(
                "/api/v1/outcomes", batch | {"outcomes": [{"line": "payments/a", "window": row["window"], "ok": 60}]}
            )
            return bool(row["breaker"] == "closed")

        eventually(is_closed, within=90, every=0.2, what="the ramp to end")
        assert {("half_open", 0), ("ramp", 1), ("ramp", 2)} <= steps
        assert there.line("b")["weight"] == 100, [
            (c["rule"], c.get("votes")) for c in there.get("/api/v1/changes?line=payments/b")["changes"][-8:]
        ]
    assert replay(there.journal).difference is None


def test_a_center_killed_and_started_again_goes_on_with_a_higher_version_and_the_open_line(tmp_path):
    with world(tmp_path, QUICK.replace("cooldown_seconds: 8", "cooldown_seconds: 60"), "one", "two") as there:
        there.a.stop()
        eventually(lambda: _is_open(there), within=60, every=0.1, what="the line to open")
        before, document = there.line("a"), there.get("/api/v1/clusters/payments/lines")

        there.center.end(signal.SIGKILL)
        there.start_center(there.grpc.rpartition(":")[2])

        after, again = there.line("a"), there.get("/api/v1/clusters/payments/lines")
        assert (after["breaker"], after["weight"]) == ("open", 0)
        assert after["next"] == pytest.approx(before["next"], abs=1)
        assert [again["epoch"], again["version"]] > [document["epoch"], document["version"]]
        attached = {"one": "attached", "two": "attached"}
        eventually(lambda: _agents(there) == attached, within=30, what="the agents to be back")
        heard = eventually(lambda: len(there.get("/api/v1/lines/payments/b")["votes"]) == 2, within=30)
        assert heard
        assert there.line("b")["weight"] == 100
        assert there.center.end() == 0
    assert replay(there.journal).difference is None


def _is_open(there: World) -> bool:
    row = there.line("a")
    assert row["breaker"] == "open", (row, there.line("b"))
    return True


def _agents(there: World) -> dict[str, str]:
    return {row["agent"]: row["state"] for row in there.get("/api/v1/agents")["agents"]}


@pytest.mark.alone  # five seconds are promised on a machine that is not busy otherwise
def test_the_end_is_quick_quiet_and_complete(tmp_path):
    with world(tmp_path, QUICK, "one", healthy=False) as there:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def measure() -> None:
            if there.center.child.poll() is not None:
                there.start_center("0")
            with opener.open(there.url + "/api/v1/stream", timeout=30) as stream:
                stream.read(10)
                started = time.monotonic()
                assert there.center.end(signal.SIGINT) == 0
                assert time.monotonic() - started < 5

        best_of(3, measure)
        said = there.center.said()
        assert "Traceback" not in said
        assert "center_stopped" in said


def test_a_taken_port_is_one_line_and_exit_code_2(tmp_path):
    with world(tmp_path, QUICK, "one", healthy=False) as there:
        port = there.url.rpartition(":")[2]
        other = tmp_path / "other.yaml"
        other.write_text(
            f'clusters: {{x: {{lines: ["tcp://127.0.0.1:1"]}}}}\n'
            f'center: {{http: "127.0.0.1:{port}", grpc: "127.0.0.1:0", journal: {tmp_path}/other}}\n'
        )
        refused = _center(other)

        assert refused.returncode == 2
        (told,) = refused.stderr.splitlines()
        assert re.match(
            rf"reachline: \S*other\.yaml:2:\d+: center\.http: the address is in use; .* \(got 127\.0\.0\.1:{port}\)",
            told,
        )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("center: {http: '0.0.0.0:0', journal: JOURNAL}", "reachable from other machines"),
        ("center: {grpc: '0.0.0.0:0', http: '127.0.0.1:0', journal: JOURNAL}", "reachable from other machines"),
        ("center: {http: '127.0.0.1:0', grpc: '127.0.0.1:0', journal: /proc/nowhere}", "cannot keep a journal here"),
        ("center: {htpp: x}", "did you mean"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(tmp_path, text, told):
    file = tmp_path / "bad.yaml"
    file.write_text(
        f'clusters: {{x: {{lines: ["tcp://127.0.0.1:1"]}}}}\n{text}\n'.replace("JOURNAL", str(tmp_path / "j"))
    )

    refused = _center(file)

    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert told in line


def _center(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "reachline", "center", str(file), "--log-level", "warning"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=os.environ)


def test_status_and_health_show_a_running_center(tmp_path):
    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "reachline", *arguments, "--center", there.url]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    with world(tmp_path, QUICK, "one", "two") as there:
        table = ask("status").stdout.splitlines()
        assert table[0].split() == ["line", "state", "weight", "score", "p95", "loss", "reason", "next"]
        assert {row.split()[0]: row.split()[1:4] for row in table[1:3]} == {
            "payments/a": ["healthy", "100/100", "100"], "payments/b": ["healthy", "100/100", "100"]
        }  # fmt: skip
        document = json.loads(ask("status", "-o", "json").stdout)
        assert [row["line"] for row in document["lines"]] == ["payments/a", "payments/b"]
        page = ask("status", "payments/a").stdout
        assert "votes" in page
        assert "one" in page
        unknown = ask("status", "payments/zz")
        assert (unknown.returncode, len(unknown.stderr.splitlines())) == (2, 1)
        assert "payments/a" in unknown.stderr
        assert (ask("health").returncode, ask("health").stdout) == (0, f"well: {there.url} is ready\n")
        there.center.end(signal.SIGKILL)
        down = ask("health")
        assert (down.returncode, len(down.stdout.splitlines()), down.stderr) == (1, 1, "")
        assert ask("status").returncode == 1
