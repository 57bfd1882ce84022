"""Another release of Reachline beside this one: its source out of this repository's history, run by this interpreter."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from reachline.testing.parts import free_port, started
from reachline.testing.wait import eventually

LAST: Final = "38645cd"
"""The last release. Nothing is published yet: this is the commit that finished the closed loop, before kinds were features.
At a release it becomes that release's tag."""


def last_release(root: Path, directory: Path) -> Path:
    """The last release's source, unpacked; skips by name where history is missing (a shallow clone, a source archive)."""
    archive = subprocess.run(["git", "archive", LAST, "src"], cwd=root, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"history has no {LAST} here: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory / "src"


def next_major(root: Path, directory: Path) -> Path:
    """This release as a copy that speaks the next major of the protocol."""
    source = directory / "src"
    shutil.copytree(root / "src", source, ignore=shutil.ignore_patterns("__pycache__", "vendor"))
    file = source / "reachline/wire/frame.py"
    now, then = "\nPROTOCOL: Final = (1, 0)\n", "\nPROTOCOL: Final = (2, 0)\n"
    text = file.read_text()
    assert text.count(now) == 1
    file.write_text(text.replace(now, then))
    return source


class Pair:
    """A center of one release and an agent of another, each a process."""

    def __init__(self, directory: Path, name: str, document: str) -> None:
        self.grpc, self.http = free_port(), free_port()
        self.logs = {role: directory / f"{name}-{role}.log" for role in ("center", "agent")}
        self.document = directory / f"{name}.yaml"
        self.document.write_text(
            f"{document}\ncenter: {{grpc: '127.0.0.1:{self.grpc}', http: '127.0.0.1:{self.http}', journal: '{directory}/{name}'}}\n"
        )

    @contextmanager
    def center(self, source: Path) -> Iterator[None]:
        """A center of the release in `source`, ready."""
        with _run(source, "center", str(self.document), log=self.logs["center"]) as process:
            eventually(lambda: self._is_ready(process), within=60, what="the center to be ready")
            yield

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the center ended: {self.said('center')[-1_000:]}")
        return self.get("/readyz") is not None

    @contextmanager
    def agent(self, source: Path) -> Iterator[subprocess.Popen[bytes]]:
        """An agent of the release in `source`, begun."""
        command = ("agent", "--id", "edge", "--center", f"127.0.0.1:{self.grpc}", "--log", "json")
        with _run(source, *command, log=self.logs["agent"]) as process:
            yield process

    def get(self, path: str) -> Any:
        """The answer, or None while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=30) as answer:
                text = answer.read()
        except OSError:
            return None
        return json.loads(text) if path.startswith("/api") else text.decode()

    def line(self, name: str) -> dict[str, Any]:
        """One line's page; empty while there is none."""
        return self.get(f"/api/v1/lines/shop/{name}") or {}

    def status(self) -> str:
        """What this release's `reachline status` shows of the center."""
        command = (sys.executable, "-m", "reachline", "status", "--center", f"http://127.0.0.1:{self.http}")
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout

    def said(self, role: str) -> str:
        """What the process said so far."""
        return self.logs[role].read_text(errors="replace")


@contextmanager
def _run(source: Path, *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = (sys.executable, "-m", "reachline", *arguments)
    with started(command, log=log, environ=os.environ | {"PYTHONPATH": str(source)}) as process:
        yield process
