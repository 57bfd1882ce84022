"""Bad peers all at once, over and over, and a good line beside them: each ends in its class, and nothing else happens."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.bad.peers import CASES, Case, certificates, silent
from tests.bad.room import GROWTH, Held, held, settled, undisturbed
from tests.net.conftest import Ended, Lab, make_job, serving

from reachline.doors import outbounds
from reachline.net.engine import Job

pytestmark = pytest.mark.alone
"""Whoever does not answer is told by time from whoever answers badly: a machine that stands still makes all of them silent."""

ROUNDS = 8
WARM = 2
"""Rounds after which whatever is made once (TLS contexts, arenas) has been made."""
GOOD = 25
"""Attempts on the good line in each round."""


class Run(NamedTuple):
    """All that came of it: results by case, those of the good line, and what the process held before and after."""

    by_case: dict[str, list[Ended]]
    good: list[Ended]
    before: Held
    after: Held
    live: int


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return asyncio.run(_run(tmp_path_factory.mktemp("bad")))


async def _run(directory: Path) -> Run:
    trusted, contexts = certificates(directory)
    async with contextlib.AsyncExitStack() as stack:
        jobs: list[Job] = []
        for token, case in enumerate(CASES.values()):
            port = await stack.enter_async_context(serving(case.peer, tls=contexts.get(case.certificate)))
            jobs.append(job(case, port, token, trusted))
        well = await stack.enter_async_context(serving(silent))
        good = [make_job(f"tcp://127.0.0.1:{well}", token=1_000 + number) for number in range(GOOD)]
        engine = await stack.enter_async_context(Lab())
        for _ in range(WARM):
            await engine.probe(*jobs, *good)
        engine.ended.clear()
        before = held()
        for _ in range(ROUNDS):
            await engine.probe(*jobs, *good)
        results, live = engine.ended.copy(), engine.engine.counters().live
        engine.ended.clear()
        after = await settled(before)
    by_case: dict[str, list[Ended]] = defaultdict(list)
    names = tuple(CASES)
    for result in results:
        by_case[names[result.token] if result.token < 1_000 else ""].append(result)
    return Run(by_case, by_case.pop(""), before, after, live)


def job(case: Case, port: int, token: int, trusted: Path) -> Job:
    options = {"ca": str(trusted), **case.options} if case.certificate else case.options
    return make_job(
        case.target.format(port=port), options, token=token, timeout=0.25, patience=0.1,
        hops=outbounds.hops(case.via.format(port=port)) if case.via else (),
    )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_bad_peer_ends_in_its_class_every_time(run: Run, name: str) -> None:
    case, results = CASES[name], run.by_case[name]

    assert [result.failure for result in results] == [case.failure] * ROUNDS
    assert [result.note for result in results if not re.search(re.escape(case.note), result.note)] == []


def test_a_good_line_beside_them_notices_nothing(run: Run) -> None:
    undisturbed(run.good, ROUNDS * GOOD)


def test_nothing_is_left_of_them(run: Run) -> None:
    assert run.live == 0
    assert run.after.files <= run.before.files
    assert run.after.memory - run.before.memory < GROWTH
