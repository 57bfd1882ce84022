"""The command as a process: it says where it is, ends on SIGTERM once what is under way is over, and another may take its place meanwhile."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.proxy.world import WITHIN, Endpoint, ask, body, cluster, drain, forward, get, http, status

from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e


@contextmanager
def started(path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """(the process, its first listener's port)."""
    command = [sys.executable, "-m", "reachline", "proxy", str(path), "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"in 127\.0\.0\.1:(\d+)", line)
            assert found, line or process.communicate()[1]
            yield process, int(found[1])
        finally:
            process.kill()


def test_it_ends_on_sigterm_once_what_is_under_way_is_over(endpoint: Endpoint, tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.json"
    path.write_text(json.dumps(http([forward("/", "a")], [cluster("a", [endpoint.port])])))
    with started(path) as (process, port), closing(socket.create_connection(("127.0.0.1", port), WITHIN)) as client:
        client.sendall(get("/held"))
        eventually(lambda: endpoint.asked)
        process.send_signal(signal.SIGTERM)
        threading.Timer(0.2, endpoint.gate.set).start()

        assert body(drain(client)) == b"held"
        client.close()
        assert process.wait(WITHIN) == 0


def test_another_one_takes_its_place_without_a_refused_connection(endpoint: Endpoint, tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.json"
    given = http([forward("/", "a")], [cluster("a", [endpoint.port])])
    del given["admin"]
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        given["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] = port
        path.write_text(json.dumps(given))
        with started(path) as (old, _), started(path) as (_, _):
            assert status(ask(port, get("/x"))) == 200
            old.send_signal(signal.SIGTERM)
            eventually(lambda: old.poll() is not None)

            assert [status(ask(port, get("/x"))) for _ in range(5)] == [200] * 5


def test_a_document_that_is_wrong_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.yaml"
    path.write_text("static_resources:\n  listeners:\n  - {name: in, adress: {}}\n")

    done = subprocess.run(
        [sys.executable, "-m", "reachline", "proxy", str(path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 2
    assert f"{path}:3:" in done.stderr
    assert "adress" in done.stderr
