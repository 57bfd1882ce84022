"""A center killed at any moment of a storm: whatever it acknowledged, by an Ack or by a 202, its journal has.

Frames and posts are ours, the center is a real process, and the journal is read before the next center opens it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import httpx2
import pytest
from tests.e2e.world import ENDS_WITHIN, World

from reachline.errors import RemoteProtocolError
from reachline.model import Counts, Kind, Reading, Version
from reachline.net import rpc
from reachline.store.records import Bodies, Outcomes, Record, Reported
from reachline.store.replay import replay
from reachline.store.segment import Segment, listed
from reachline.testing.center import FrameAgent
from reachline.testing.wait import until
from reachline.wire.frame import Hello

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]  # a minute, on a machine that is not busy

SEED: Final = 20_261_130
KILLS: Final = 15
AGENTS: Final = ("a1", "a2", "a3")
POSTERS: Final = 2
LINE: Final = "shop/a"
GONE: Final = (ConnectionError, TimeoutError, RemoteProtocolError)


def seen(stamp: int) -> Reading:
    """A reading that no other heartbeat carries: its count is its name."""
    return Reading(Kind.TCP, Counts(ok=stamp), sent=stamp, rounds=3, rounds_ok=3, fresh_ok=stamp)


@dataclass
class Heard:
    """What a center said before it died."""

    acknowledged: set[int] = field(default_factory=set)
    """Stamps of heartbeats and batches."""
    versions: list[Version] = field(default_factory=list)


async def talk(agent: FrameAgent, stamps: Iterator[int], sent: dict[int, int], rng: Random) -> None:
    """Evidence, and in between what needs no place in the journal, so that acknowledgements press on each other."""
    with contextlib.suppress(*GONE):
        while True:
            stamp, sequence = next(stamps), agent.sequence + 1
            sent[sequence] = stamp
            await agent.report({LINE: seen(stamp)})
            if rng.random() < 0.5:
                await agent.report({})
            if rng.random() < 0.2:
                await agent.report({LINE: seen(stamp)}, sequence=sequence)
            await asyncio.sleep(rng.uniform(0, 0.01))


async def post(client: httpx2.AsyncClient, name: str, stamps: Iterator[int], heard: Heard) -> None:
    with contextlib.suppress(httpx2.TransportError):
        while True:
            stamp = next(stamps)
            batch = {"client": name, "cluster": "shop", "outcomes": [{"line": LINE, "ok": stamp}]}
            answer = await client.post("/api/v1/outcomes", json=batch)
            assert answer.status_code == 202
            heard.acknowledged |= {stamp} if answer.json()["journalled"] else set()


async def watch(client: httpx2.AsyncClient, heard: Heard) -> None:
    with contextlib.suppress(httpx2.TransportError):
        while True:
            epoch, _, counter = (await client.get("/api/v1/clusters/shop/lines")).json()["version"].partition(".")
            heard.versions.append(Version(int(epoch), int(counter)))
            await asyncio.sleep(0.02)


async def storm(there: World, number: int, stamps: Iterator[int], rng: Random) -> Heard:
    """Until the center is killed: after so many acknowledgements, and a moment of chance."""
    heard, sent = Heard(), {name: dict[int, int]() for name in AGENTS}
    agents: list[FrameAgent] = []
    async with asyncio.timeout(30), AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=there.center, timeout=20, trust_env=False))
        for name in AGENTS:
            attached = await rpc.attach(f"127.0.0.1:{there.grpc}", timeout=5)
            stack.push_async_callback(attached.close)
            agent = FrameAgent(name, attached, Hello(release="test", agent=name, boot=f"b{number}"))
            agents.append(agent)
            tasks.create_task(agent.listen())
            await agent.send(agent.hello)
            tasks.create_task(talk(agent, stamps, sent[name], Random(rng.random())))
        for poster in range(POSTERS):
            tasks.create_task(post(client, f"c{poster}", stamps, heard))
        tasks.create_task(watch(client, heard))
        wanted = rng.choice([0, 1, 5, 20, 60])
        await until(lambda: sum(agent.acknowledged for agent in agents) >= wanted, what="acknowledgements")
        await asyncio.sleep(rng.uniform(0, 0.05))  # the random point of death itself, not a wait for anything
        there.kill("center")
    for agent in agents:
        heard.acknowledged |= {stamp for at, stamp in sent[agent.id].items() if at <= agent.acknowledged}
    return heard


def recovered(paths: Iterable[Path]) -> Iterator[Record]:
    for path in paths:
        bodies = Bodies()
        with Segment(path) as segment:
            for row in segment.records():
                yield bodies.read(row.kind, row.scope, row.at_ms, row.body)


def stamps_of(record: Record) -> set[int]:
    match record:
        case Reported():
            # Counts of a calm window are held still in the journal; what ended since the last heartbeat is kept exactly.
            return {reading.fresh_ok for _, reading in record.readings}
        case Outcomes():
            return {row.ok for row in record.rows}
        case _:
            return set()


@contextmanager
def center(directory: Path) -> Iterator[World]:
    """A center whose agents are ours to play."""
    there = World(directory, preset="quick_recovery", targets="abc", agents=AGENTS)
    try:
        there.start_center()
        yield there
    finally:
        for process in there.running.values():
            process.kill()
            process.wait(ENDS_WITHIN)


def test_after_kill_9_anywhere_in_a_storm_the_journal_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    rng, stamps = Random(SEED), count(1)
    acknowledged, versions, read = 0, list[Version](), set[Path]()
    spoke = 0  # centers that lived long enough to tell a version
    with center(tmp_path) as there:
        for number in range(KILLS):
            heard = asyncio.run(storm(there, number, stamps, rng))

            new = [path for path in listed(there.journal) if path not in read]
            read.update(new)
            kept = {stamp for record in recovered(new) for stamp in stamps_of(record)}
            assert heard.acknowledged <= kept
            acknowledged += len(heard.acknowledged)
            versions += heard.versions
            spoke += bool(heard.versions)
            there.start_center()

        last = there.get("/api/v1/clusters/shop/lines")["version"].split(".")
        versions.append(Version(*map(int, last)))
        assert there.stop() == {"center": 0}
    assert versions == sorted(versions)
    assert len({version.epoch for version in versions}) == spoke + 1, "each start has an epoch of its own"
    assert spoke >= KILLS // 3, "or the versions of this test mean nothing"
    assert acknowledged > KILLS * 20
    done = replay(there.journal)
    assert done.difference is None
    assert done.segments > KILLS
