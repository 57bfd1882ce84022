"""`reachline up` as a person runs it: one process with a terminal's output, and everything below it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from reachline.testing.wait import eventually

ENDS_WITHIN: Final = 5.0
"""Promised: from Ctrl-C to nothing left."""


class Upped:
    """A running `up`, ended with the block at the latest."""

    def __init__(self, *arguments: str, directory: Path) -> None:
        self._directory = directory
        self._output = directory / "up.log"
        temporary = directory / "tmp"
        temporary.mkdir(exist_ok=True)
        with self._output.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "reachline", "up", *arguments],
                cwd=directory, stdout=log, stderr=log, start_new_session=True, env=environ(directory),
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        eventually(lambda: not self.family(), within=90, what="everything below has ended")

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def url(self) -> str:
        """The console's address, once it is printed."""
        eventually(lambda: "console" in self.said or self.process.poll() is not None, within=60, what="the address")
        assert self.process.poll() is None, self.said
        return self.said.split("console")[1].split()[0]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.load(answer)

    def line(self, name: str) -> Mapping[str, Any]:
        row: Mapping[str, Any] = self.get(f"api/v1/lines/{name}")
        return row

    def attached(self) -> set[str]:
        return {agent["agent"] for agent in self.get("api/v1/agents")["agents"] if agent["state"] == "attached"}

    def family(self) -> dict[int, str]:
        """Every process that this one started, dead parents or not: they carry its environment's mark."""
        mark = f"REACHLINE_TEST={self._directory}\0".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or mark not in (entry / "environ").read_bytes() + b"\0":
                    continue
                if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        found.pop(self.process.pid, None)
        return found

    def end(self, number: signal.Signals) -> int:
        """Signal it as a terminal does; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


def rates(running: Upped) -> dict[str, float]:
    """Calls a second by line, as the callers count them."""
    found = running.get("api/v1/demo").get("calls") or {}
    return dict(found.get("rates") or {})


def environ(directory: Path) -> dict[str, str]:
    """Ours, with a mark by which everything that is started can be found, and a private place for temporary files."""
    return {**os.environ, "REACHLINE_TEST": str(directory), "TMPDIR": str(directory / "tmp"), "PYTHONPATH": "src"} | {
        "PYTHONPATH": str(Path(__file__).parents[2] / "src")
    }
