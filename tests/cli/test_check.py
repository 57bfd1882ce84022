"""`reachline check now`: who is well, who is not, and what a script is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reachline.cli.main import main
from reachline.testing.parts import free_port


class _Answer(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def _document(path: Path, url: str, *, is_dead: bool, observes: bool = True) -> str:
    dead = {"address": "127.0.0.1", "port": free_port()}
    document: dict[str, Any] = {
        "outbounds": [
            {"tag": "other", "protocol": "freedom"},
            {"tag": "s-well", "protocol": "freedom"},
            *([{"tag": "s-dead", "protocol": "socks", "settings": {"servers": [dead]}}] if is_dead else []),
        ]
    }
    if observes:
        document["burstObservatory"] = {
            "subjectSelector": ["s-"],
            "pingConfig": {"destination": url, "interval": "60s"},
        }
    path.write_text(json.dumps(document))
    return str(path)


def test_all_well_is_told_and_the_exit_code_says_so(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["check", "now", _document(tmp_path / "x.json", url, is_dead=False), "-o", "json", "--within", "60"])

    found = json.loads(capsys.readouterr().out)
    assert (code, set(found["observatory"]), found["unknown"]) == (0, {"s-well"}, [])
    assert found["observatory"]["s-well"]["alive"] is True


def test_one_that_is_dead_is_told_with_its_reason(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", "now", _document(tmp_path / "x.json", url, is_dead=True), "--within", "60"])

    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert [line.split()[:2] for line in lines[1:]] == [["s-dead", "dead"], ["s-well", "alive"]]
    assert "refused" in lines[1]


def test_a_document_that_observes_nothing_is_refused(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["check", "now", _document(tmp_path / "x.json", url, is_dead=False, observes=False)])

    assert code == 2
    assert "add observatory or burstObservatory" in capsys.readouterr().err
