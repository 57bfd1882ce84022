"""`reachline observatory` as people start it: it follows its file, keeps the last good one, and ends when told to."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from reachline.testing.parts import free_port
from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e


def _written(path: Path, port: int, *tags: str) -> None:
    document = {
        "outbounds": [{"tag": tag, "protocol": "freedom"} for tag in tags],
        "observatory": {
            "subjectSelector": ["s-"],
            "probeURL": f"http://127.0.0.1:{free_port()}/",
            "probeInterval": "1s",
            "enableConcurrency": True,
        },
        "metrics": {"tag": "m", "listen": f"127.0.0.1:{port}"},
    }
    path.write_text(json.dumps(document))


def _observed(port: int) -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/debug/vars", timeout=30) as answer:
        return set(json.load(answer)["observatory"])


@contextlib.contextmanager
def _started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "reachline", "observatory", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("compat", [(), ("--compat", "strict")])
def test_the_file_is_followed_and_one_that_is_wrong_changes_nothing(tmp_path: Path, compat: tuple[str, ...]) -> None:
    path, port = tmp_path / "xray.json", free_port()
    _written(path, port, "first", "s-a", "s-b")
    with _started(str(path), *compat) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == f"reachline observatory: metrics port {port}\n"
        eventually(lambda: _observed(port) == {"s-a", "s-b"} or None, within=60, what="both observed")

        _written(path, port, "first", "s-a", "s-c")

        eventually(lambda: _observed(port) == {"s-a", "s-c"} or None, within=60, what="another one observed")
        path.write_text('{"outbounds": 3}')
        assert any("document_refused" in line for line in process.stderr), "it says why"
        assert _observed(port) == {"s-a", "s-c"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_an_address_that_is_taken_ends_it_with_a_line(tmp_path: Path) -> None:
    path, port = tmp_path / "xray.json", free_port()
    _written(path, port, "s-a")
    with _started(str(path)) as first:
        assert first.stdout is not None
        first.stdout.readline()

        with _started(str(path)) as second:
            _, told = second.communicate(timeout=60)

            assert second.returncode == 2
            assert "metrics.listen" in told
            assert "in use" in told
