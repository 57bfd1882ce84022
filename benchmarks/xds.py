"""What it costs to tell data planes: from a push to its effect in a real Envoy, a changed assignment told to 500 subscribers, and
rendering a cluster of 10 000 lines for them; what it costs to hear what they tell back; and our own proxy beside Envoy.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.xds_evidence import evidence_figures
from benchmarks.xds_fan import SUBSCRIBERS, fan_figures, figure, nobody
from benchmarks.xds_http2 import http2_figures
from benchmarks.xds_page import PARTS, write
from benchmarks.xds_proxy import proxy_figures
from tests.center.steered import Center
from tests.differential.real import binary, started

from reachline.center.board import Cluster
from reachline.center.xds.chain import forms
from reachline.center.xds.door import DELTA, SOTW
from reachline.center.xds.rendering import Rendering, Surveys
from reachline.center.xds.resources import Kind
from reachline.center.xds.serving import Serving
from reachline.cli.bootstraps import Way, envoy
from reachline.model import Health
from reachline.net import collector, rpc
from reachline.testing.bench import RESULTS, Figure, finish, measured
from reachline.testing.parts import free_port
from reachline.wire.ads import EDS
from reachline.wire.ads_owing import Answer
from reachline.wire.xds_serving import Splicer

DOCUMENT = """
clusters:
  shop:
    lines: {{a: "http://127.0.0.1:{a}", b: "http://127.0.0.1:{b}"}}
    listen: "127.0.0.1:{listen}"
"""
FLIPS = 60


# -- a real Envoy --------------------------------------------------------------------------------------------------------


@contextmanager
def backend(name: str) -> Iterator[int]:
    """An HTTP server that says its name."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            # In one piece: two would wait for each other's acknowledgement.
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n" + name.encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


class Plane:
    """Steering and serving on a loop in a thread of its own."""

    def __init__(self, center: Center) -> None:
        self.center = center
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    async def _start(self) -> int:
        self.steering = self.center.steering()
        serving = Serving(self.center.cells, clock=lambda: 0, counts=Counter(), settled=self.steering.settled)
        self._server = await rpc.serve(["127.0.0.1:0"], nobody, services={SOTW: serving.sotw, DELTA: serving.delta})
        return self._server.ports[0]

    def weighs(self, weights: dict[str, int]) -> float:
        """Published now; the moment before anything of it was done."""
        began = time.perf_counter()
        self._loop.call_soon_threadsafe(self._publish, weights)
        return began

    def _publish(self, weights: dict[str, int]) -> None:
        for name, weight in weights.items():
            self.center.weighs(name, weight, Health.HEALTHY if weight else Health.UNHEALTHY)
        self.steering.refresh()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.close(0), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def envoy_figures(flips: int) -> list[Figure]:
    """From the board's change to the first call that goes elsewhere, rendering included."""
    found = binary()
    if found is None:
        print("no Envoy: `make envoy`; nothing is said of it")
        return []
    figures = []
    for delta in (False, True):
        with backend("a") as a, backend("b") as b, tempfile.TemporaryDirectory() as directory:
            listen = free_port()
            plane = Plane(Center(DOCUMENT.format(a=a, b=b, listen=listen), Health.HEALTHY))
            document = envoy(Way(node="bench", center=f"127.0.0.1:{plane.port}"), admin="127.0.0.1:1", delta=delta)
            document["admin"]["address"]["socket_address"]["port_value"] = 0
            with started(found, document, Path(directory)):
                took = flipped(plane, listen, flips)
            plane.close()
        variant = "delta" if delta else "state of the world"
        figures.append(figure(f"push to effect in Envoy, {variant}", "ms", took, "≤ 5, goal 3"))
    return figures


def flipped(plane: Plane, listen: int, flips: int) -> list[float]:
    """Milliseconds of each time that all calls go to the other of two lines."""
    door = http.client.HTTPConnection("127.0.0.1", listen, timeout=10)

    def ask() -> str:
        door.request("GET", "/")
        return door.getresponse().read().decode()

    took = []
    for flip in range(flips + 3):
        to, off = "ab"[flip % 2], "ba"[flip % 2]
        began = plane.weighs({to: 100, off: 0})
        while ask() != to:
            pass
        took.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.05)
    door.close()
    return took[3:]


# -- rendering -----------------------------------------------------------------------------------------------------------


def render_figures(lines: int) -> list[Figure]:
    """Of one cluster: all of it from nothing, one line's weight, every line's weight, and the answer's bytes."""
    rows = ", ".join(f'n{at}: "tcp://10.{at >> 16}.{at >> 8 & 255}.{at & 255}:443"' for at in range(lines))
    center = Center(f"clusters: {{shop: {{lines: {{{rows}}}}}}}", Health.HEALTHY)
    document, cluster = forms(center.document), center.board.clusters["shop"].value
    kept = Rendering(Kind.ENVOY)
    counter, surveys = iter(range(1, 1_000_000)), Surveys()

    def whole() -> float:
        fresh = Rendering(Kind.ENVOY)
        return timed(lambda: fresh.update({"shop": cluster}, document, Surveys(), {}))

    def one() -> float:
        now = reweighed(cluster, 1 + next(counter) % 90, only=lines // 2)
        return timed(lambda: kept.update({"shop": now}, document, surveys, {}))

    def every() -> float:
        now = reweighed(cluster, 1 + next(counter) % 90)
        return timed(lambda: kept.update({"shop": now}, document, surveys, {}))

    def spliced() -> float:
        shelf = kept.resources.shelf(EDS)
        answer = Answer(EDS, shelf.version, str(next(counter)), tuple(shelf.by_name.values()))
        return timed(lambda: Splicer().bytes_of(answer))

    return [
        measured(f"{lines} lines rendered from nothing", "ms", whole, bound="≤ 35, goal 20"),
        measured("  one weight is another", "ms", one, bound="≤ 10, goal 5"),
        measured("  every weight is another", "ms", every, bound="≤ 10, goal 5"),
        measured("  the answer's bytes", "ms", spliced),
    ]


def reweighed(cluster: Cluster, weight: int, only: int | None = None) -> Cluster:
    standings = tuple(
        replace(each, weight=weight) if only is None or at == only else each
        for at, each in enumerate(cluster.snapshot.standings)
    )
    return replace(cluster, snapshot=replace(cluster.snapshot, standings=standings))


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of this thread's processor: what others run does not count."""
    began = time.thread_time()
    with collector.held():  # as a center does
        call()
    return (time.thread_time() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", type=int, default=SUBSCRIBERS)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--flips", type=int, default=FLIPS)
    parser.add_argument("--part", choices=PARTS, help="one alone")
    parser.add_argument(
        "--write-docs", action="store_true", help="docs/benchmarks/xds.md anew, of all parts measured so far"
    )
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    parts: dict[str, Callable[[], list[Figure]]] = {
        "envoy": lambda: envoy_figures(options.flips),
        "fan": lambda: fan_figures(options.subscribers),
        "render": lambda: render_figures(options.lines),
        "evidence": evidence_figures,
        "proxy": proxy_figures,
        "http2": http2_figures,
    }
    for part, measure in parts.items():
        if options.part in (None, part) and (figures := measure()):
            finish(f"xds-{part}", figures, directory=options.into)
    if options.write_docs:
        write(options.into)


if __name__ == "__main__":
    main()
