"""A client under a plan across regions: regions get their shares, and no more calls are let through than are carried."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from reachline.client.answer import line_list
from reachline.errors import ReachlineError, RemoteProtocolError, Shed
from reachline.upstream import Cluster

PLAN = {"admit": 0.25, "regions": {"east": 0.2, "west": 0.8}, "priority": 7, "reason": "priority.shed"}


def answer(plan: object = None, **more: Any) -> dict[str, Any]:
    rows = [
        {"line": f"reports/{name}", "address": f"tcp://{name}.test:443", "weight": 50, "region": region}
        for name, region in (("a", "east"), ("b", "east"), ("c", "west"))
    ]
    return {"cluster": "reports", "version": "1.2", "lines": rows, **({"plan": plan} if plan else {}), **more}


def client(plan: object = None) -> Cluster:
    cluster = Cluster("reports", clock=lambda: 1.0, rng=Random(3))
    cluster.wake()
    cluster.replace(line_list(json.loads(json.dumps(answer(plan))), cluster="reports"), source="center")
    return cluster


def calls(cluster: Cluster, count: int = 4_000) -> Counter[str]:
    found: Counter[str] = Counter()
    for _ in range(count):
        try:
            pick = cluster.pick()
        except Shed:
            found["shed"] += 1
        else:
            found[pick.line if pick else "-"] += 1
    return found


def test_a_share_of_all_calls_goes_through_by_region_and_the_others_are_refused_and_counted() -> None:
    cluster = client(PLAN)

    found = calls(cluster)

    assert found["shed"] == cluster.stats().calls.shed == pytest.approx(3_000, abs=100)
    assert found["reports/c"] / (4_000 - found["shed"]) == pytest.approx(0.8, abs=0.05)
    assert found["reports/a"] == pytest.approx(found["reports/b"], abs=40)
    assert cluster.stats().admitted == 0.25


def test_a_refusal_names_cluster_priority_and_share_and_says_that_retrying_does_not_help() -> None:
    cluster = client({**PLAN, "admit": 0.0})

    with pytest.raises(
        ReachlineError, match=r"reports: .*0 % .*priority 7.*trying again elsewhere does not help"
    ) as refused:
        cluster.pick()

    assert isinstance(refused.value, Shed)
    assert (refused.value.cluster, refused.value.priority, refused.value.share) == ("reports", 7, 0.0)


def test_a_refused_attempt_does_not_enter_its_block() -> None:
    cluster, entered = client({**PLAN, "admit": 0.0}), []

    async def asked() -> None:
        async with cluster.attempt():
            entered.append("async")

    with pytest.raises(Shed), cluster.attempt():
        entered.append("sync")
    with pytest.raises(Shed):
        asyncio.run(asked())

    assert not entered
    assert cluster.tally.take_shed() == 2
    assert cluster.tally.take_shed() == 0


def test_without_a_plan_nothing_is_refused_and_weights_stand() -> None:
    found = calls(client(), 600)

    assert found["shed"] == 0
    assert all(found[f"reports/{name}"] == pytest.approx(200, abs=60) for name in "abc")


def test_a_region_whose_lines_are_out_here_leaves_its_share_to_the_others() -> None:
    cluster = client({**PLAN, "admit": 1.0})
    pick = next(each for each in iter(cluster.pick, None) if each.line == "reports/c")
    for _ in range(2):
        cluster.report(pick, "refused")

    assert set(calls(cluster, 200)) == {"reports/a", "reports/b"}


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ([], "plan: must be an object"),
        ({"admit": 1.5}, "plan.admit: must be a number"),
        ({"admit": "0.5"}, "plan.admit: must be a number"),
        ({"regions": {"east": -1}}, "plan.regions.east: must be a number"),
        ({"regions": ["east"]}, "plan.regions: must be an object"),
        ({"priority": -1}, "plan.priority: must be a whole number"),
    ],
)
def test_a_malformed_plan_is_refused_by_its_field(plan: object, told: str) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        line_list({**answer(), "plan": plan}, cluster="reports")

    assert str(refused.value).startswith(told)
