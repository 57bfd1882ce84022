"""Loads that endpoints report with their answers reach the cluster through every library."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.integrations.far import World, world
from tests.integrations.test_httpx import Dialect
from tests.integrations.test_libraries import through_aiohttp, through_requests, through_urllib3

from reachline.members import Membership, compare
from reachline.upstream.kept import KeptCluster
from reachline.upstream.reading import read

URL = "http://payments/pay"


class Kept:
    """The same servers as endpoints of a cluster kept in process that weighs by their reports; its clock is the test's."""

    def __init__(self, fars: World) -> None:
        self.now = time.monotonic()
        policy = {"name": "client_side_weighted_round_robin", "blackout_period": 0}
        targets = [f"http://127.0.0.1:{far.port}" for far in fars.fars.values()]
        settings = read({"payments": {"targets": targets, "policy": policy}}, place="test")["payments"]
        self.cluster = KeptCluster(settings, clock=lambda: self.now, wall=time.time, rng=random.Random(1))
        self.cluster.update(compare(Membership(), settings.membership))
        self.cluster.wake()

    @property
    def clusters(self) -> Mapping[str, KeptCluster]:
        return {"payments": self.cluster}


@pytest.fixture
def fars() -> Iterator[World]:
    with world("a", "b") as made:
        made.fars["a"].load = "TEXT rps_fractional=100,cpu_utilization=0.1"
        made.fars["b"].load = 'JSON {"rpsFractional": 100, "cpuUtilization": 0.4}'
        yield made


def through_httpx(name: str, awaited: bool) -> Callable[[Any, int], object]:
    import asyncio

    dialect = Dialect(name, (lambda main: asyncio.run(main())) if awaited else None)
    return lambda lines, count: dialect.calls(lines, count, url=URL)


@pytest.mark.parametrize(
    "through",
    [
        through_httpx("httpx2", False),
        through_httpx("httpx2", True),
        through_httpx("httpx", False),
        lambda lines, count: through_requests(lines, count, url=URL),
        lambda lines, count: through_urllib3(lines, count, url=URL),
        lambda lines, count: through_aiohttp(lines, count, url=URL),
    ],
    ids=["httpx2", "httpx2-awaited", "httpx", "requests", "urllib3", "aiohttp"],
)
def test_calls_follow_what_endpoints_report(through: Callable[[Any, int], object], fars: World) -> None:
    lines = Kept(fars)
    through(lines, 4)
    assert fars.seen() == {"a": 2, "b": 2}

    lines.now += 1.0
    lines.cluster.turn()
    through(lines, 10)

    assert fars.seen() == {"a": 10, "b": 4}
