from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import context, trace

from reachline.model import LineId, Version
from reachline.upstream import Cluster, LineList, Listed
from reachline.upstream.listing import target


class Span(trace.NonRecordingSpan):
    def __init__(self, *, recording: bool = True) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.recording, self.said = recording, dict[str, object]()

    def is_recording(self) -> bool:
        return self.recording

    def set_attribute(self, key: str, value: object) -> None:
        self.said[key] = value


@contextmanager
def current(span: Span) -> Iterator[Span]:
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield span
    finally:
        context.detach(token)


def cluster() -> Cluster:
    made = Cluster("payments", clock=time.monotonic, rng=random.Random(1))
    row = Listed(LineId("payments/a"), target("tcp://127.0.0.1:9"), 100, 100)
    made.replace(LineList(cluster="payments", lines=(row,), version=Version(1, 1)), source="center")
    made.wake()
    return made


def test_a_call_says_on_its_callers_span_which_line_it_took_and_how_it_ended() -> None:
    with current(Span()) as span, cluster().attempt() as call:
        call.status(503)

    assert span.said == {
        "reachline.cluster": "payments",
        "reachline.line": "payments/a",
        "reachline.outcome": "errors",
    }


def test_a_span_that_nobody_records_is_told_nothing() -> None:
    with current(Span(recording=False)) as span, cluster().attempt():
        pass

    assert span.said == {}


def test_a_pick_alone_says_nothing() -> None:
    with current(Span()) as span:
        cluster().pick()

    assert span.said == {}


@pytest.mark.parametrize("module", ["opentelemetry", "opentelemetry.trace"])
def test_nobody_who_does_not_trace_is_made_to(module: str) -> None:
    code = f"import sys, reachline; c = reachline.connect_sync(clusters=['p'], wait=0); c.cluster('p').attempt().__enter__(); assert {module!r} not in sys.modules"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
