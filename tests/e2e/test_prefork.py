"""A server that loads its application once and forks: gunicorn and uWSGI with four workers, calls before, during and after, then SIGTERM.

PREFORK_ROUNDS sets how often; the promise is a hundred times without a hang, a zombie, or more lost than the last second.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from reachline.testing.door import Peer, pair, serving
from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e

ROUNDS = int(os.environ.get("PREFORK_ROUNDS", "2"))
LAST_SECOND = 1.0

APPLICATION = """
import os, struct, sys, threading, time
import reachline

is_busy = os.environ["BUSY"] == "1"
client = reachline.connect_sync(os.environ["CENTER"], clusters=["payments"], service="prefork", wait=5 if is_busy else 0)
payments = client.cluster("payments")
log = os.open(os.environ["CALLS"], os.O_WRONLY | os.O_APPEND)

def one():
    with payments.attempt() as attempt:
        assert attempt.line
    os.write(log, struct.pack("=d", time.monotonic()))

def busy():
    # The parent goes on calling while it forks: locks are held and picks under way at each fork.
    while True:
        one()
        time.sleep(0.0005)

if is_busy:
    threading.Thread(target=busy, daemon=True).start()

def application(environ, start_response):
    client.wait(5)
    one()
    start_response("200 OK", [("content-length", "2")])
    return [b"ok"]
"""


@pytest.fixture
def peer() -> Iterator[Peer]:
    with serving(pair(60, 40)) as made:
        yield made


def by_gunicorn(listener: int) -> list[str]:
    return [
        *(sys.executable, "-m", "gunicorn", "--preload", "--workers", "4", "--graceful-timeout", "5"),
        *("--no-control-socket", "--bind", f"fd://{listener}", "shop:application"),
    ]


def by_uwsgi(listener: int) -> list[str]:
    """Of the wheel `pyuwsgi`. Threads have to be asked for; `die-on-term` is what everybody else does by SIGTERM."""
    return [
        *(sys.executable, "-c", "import pyuwsgi; pyuwsgi.run()", "--master", "--workers", "4", "--enable-threads"),
        *("--die-on-term", "--need-app", "--disable-logging", "--http-socket", f"fd://{listener}"),
        *("--worker-reload-mercy", "5", "--module", "shop:application"),
    ]


class Server(NamedTuple):
    module: str
    command: Callable[[int], list[str]]
    is_busy: bool
    """Whether the parent makes calls while it forks."""


SERVERS = {
    "gunicorn": Server("gunicorn", by_gunicorn, is_busy=True),
    # A worker hangs where a thread of the master holds the interpreter at the fork, for uWSGI asks it for nothing.
    "uwsgi": Server("pyuwsgi", by_uwsgi, is_busy=False),
}


@contextlib.contextmanager
def prefork(kind: Server, peer: Peer, directory: Path, root: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The server in a process group of its own, and its port; whatever is left of it at the end is killed."""
    (directory / "shop.py").write_text(APPLICATION)
    calls = directory / "calls"
    calls.write_bytes(b"")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = kind.command(listener.fileno())
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(root / "src"), str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "CENTER": peer.url,
            "CALLS": str(calls),
            "BUSY": str(int(kind.is_busy)),
        }
        with (directory / "log").open("wb") as log:
            server = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdout=log,
                stderr=log,
                pass_fds=(listener.fileno(),),
                start_new_session=True,
            )
    try:
        yield server, port
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def ask(port: int, stopped: threading.Event, answered: list[int]) -> None:
    """Requests one after the other until told to stop, or the server is gone."""
    while not stopped.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/")
            answered.append(connection.getresponse().status)
        except (OSError, http.client.HTTPException):
            time.sleep(0.01)
        finally:
            connection.close()


def is_gone(group: int) -> bool:
    """Whether no process of the group is left, not even one that nobody waited for."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("name", SERVERS)
def test_a_prefork_server_ends_clean_and_loses_no_more_than_the_last_second(
    peer: Peer, tmp_path: Path, root: Path, name: str, number: int
) -> None:
    kind = SERVERS[name]
    if find_spec(kind.module) is None:
        pytest.skip(f"{kind.module} is not installed")
    answered: list[int] = []
    stopped = threading.Event()
    with prefork(kind, peer, tmp_path, root) as (server, port):
        threads = [threading.Thread(target=ask, args=(port, stopped, answered)) for _ in range(4)]
        for each in threads:
            each.start()
        try:
            eventually(lambda: len(answered) >= 100, within=60)
            # Four workers, and their parent if it calls, have each posted: none of them is deaf after the fork.
            eventually(lambda: len({post["client"] for post in peer.door.posts}) >= 4 + kind.is_busy, within=60)
            server.send_signal(signal.SIGTERM)
            status = server.wait(timeout=60)
        finally:
            stopped.set()
            for each in threads:
                each.join()
        log = (tmp_path / "log").read_text()

        assert status == 0, log
        assert "Traceback" not in log, log
        assert eventually(lambda: is_gone(server.pid), within=20)

    times = [each for (each,) in struct.iter_unpack("=d", (tmp_path / "calls").read_bytes())]
    lost = len(times) - sum(peer.door.outcomes().values())
    late = sum(each > max(times) - LAST_SECOND for each in times)
    assert set(answered) == {200}
    # Never more than were made: nothing is sent twice. (The parent's thread may be killed between a call and its note of it.)
    assert -1 <= lost <= late
