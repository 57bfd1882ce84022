"""A center is killed while calls are made: nobody notices, and it comes back where it was."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.e2e.traffic import RATE, Traffic
from tests.e2e.world import world

from reachline.client import connect_sync
from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


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
