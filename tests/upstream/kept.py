"""Kept clusters for tests: by settings as a caller writes them, with a clock that the test moves, fed by hand or by their keeper."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from reachline.core.checking import Verdict
from reachline.members import Address, Member, Membership, Update, compare
from reachline.net.ads import Ads
from reachline.upstream.checks import Target
from reachline.upstream.finding import discovery_of
from reachline.upstream.keeper import Keeper
from reachline.upstream.kept import KeptCluster
from reachline.upstream.reading import read
from reachline.upstream.settings import ClusterSettings, ControlPlane


class Clock:
    """Time that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def settings(**document: Any) -> ClusterSettings:
    return read({"c": document}, place="test")["c"]


def addresses(count: int) -> list[str]:
    return [f"10.0.0.{number}:80" for number in range(1, count + 1)]


def kept(clock: Callable[[], float] | None = None, seed: int = 1, **document: Any) -> KeptCluster:
    """A cluster of static endpoints that serves them, without a driver."""
    made = KeptCluster(settings(**document), clock=clock or Clock(), wall=lambda: 0.0, rng=Random(seed))
    made.update(compare(Membership(), made.settings.membership))
    made.wake()
    return made


def members(*hosts: str, **more: Any) -> Membership:
    return Membership(members=tuple(Member(address=Address(host, 80), **more) for host in hosts))


def moved(cluster: KeptCluster, after: Membership, **more: Any) -> Update:
    """The update to another membership, taken by the cluster."""
    before = Membership(members=tuple(row.member for row in cluster.rows()))
    update = compare(before, after, **more)
    cluster.update(update)
    return update


def call(cluster: KeptCluster, address: str, code: int = 200, times: int = 1) -> None:
    """That many calls to one endpoint, through `attempt`."""
    while times:
        with cluster.attempt() as attempt:
            if attempt.pick is not None and attempt.pick.target == address:
                attempt.status(code)
                times -= 1
            else:
                attempt.fail("agent")


def picks(cluster: KeptCluster, count: int = 100) -> Counter[str]:
    return Counter(pick.target if (pick := cluster.pick()) else "nobody" for _ in range(count))


def no_ads(plane: ControlPlane) -> Ads:
    raise AssertionError(plane)


class Peers:
    """Endpoints as checks meet them: each answers what it is told to, by `address:port`."""

    def __init__(self) -> None:
        self.answers: dict[str, Verdict] = {}
        self.asked: Counter[str] = Counter()
        self.waits = 0.0

    def of(self, target: Target) -> Peer:
        return Peer(self, target.key)


class Peer:
    def __init__(self, peers: Peers, key: str) -> None:
        self.lost = asyncio.Event()
        self._peers, self._key = peers, key

    async def ask(self) -> Verdict | None:
        self._peers.asked[self._key] += 1
        await asyncio.sleep(self._peers.waits)
        return self._peers.answers.get(self._key, Verdict())

    def close(self) -> None:
        return


@asynccontextmanager
async def keeping(
    discovery: Any = None, peers: Peers | None = None, told: list[Mapping[str, object]] | None = None, **document: Any
) -> AsyncIterator[tuple[KeptCluster, list[str]]]:
    """A cluster and its keeper on the running loop; the list has its name once it is settled."""
    loop, settled = asyncio.get_running_loop(), list[str]()

    def stir() -> None:
        loop.call_soon(keeper.stir)

    made = KeptCluster(
        settings(**document),
        clock=loop.time,
        wall=lambda: 0.0,
        rng=Random(1),
        stir=stir,
        hear=told.append if told is not None else None,
    )
    found = discovery or discovery_of(made.settings, Random(1), no_ads)
    questions = (peers or Peers()).of
    keeper = Keeper(made, found, settled=settled.append, questions=questions)
    made.wake()
    task = asyncio.create_task(keeper.run())
    try:
        yield made, settled
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
