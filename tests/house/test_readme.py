"""README tried as it stands: its document, its commands and its Python, against real processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from reachline.testing.parts import started
from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e
README = (Path(__file__).parents[2] / "README.md").read_text()
REACHLINE = (sys.executable, "-m", "reachline")


def block(kind: str) -> str:
    """README's only block of that kind."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(found)


class Well(BaseHTTPRequestHandler):
    """A service that is always well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Nothing to say."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    """All agents' bursts at once: with the usual five the kernel drops SYNs on a busy machine."""


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """Host and port of a service."""
    with Server(("127.0.0.1", 0), Well) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def center(service: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """README's document, its second host put in the place of one that exists here, run by README's `up`."""
    directory = tmp_path_factory.mktemp("readme")
    document = block("yaml").replace("https://b.example/healthz", f"http://{service}/healthz")
    (directory / "reachline.yaml").write_text(document)
    log = directory / "up.log"
    command = (*REACHLINE, "up", str(directory / "reachline.yaml"), "--port", "0", "--agents-port", "0")
    here = Path.cwd()
    os.chdir(directory)
    try:
        with started(command, log=log) as process:
            found = eventually(lambda: address(process, log), within=30, what="the address")
            eventually(lambda: fetch(found, "/readyz")["status"] == "ready", within=30, what="a center that is ready")
            yield found
    finally:
        os.chdir(here)


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """What `up` printed, or nothing yet; its log where it ended."""
    if process.poll() is not None:
        raise RuntimeError(log.read_text())
    return "".join(re.findall(r"http://127\.0\.0\.1:\d+", log.read_text())[:1])


def fetch(url: str, path: str) -> dict[str, object]:
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        return dict(json.load(answer))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REACHLINE, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_the_smallest_document_is_good(tmp_path: Path) -> None:
    (tmp_path / "reachline.yaml").write_text(block("yaml"))

    done = run("config", "check", str(tmp_path / "reachline.yaml"))

    assert (done.returncode, done.stderr) == (0, "")
    assert block("yaml").count("\n") == 3


def test_status_shows_the_lines(center: str, service: str) -> None:
    done = run("status", "--center", center)

    assert done.returncode in {0, 1}, done.stderr  # 1: a.example does not exist here, and says so
    assert "payments/a.example" in done.stdout
    assert f"payments/{service.partition(':')[0]}" in done.stdout


def test_explain_says_why(center: str) -> None:
    done = run("explain", "payments/a.example", "--center", center)

    assert done.returncode == 0, done.stderr
    assert "payments/a.example" in done.stdout


def test_the_python_example_makes_a_call(center: str, service: str) -> None:
    example = block("python").replace("connect_sync(", f"connect_sync({center!r}, ")
    program = f"calls = []\ndef call(url):\n    calls.append(url)\n{example}\nprint(calls)"

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in {f"['http://{service}/orders']\n", "['https://a.example:443/orders']\n"}
