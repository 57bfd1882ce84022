from __future__ import annotations

import asyncio
import random
import socket
import time

import pytest

from reachline.model import Failure, LineId, Version
from reachline.upstream import Attempt, Cluster, LineList, Listed
from reachline.upstream.listing import target


def cluster(patience: float = 1.0) -> Cluster:
    made = Cluster("payments", clock=time.monotonic, rng=random.Random(1), patience=patience)
    row = Listed(LineId("payments/a"), target("tcp://127.0.0.1:9"), 100, 100)
    made.replace(LineList(cluster="payments", lines=(row,), version=Version(1, 1)), source="center")
    made.wake()
    return made


def columns(made: Cluster) -> dict[str, int]:
    return {name: count for name, count in made.stats().calls._asdict().items() if count}


def test_a_block_that_ends_well_is_ok_and_timed() -> None:
    made = cluster()

    with made.attempt() as call:
        assert call
        assert (call.line, call.address, call.url, call.via) == (
            "payments/a",
            ("127.0.0.1", 9),
            "tcp://127.0.0.1:9",
            "direct",
        )

    assert columns(made) == {"ok": 1}
    assert call.elapsed is not None
    assert call.elapsed >= 0


def test_a_real_refusal_passes_through_and_is_counted() -> None:
    made = cluster()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

    with pytest.raises(ConnectionRefusedError), made.attempt():
        socket.create_connection(("127.0.0.1", port))

    assert columns(made) == {"failed": 1}


def test_a_users_own_exception_passes_untouched_and_proves_nothing() -> None:
    made, mine = cluster(), ValueError("mine")

    with pytest.raises(ValueError) as caught, made.attempt():
        raise mine

    assert caught.value is mine
    assert columns(made) == {"unproven": 1}


def said(call: Attempt, word: str, *arguments: object) -> None:
    getattr(call, word)(*arguments)


@pytest.mark.parametrize(
    ("word", "arguments", "column"),
    [
        ("ok", (), "ok"),
        ("fail", (), "failed"),
        ("fail", ("timeout",), "late"),
        ("fail", (Failure.TLS,), "failed"),
        ("fail", ("status",), "errors"),
        ("fail", ("agent",), "unproven"),
        ("fail", ("no such word",), "failed"),
        ("status", (200,), "ok"),
        ("status", (404,), "ok"),
        ("status", (500,), "errors"),
        ("status", (503,), "errors"),
    ],
)
@pytest.mark.parametrize("raises", [False, True])
def test_what_the_caller_says_wins_over_what_the_block_raises(
    word: str, arguments: tuple[object, ...], column: str, raises: bool
) -> None:
    made = cluster()

    try:
        with made.attempt() as call:
            said(call, word, *arguments)
            if raises:
                raise ConnectionResetError
    except ConnectionResetError:
        pass

    assert columns(made) == {column: 1}


def test_the_last_word_counts() -> None:
    made = cluster()

    with made.attempt() as call:
        call.fail()
        call.ok()

    assert columns(made) == {"ok": 1}


def test_a_cancelled_task_saw_a_late_call_once_its_patience_was_over() -> None:
    patient, impatient = cluster(patience=3_600), cluster(patience=0.01)

    async def call(made: Cluster) -> None:
        async with asyncio.timeout(0.05), made.attempt():
            await asyncio.Event().wait()

    for made in (patient, impatient):
        with pytest.raises(TimeoutError):
            asyncio.run(call(made))

    assert columns(patient) == {"unproven": 1}
    assert columns(impatient) == {"late": 1}


def test_a_timeout_inside_the_block_is_late_at_once() -> None:
    made = cluster(patience=3_600)

    async def call() -> None:
        async with made.attempt(), asyncio.timeout(0.01):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        asyncio.run(call())

    assert columns(made) == {"late": 1}


@pytest.mark.parametrize(
    ("method", "nonsense"),
    [("status", "503"), *((method, each) for method in ("status", "fail") for each in (None, 5.5, [], object()))],
)
def test_an_argument_that_makes_no_sense_is_counted_and_the_block_goes_on(method: str, nonsense: object) -> None:
    made, reached = cluster(), False

    with made.attempt() as call:
        getattr(call, method)(nonsense)
        reached = True

    assert reached
    assert columns(made) == {"ok": 1}
    assert made.stats().misuses == 1


def test_an_argument_that_makes_no_sense_leaves_the_word_before_it() -> None:
    made = cluster()

    with made.attempt() as call:
        call.status(503)
        call.status(None)  # type: ignore[arg-type]

    assert columns(made) == {"errors": 1}
