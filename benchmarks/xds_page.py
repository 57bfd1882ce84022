"""`docs/benchmarks/xds.md` from the results of the parts that were measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from reachline.testing.bench import Figure

PAGE: Final = Path(__file__).parents[1] / "docs" / "benchmarks" / "xds.md"
PARTS: Final = {
    "envoy": "A change of weights in a real Envoy: from the board's change to the first call that goes elsewhere, rendering included.",
    "fan": "A changed assignment told to many clients, each on a connection of its own, ACKs read. The control plane is one process on one"
    " loop; the clients are another process on the same machine. Beside it stands a bare `grpc.aio` server that sends the same bytes"
    " and reads the same ACKs, without looking at them: what is above its figures is ours, what is below nobody has who uses it.",
    "render": "One cluster rendered for Envoys, each line a locality: processor time.",
    "evidence": "What data planes tell back, heard: processor time.",
    "proxy": "Our own proxy beside an Envoy of one worker, both with access logs, retries and health as a document has them.",
    "http2": "The same by HTTP/2: eight requests under way on each of four connections, to endpoints of either protocol.",
}


def write(results: Path) -> None:
    """The page anew."""
    PAGE.write_text("\n".join(_page(results)))


def _page(results: Path) -> Iterator[str]:
    yield "# Steering data planes\n"
    yield "*Written by `make bench-xds ARGS=--write-docs`; not to be edited.*\n"
    yield "What it costs to tell Envoys, gRPC clients and our own proxy what to do, and to hear what they tell. The median of several runs"
    yield "beside their span; what else runs on the machine while it measures is in the figures.\n"
    short: list[str] = []
    for part, what in PARTS.items():
        path = results / f"xds-{part}.json"
        if not path.exists():
            short.append(f"- Not measured: {part}.")
            continue
        found = json.loads(path.read_text())
        figures = [Figure(**row) for row in found["figures"]]
        yield f"{what}\n"
        yield from _table(figures)
        made = found["machine"]
        yield f"\nMade {made['at']}, {made['cores']} cores with {made['load']} processes that want them, {made['processor']}, Python {made['python']}, release {made['release']}.\n"
        short += _short(figures)
    yield "## What falls short\n"
    yield from short or ["Nothing."]
    yield ""


def _table(figures: Sequence[Figure]) -> Iterator[str]:
    yield "| what | measured | span | bound |"
    yield "| --- | --- | --- | --- |"
    for row in figures:
        yield f"| {row.what.strip()} | {row.median:,.4g} {row.unit} | {row.low:,.4g} to {row.high:,.4g} | {row.bound} |"


def _short(figures: Sequence[Figure]) -> Iterator[str]:
    for row in figures:
        sign, _, number = row.bound.partition(",")[0].partition(" ")
        if number and (row.median > float(number) if sign == "≤" else row.median < float(number)):
            yield f"- {row.what.strip()}: {row.median:,.4g} {row.unit}, asked {row.bound}."
