"""The command with an Xray document: it is told from an Envoy bootstrap, says where it listens, ends on SIGTERM, and refuses by place."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

_INBOUND = {"tag": "in", "protocol": "socks", "listen": "127.0.0.1", "port": 0}


def _command(tmp_path: Path, inbound: dict[str, Any], *options: str) -> list[str]:
    path = tmp_path / "xray.json"
    path.write_text(json.dumps({"inbounds": [inbound], "outbounds": [{"protocol": "freedom"}]}))
    return [sys.executable, "-m", "reachline", "proxy", str(path), "--log-level", "error", *options]


def test_it_serves_a_document_until_told_to_stop(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        subprocess.Popen(_command(tmp_path, _INBOUND), stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"in 127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found
            with socket.create_connection(("127.0.0.1", int(found[1]))) as client:
                client.sendall(
                    b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + target.getsockname()[1].to_bytes(2) + b"hello"
                )
                with target.accept()[0] as made:
                    assert made.recv(5) == b"hello"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_an_open_relay_is_refused_with_its_place(tmp_path: Path) -> None:
    command = _command(tmp_path, {**_INBOUND, "listen": "0.0.0.0"})

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 2
    assert re.search(r"xray\.json:1:\d+", done.stderr)
    assert "inbounds[0].listen" in done.stderr
    assert "would be an open relay" in done.stderr


def test_options_of_xray_are_refused_where_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.yaml"
    path.write_text("static_resources: {}\n")
    command = [sys.executable, "-m", "reachline", "proxy", str(path), "--compat", "strict"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 2
    assert "are of Xray documents" in done.stderr
