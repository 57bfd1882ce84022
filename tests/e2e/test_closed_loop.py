"""The product's main job on real sockets: a line dies, traffic leaves; it is mended, traffic comes back slowly."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.world import World, world

from reachline.client import Client, connect_sync
from reachline.testing.services import Caller
from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RATE = 240
"""Calls a second: above the promised 200."""
GIVES_UP = 1.0
PAUSE = 0.02


class Traffic:
    """Calls through the SDK at a steady rate, on a thread of its own. Everything Reachline raises lands in `raised`."""

    def __init__(self, client: Client) -> None:
        self.client, self.calls, self.raised = client, Counter[str](), list[BaseException]()
        self.last: dict[str, float] = {}
        self.held: list[tuple[float, float]] = []
        """When, and how many seconds longer than asked for, its own loop was kept from its turn."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        caller = Caller()
        start, made = time.monotonic(), 0
        async with asyncio.TaskGroup() as tasks:
            while not self._stop.is_set():
                due = int((time.monotonic() - start) * RATE)
                for _ in range(due - made):
                    tasks.create_task(self._call(caller))
                made = due
                asleep = time.monotonic()
                await asyncio.sleep(PAUSE)
                self.held.append((asleep, time.monotonic() - asleep - PAUSE))
        caller.close()

    async def _call(self, caller: Caller) -> None:
        try:
            attempt = self.client.cluster("shop").attempt()
            with attempt as call:
                line = str(call.line)
                self.calls[line] += 1
                self.last[line] = time.monotonic()
                assert call.address is not None
                call.status(await caller.get(call.address, "/", timeout=GIVES_UP))
        except (OSError, TimeoutError):
            self.calls["failed"] += 1
        except Exception as error:  # noqa: BLE001  whatever Reachline raises is what this test looks for
            self.raised.append(error)

    @contextmanager
    def running(self) -> Iterator[Traffic]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(10)

    def held_up(self, since: float) -> float:
        """Seconds that the machine took from the callers since then."""
        return sum(late for asleep, late in self.held if asleep >= since - PAUSE)

    def over(self, seconds: float) -> Counter[str]:
        """Calls by line within a span that begins now."""
        before = Counter(self.calls)
        threading.Event().wait(seconds)
        return Counter(self.calls) - before


def is_steady(client: Client) -> bool:
    """The client has heard from the center and every line it may use."""
    return len(client.cluster("shop").lines()) == 3


@pytest.mark.timeout(600)
def test_by_the_documents_own_rules_a_dead_line_is_published_as_zero_within_75_seconds(tmp_path: Path) -> None:
    with world(tmp_path, preset="default") as running:
        eventually(running.settled, within=90, what="all lines healthy")
        running.kill("b")
        since = time.monotonic()
        with connect_sync(running.center, clusters="shop", local_breaker=False) as client:
            eventually(
                lambda: [line.weight for line in client.cluster("shop").lines() if line.line == "shop/b"] == [0],
                within=75,
                what="published weight 0",
            )
        took = time.monotonic() - since

        assert took <= 75
        (trip,) = (row for row in running.get("/api/v1/changes?line=shop/b")["changes"] if row["after"]["weight"] == 0)
        assert trip["rule"] == "vote.connect.failed"
        assert {(vote["vantage"], vote["numerator"], vote["denominator"]) for vote in trip["votes"]} == {
            ("a1", 0, 3),
            ("a2", 0, 3),
        }
        assert {name: code for name, code in running.stop().items() if name in {"center", "a1", "a2"}} == {
            "center": 0,
            "a1": 0,
            "a2": 0,
        }
    told = running.reachline("explain", "shop/b", "--journal", str(running.journal))
    assert "vote.connect.failed" in told.stdout
    assert running.reachline("replay", str(running.journal)).returncode == 0


@pytest.mark.timeout(600)
def test_each_client_leaves_a_dead_line_within_a_second_and_it_returns_by_trial_and_ramp(tmp_path: Path) -> None:
    with world(tmp_path, preset="quick_recovery") as running, connect_sync(running.center, clusters="shop") as client:
        eventually(running.settled, within=60, what="all lines healthy")
        eventually(lambda: is_steady(client), what="a line list")
        with Traffic(client).running() as traffic:
            traffic.over(3)
            running.kill("b")
            died = time.monotonic()
            traffic.over(2.5)
            assert traffic.last["shop/b"] - died <= 1.0 + traffic.held_up(died)

            eventually(lambda: running.line("b").get("weight") == 0, within=30, what="the published weight is 0")
            running.start_target("b")
            seen = _steps_until_closed(running, within=180)

            assert not traffic.raised
        assert [step for step, _ in seen] == [("half_open", 0), ("ramp", 1), ("ramp", 2), ("closed", 0)]
        assert [weight for _, weight in seen] == [10, 25, 50, 100]
    replayed = running.reachline("replay", str(running.journal))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def _steps_until_closed(running: World, *, within: float) -> list[tuple[tuple[str, int], int]]:
    """(gate, step) and weight at each change of gate or step, from half-open until closed again."""
    seen: list[tuple[tuple[str, int], int]] = []

    def is_closed() -> bool:
        row = running.line("b")
        at = (row["breaker"], row["step"])
        if at[0] != "open" and (not seen or seen[-1][0] != at):
            seen.append((at, row["weight"]))
        return bool(seen) and at[0] == "closed"

    eventually(is_closed, within=within, every=0.2, what="the line is closed again")
    return seen


@pytest.mark.timeout(600)
def test_a_killed_center_costs_its_clients_nothing_and_comes_back_where_it_was(tmp_path: Path) -> None:
    with world(tmp_path, preset="quick_recovery") as running, connect_sync(running.center, clusters="shop") as client:
        eventually(running.settled, within=60, what="all lines healthy")
        with Traffic(client).running() as traffic:
            running.kill("b")
            eventually(lambda: running.line("b").get("breaker") == "open", within=30, what="the breaker opened")
            opened = running.line("b")
            versions = [client.cluster("shop").stats().version]
            eventually(lambda: client.cluster("shop").lines()[-1].weight == 0, what="the client has heard of it")

            running.kill("center")
            away = traffic.over(3)
            versions.append(client.cluster("shop").stats().version)
            running.start_center()
            back = running.line("b")
            eventually(lambda: client.cluster("shop").stats().version > versions[-1], within=30, what="a newer version")
            versions.append(client.cluster("shop").stats().version)
            after = traffic.over(3)

            assert not traffic.raised
        assert away.total() >= 3 * 200 - RATE * traffic.held_up(time.monotonic() - 4)
        assert away["shop/b"] == after["shop/b"] == 0
        assert versions == sorted(versions)
        assert (back["breaker"], back["weight"]) == ("open", 0)
        assert back["next"] == pytest.approx(opened["next"], abs=1.0)
    assert running.reachline("replay", str(running.journal)).returncode == 0
    assert json.loads(running.reachline("replay", str(running.journal), "-o", "json").stdout)
