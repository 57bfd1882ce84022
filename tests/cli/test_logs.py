"""What the daemons write: a bug's traceback names places, never what variables held, in either form."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import Iterator

import pytest

from reachline.cli.logs import LogFormat, start_logging

log = logging.getLogger("reachline.test")


@pytest.fixture(autouse=True)
def kept_logging() -> Iterator[None]:
    """The process's logging is as it was afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("reachline")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def refused(token: str) -> None:
    raise ValueError(f"no such moment, asked with {len(token)} characters")


@pytest.mark.parametrize("form", list(LogFormat))
def test_a_traceback_names_places_and_never_what_variables_held(
    form: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    start_logging(form)
    headers = {"Authorization": "Bearer top-secret-token"}

    try:
        refused(headers["Authorization"].removeprefix("Bearer "))
    except ValueError:
        log.exception("request_failed", extra={"path": "/api/v1/explain"})

    said = capsys.readouterr().err
    assert "request_failed" in said
    assert "in refused" in said
    assert "ValueError: no such moment, asked with 16 characters" in said
    assert "top-secret" not in said
    assert said.count("\n") < 20, "frames, without a listing of each"


def test_json_is_one_line_an_event_also_with_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(LogFormat.JSON)

    try:
        refused("x")
    except ValueError:
        log.exception("request_failed")

    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "request_failed"


def test_a_want_of_descriptors_is_one_line_however_many_connections_wait(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(LogFormat.JSON)
    loop = asyncio.new_event_loop()

    for _ in range(500):
        error = OSError(errno.EMFILE, "Too many open files")
        loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": error})
    loop.call_exception_handler({"message": "something else"})
    loop.close()

    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [each["event"] for each in said] == ["descriptors_used_up", "something else"]
    assert "exception" not in said[0]
