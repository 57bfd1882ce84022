"""The closed loop as an operator runs it: targets, a center and agents, each a process of its own, on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from reachline.testing.parts import free_port, is_open
from reachline.testing.wait import eventually

ENDS_WITHIN: Final = 30.0
TARGET: Final = (
    "import asyncio, sys; from reachline.testing.services import service\n"
    "async def main():\n"
    "    async with service(port=int(sys.argv[1])): await asyncio.Event().wait()\n"
    "asyncio.run(main())"
)


class World:
    """Everything that was started, by name. Each process can be killed and started again on the same port."""

    def __init__(
        self,
        directory: Path,
        *,
        preset: str,
        targets: Sequence[str],
        agents: Sequence[str],
        mode: str = "literal",
        more: str = "",
    ) -> None:
        self.directory = directory
        self.ports = {name: free_port() for name in targets}
        self.grpc, self.http = free_port(), free_port()
        self.agents = tuple(agents)
        self.document = directory / "reachline.yaml"
        self.journal = directory / "journal"
        self.document.write_text(f"mode: {mode}\n{more}{self._document(preset)}")
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def center(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    def _document(self, preset: str) -> str:
        lines = "".join(f"      {name}: 'http://127.0.0.1:{port}'\n" for name, port in self.ports.items())
        agents = "".join(f"  {agent}: {{}}\n" for agent in self.agents)
        return (
            f"preset: {preset}\nclusters:\n  shop:\n    probes: {{tcp: {{every: 2s}}, http: {{every: 2s}}}}\n    lines:\n{lines}"
            f"agents:\n{agents}"
            f"center: {{grpc: '127.0.0.1:{self.grpc}', http: '127.0.0.1:{self.http}', journal: '{self.journal}'}}\n"
        )

    def start(self) -> None:
        for name in self.ports:
            self.start_target(name)
        self.start_center()
        for agent in self.agents:
            self._run(agent, "-m", "reachline", "agent", "--id", agent, "--center", f"127.0.0.1:{self.grpc}")

    def start_target(self, name: str) -> None:
        self._run(name, "-c", TARGET, str(self.ports[name]))
        eventually(lambda: is_open(self.ports[name]), what=f"target {name}")

    def start_traffic(self, rate: int) -> None:
        """The demo's callers, over the SDK; `kill("traffic")` ends them."""
        asked = ("--center", self.center, "--cluster", "shop", "--rate", str(rate))
        self._run("traffic", "-m", "reachline.testing.traffic", *asked)

    def start_center(self) -> None:
        self._run("center", "-m", "reachline", "center", str(self.document))
        eventually(self.is_ready, within=60, what="the center is ready")

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.center + "/readyz", timeout=30):
                return True
        except OSError:
            return False

    def _run(self, name: str, *arguments: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen([sys.executable, *arguments], stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """SIGKILL: no goodbye."""
        process = self.running.pop(name)
        process.kill()
        process.wait(ENDS_WITHIN)

    def stop(self) -> dict[str, int]:
        """SIGTERM for all; exit codes by name. What does not end in time is killed and shows as such."""
        for process in self.running.values():
            process.terminate()
        codes = {}
        for name, process in self.running.items():
            try:
                codes[name] = process.wait(ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait(ENDS_WITHIN)
        self.running = {}
        return codes

    def get(self, path: str) -> Any:
        """The JSON answer, or None while the center is away."""
        try:
            with urllib.request.urlopen(self.center + path, timeout=30) as answer:
                return json.load(answer)
        except OSError:
            return None

    def line(self, name: str) -> dict[str, Any]:
        """One row of `GET /api/v1/lines`; empty while the center is away."""
        rows = (self.get("/api/v1/lines") or {"lines": []})["lines"]
        return next((row for row in rows if row["line"] == f"shop/{name}"), {})

    def settled(self) -> bool:
        """Every line was judged healthy."""
        rows = (self.get("/api/v1/lines") or {"lines": []})["lines"]
        return len(rows) == len(self.ports) and all(row["health"] == "healthy" for row in rows)

    def reachline(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "reachline", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def world(
    directory: Path,
    *,
    preset: str,
    targets: Sequence[str] = "abc",
    agents: Sequence[str] = ("a1", "a2"),
    mode: str = "literal",
    more: str = "",
) -> Iterator[World]:
    """A running world, `more` at the top of its document; nothing of it is left afterwards, however the test ends."""
    made = World(directory, preset=preset, targets=targets, agents=agents, mode=mode, more=more)
    try:
        made.start()
        yield made
    finally:
        for process in made.running.values():
            os.kill(process.pid, signal.SIGKILL)
            process.wait(ENDS_WITHIN)
