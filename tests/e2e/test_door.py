"""`reachline up --door`: outbounds of an Xray document as lines, while it is edited and asked about."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.upped import Upped

from reachline.cli.main import main
from reachline.testing.parts import free_port
from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e


class _Web(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Web) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/generate_204"
        server.shutdown()
        thread.join()


def _write(path: Path, url: str, *more: str) -> None:
    dead: dict[str, Any] = {"tag": "p-dead", "protocol": "socks"}
    dead["settings"] = {"address": "127.0.0.1", "port": free_port(), "user": "u", "pass": "hidden"}
    document = {
        "outbounds": [{"tag": tag, "protocol": "freedom"} for tag in ("first", "p-well", *more)] + [dead],
        "observatory": {"subjectSelector": ["p-"], "probeURL": url, "probeInterval": "1s"},
    }
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(document))
    draft.replace(path)


def test_outbounds_are_lines_that_are_judged_explained_and_follow_the_file(tmp_path: Path, url: str) -> None:
    path = tmp_path / "xray.json"
    _write(path, url)
    with Upped("--door", str(path), "--port", "0", "--agents-port", "0", directory=tmp_path) as running:
        eventually(
            lambda: running.line("outbounds/p-dead")["breaker"] == "open" or None, within=90, what="it is judged"
        )
        assert running.line("outbounds/p-well")["health"] == "healthy"
        assert "hidden" not in json.dumps(running.get("api/v1/lines"))
        kept = b"".join(each.read_bytes() for each in (tmp_path / "journal").rglob("*") if each.is_file())
        assert b"p-dead" in kept
        assert b"hidden" not in kept
        command = [sys.executable, "-m", "reachline", "explain", "outbounds/p-dead", "--center", running.url]
        told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert "outbounds/p-dead" in told.stdout

        _write(path, url, "p-new")

        names = lambda: {each["line"] for each in running.get("api/v1/lines")["lines"]}  # noqa: E731
        eventually(lambda: "outbounds/p-new" in names() or None, within=60, what="the new one is a line")
        path.write_text('{"outbounds": [')
        eventually(lambda: "document_refused" in running.said or None, within=60, what="a wrong one is refused")
        assert "outbounds/p-new" in names()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "up: FILE: is needed, or --door with an Xray document"),
        (("a.yaml", "--door", "x.json"), "up: --door: takes the place of FILE"),
        (("a.yaml", "--remarks", "x"), "up: --remarks: is for --door"),
        (("--door", "x.json", "--demo"), "up: --door: is not for --demo"),
        (("--door", "x.json"), "x.json: cannot be read"),
    ],
)
def test_what_is_named_in_vain_is_refused(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", *arguments]) == 2

    assert words in capsys.readouterr().err
