"""A whole HTTP call on a kept connection: by httpx2 alone, through the SDK, and through an Envoy on the same machine.

All three are made in turn, a few at a time, against one server in a process of its own, so that whatever else the machine does
slows all of them; what is compared are the rounds, each with itself.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from tests.differential.real import binary, bootstrap, running

import reachline
from reachline.integrations.httpx2 import Transport
from reachline.testing.bench import Figure

BLOCK = 40
"""Calls of one kind before those of the next: a hundredth of a second."""

_SERVER = """
import selectors, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
known = selectors.DefaultSelector()
known.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in known.select():
        if key.fileobj is listener:
            made, _ = listener.accept()
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            known.register(made, selectors.EVENT_READ)
        elif key.fileobj.recv(65536):
            key.fileobj.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-type: text/plain\\r\\ncontent-length: 2\\r\\n\\r\\nok")
        else:
            known.unregister(key.fileobj)
            key.fileobj.close()
"""


class Way(NamedTuple):
    """One way to make the same call."""

    client: httpx2.Client
    url: str
    headers: dict[str, str]


class Took(NamedTuple):
    """Microseconds of one call, the middle of a block: by the clock, and of this thread's processor."""

    wall: float
    processor: float


@contextmanager
def server() -> Iterator[int]:
    """The port of one that answers every request alike."""
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def block(way: Way) -> Took:
    walls, began = [], time.thread_time()
    for _ in range(BLOCK):
        at = time.perf_counter()
        answer = way.client.get(way.url, headers=way.headers)
        walls.append(time.perf_counter() - at)
        assert answer.status_code == 200
    return Took(statistics.median(walls) * 1e6, (time.thread_time() - began) / BLOCK * 1e6)


def figure(what: str, unit: str, values: list[float], bound: str = "") -> Figure:
    return Figure(what, unit, statistics.median(values), min(values), max(values), len(values), bound)


def figures(rounds: int) -> list[Figure]:
    """Each way by clock and processor, and what one costs more than another, in percent of the other, round by round."""
    with ExitStack() as stack:
        port = stack.enter_context(server())
        ways = dict(_ways(stack, port))
        for way in ways.values():
            block(way)
        rows: list[dict[str, Took]] = [{name: block(way) for name, way in ways.items()} for _ in range(rounds)]
    found = []
    for name in ways:
        found.append(figure(f"GET {name}", "µs", [row[name].wall for row in rows]))
        found.append(figure("  of it our processor", "µs", [row[name].processor for row in rows]))
    more = [100 * (row["through the SDK"].processor / row["by httpx2 alone"].processor - 1) for row in rows]
    later = [100 * (row["through the SDK"].wall / row["by httpx2 alone"].wall - 1) for row in rows]
    found += [figure("the SDK adds, processor", "%", more, "≤ 5"), figure("the SDK adds, clock", "%", later, "≤ 5")]
    if "through Envoy" in ways:
        beside = [100 * (row["through Envoy"].wall / row["by httpx2 alone"].wall - 1) for row in rows]
        found.append(figure("a local Envoy adds, clock", "%", beside, "above the SDK's"))
    return found


def _ways(stack: ExitStack, port: int) -> Iterator[tuple[str, Way]]:
    target = f"http://127.0.0.1:{port}"
    lines = stack.enter_context(reachline.connect_sync(clusters={"payments": {"targets": [target], "outliers": True}}))
    bare = stack.enter_context(httpx2.Client(timeout=5.0, trust_env=False))
    ours = stack.enter_context(httpx2.Client(transport=Transport(lines), timeout=5.0, trust_env=False))
    yield "by httpx2 alone", Way(bare, f"{target}/pay", {})
    yield "through the SDK", Way(ours, "http://payments/pay", {})
    envoy = binary()
    if envoy is None:
        print("no Envoy (`make envoy`): its rows are missing")
        return
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    endpoint: dict[str, Any] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}
    cluster = {
        "name": "payments",
        "load_assignment": {"cluster_name": "payments", "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
        "outlier_detection": {},
    }
    beside = stack.enter_context(running(envoy, bootstrap([cluster], directory), directory))
    theirs = stack.enter_context(httpx2.Client(timeout=5.0, trust_env=False))
    yield "through Envoy", Way(theirs, f"http://127.0.0.1:{beside.port}/pay", {"x-cluster": "payments"})
