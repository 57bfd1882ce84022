"""A center's list and outlier detection of this process on one cluster: the stricter of the two wins."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.upstream.kept import Clock

import reachline
from reachline.core.outlier_rules import NATIVE
from reachline.errors import ConfigError
from reachline.model import Gate, LineId, Role, Version
from reachline.upstream import Cluster, LineList, Listed
from reachline.upstream.listing import target
from reachline.upstream.reading import read_beside

A, B, C, D = (LineId(f"payments/{name}") for name in "abcd")
RULES = NATIVE._replace(consecutive_5xx=2, max_ejection_percent=100, base_ejection_ms=30_000)


def listed(line: LineId, weight: int = 100, **more: Any) -> Listed:
    return Listed(line, target("https://10.0.0.1:443"), weight, 100)._replace(**more)


def beside(clock: Clock, *lines: Listed, rules: Any = RULES, local_breaker: bool = True, **more: Any) -> Cluster:
    made = Cluster("payments", clock=clock, rng=Random(1), outliers=rules, local_breaker=local_breaker)
    made.replace(LineList(cluster="payments", lines=lines, version=Version(1, 1), **more), source="center")
    made.wake()
    return made


def call(cluster: Cluster, line: LineId, code: int = 500, times: int = 1) -> None:
    while times:
        with cluster.attempt() as attempt:
            if attempt.line == line:
                attempt.status(code)
                times -= 1
            else:
                attempt.fail("agent")


def picks(cluster: Cluster, count: int = 200) -> Counter[str]:
    return Counter(pick.line for _ in range(count) if (pick := cluster.pick()))


def test_server_errors_eject_a_line_here_though_the_center_sees_nothing(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    cluster = beside(clock, listed(A), listed(B), listed(C))

    with caplog.at_level(logging.INFO, logger="reachline.upstream.cluster"):
        call(cluster, A, times=2)

    assert set(picks(cluster)) == {B, C}
    assert cluster.open_lines() == (A,)
    assert cluster.stats().trips == 1
    assert [each.message for each in caplog.records] == ["line_ejected"]


def test_it_returns_when_its_time_is_over_and_to_all_of_its_weight() -> None:
    clock = Clock()
    cluster = beside(clock, listed(A), listed(B))
    call(cluster, A, times=2)
    due = cluster.deadline()
    assert due is not None

    clock.now += 29.0
    cluster.turn()
    assert set(picks(cluster)) == {B}
    clock.now += 1.0
    cluster.turn()

    assert cluster.open_lines() == ()
    assert 50 < picks(cluster)[A] < 150


def test_a_line_that_the_center_took_out_stays_out_and_one_ejected_here_too() -> None:
    clock = Clock()
    cluster = beside(clock, listed(A, 0, breaker=Gate.OPEN), listed(B), listed(C))

    call(cluster, B, times=2)

    assert set(picks(cluster)) == {C}


def test_a_backup_takes_over_for_an_ejected_line_as_for_one_whose_breaker_is_open() -> None:
    clock = Clock()
    roles = [frozenset({Role.PRIMARY}), frozenset({Role.BACKUP})]
    ejected, broken = (
        beside(clock, listed(A, 95, roles=roles[0]), listed(B, 5, roles=roles[1]), policy=("primary_backup",))
        for _ in range(2)
    )

    call(ejected, A, times=2)
    pick = next(pick for _ in range(99) if (pick := broken.pick()) and pick.line == A)
    broken.report(pick, "refused")
    broken.report(pick, "refused")

    assert ejected.offers[0][0].line == broken.offers[0][0].line == B
    assert [share for _, share in ejected.offers] == [share for _, share in broken.offers] == [1.0]


def test_the_last_line_that_carries_anything_stays() -> None:
    clock = Clock()
    cluster = beside(clock, listed(A), listed(B))
    call(cluster, A, times=2)

    call(cluster, B, times=2)

    assert set(picks(cluster)) == {B}
    assert cluster.open_lines() == (A,)


def test_a_line_that_the_local_breaker_holds_leaves_the_other_in() -> None:
    clock = Clock()
    cluster = beside(clock, listed(A), listed(B))
    pick = next(pick for _ in range(99) if (pick := cluster.pick()) and pick.line == A)
    cluster.report(pick, "refused")
    cluster.report(pick, "refused")

    call(cluster, B, times=2)

    assert set(picks(cluster)) == {B}


def test_a_new_list_keeps_ejections_of_lines_that_stay() -> None:
    clock = Clock()
    cluster = beside(clock, listed(A), listed(B), listed(C))
    call(cluster, A, times=2)

    newer = LineList(cluster="payments", lines=(listed(A), listed(D)), version=Version(1, 2))
    cluster.replace(newer, source="center")

    assert set(picks(cluster)) == {D}


def test_a_child_begins_without_its_parents_ejections_and_retiring_ends_them() -> None:
    clock = Clock()
    child, retired = (beside(clock, listed(A), listed(B)) for _ in range(2))
    for each in (child, retired):
        call(each, A, times=2)

    child.forked(Random(2))
    child.wake()
    retired.retire()

    assert set(picks(child)) == set(picks(retired)) == {A, B}
    call(child, A, times=2)
    assert set(picks(child)) == {B}


def test_without_it_server_errors_take_nothing_out() -> None:
    cluster = beside(Clock(), listed(A), listed(B), rules=None)

    call(cluster, A, times=9)

    assert set(picks(cluster)) == {A, B}


def test_connect_takes_it_for_a_cluster_of_the_centers() -> None:
    document: dict[str, Any] = {"type": "center", "outliers": {"consecutive_5xx": 2}}
    client = reachline.connect_sync(
        "http://127.0.0.1:1", clusters={"payments": document, "plain": None}, static={"payments": ["10.0.0.1:80", "10.0.0.2:80"]}, wait=0
    )  # fmt: skip
    with client:
        cluster = client.cluster("payments")
        assert isinstance(cluster, Cluster)
        call(cluster, LineId("payments/static-1"), times=2)

        assert set(picks(cluster)) == {"payments/static-2"}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"type": "center"}, "clusters.c.outliers: is needed by type: center"),
        ({"type": "center", "outliers": {"interval": -1}}, "clusters.c.outliers.interval"),
        ({"type": "center", "outliers": True, "targets": ["10.0.0.1:80"]}, "targets"),
        ({"type": "center", "outliers": {"event_log_path": "/tmp/x"}}, "has no event_log_path"),
    ],
)
def test_what_cannot_be_is_refused_by_its_place(document: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_beside({"c": document}, place="test")


class Busy(logging.Handler):
    """A log's handler that calls the cluster itself, as one does that sends records over it."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert not self.cluster._lock.locked(), record.getMessage()
        self.told.append(record.getMessage())
        with self.cluster.attempt():
            pass


def test_the_log_hears_of_ejections_once_the_lock_is_free() -> None:
    clock = Clock()
    cluster = beside(clock, listed(A), listed(B), listed(C), rules=RULES._replace(keep_removed_ms=60_000))
    log, handler = logging.getLogger("reachline.upstream.cluster"), Busy(cluster)
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        call(cluster, A, times=2)
        clock.now += 60
        cluster.turn()
    finally:
        log.removeHandler(handler)
        log.setLevel(level)

    assert handler.told == ["line_ejected", "line_returned"]


class Late:
    """A lock before which something happens, once: what another thread did while this one waited for it."""

    def __init__(self, before: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.before: Callable[[], None] | None = before

    def __enter__(self) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def test_a_call_that_ends_while_the_client_is_closed_is_well() -> None:
    cluster: Any = beside(Clock(), listed(A), listed(B))

    with cluster.attempt() as attempt:
        attempt.ok()
        cluster._lock = Late(cluster.retire)

    assert cluster.stats().calls.ok == 1
    assert cluster.stats().trips == 0


def test_what_is_wrong_of_clusters_of_both_kinds_is_told_at_once() -> None:
    documents: dict[str, Any] = {"kept": {"targets": ["10.0.0.1:99999"]}, "judged": {"type": "center"}}

    with pytest.raises(ConfigError) as refused:
        reachline.connect_sync("http://127.0.0.1:1", clusters=documents, wait=0)

    assert [each.path.split(".")[1] for each in refused.value.problems] == ["kept", "judged"]
