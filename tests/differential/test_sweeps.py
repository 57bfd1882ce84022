"""Outlier detection by whole intervals, and for how long: rates, thresholds and counts exactly, times within one sweep.

All scripts are played in the first interval after Envoy's start, so that one sweep sees the whole of each. Where the machine is
too slow for that, a new Envoy with longer intervals tries again.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.differential import ours
from tests.differential.peers import Peer, Reply, refusing, serving
from tests.differential.real import Envoy, bootstrap, ejecting, running
from tests.measured import best_of
from tests.wanted import shows

from reachline.core.ejection import due_ms
from reachline.core.outlier_events import Saw
from reachline.core.outlying import percent
from reachline.testing.wait import eventually

pytestmark = pytest.mark.real

INTERVALS: Final = (6.0, 15.0, 45.0)
"""Seconds; the first that all scripts fit into."""
CALLS: Final = 10
"""To each endpoint."""
NAMES: Final = ("success_rate", "failure_percentage", "local_origin_success_rate", "local_origin_failure_percentage")
OWN: Final = ("success_rate", "failure_percentage", "success_rate_local_origin", "failure_percentage_local_origin")
"""Ours of the same, in the same order: by the names of events."""
WIDE: Final = {"max_ejection_percent": 100, "consecutive_5xx": 0, "base_ejection_time": "60s"}
RATED: Final = WIDE | {"success_rate_request_volume": CALLS}
FAILING: Final = WIDE | {
    "failure_percentage_request_volume": CALLS, "enforcing_failure_percentage": 100, "enforcing_success_rate": 0,
    "failure_percentage_minimum_hosts": 3,
}  # fmt: skip
SWEPT: Final = 0.1
BASE: Final = 0.5
LATE: Final = 0.3
"""Seconds that a sweep may be late on a busy machine; less than `BASE`, so that levels are told apart."""


class Case(NamedTuple):
    """How many of ten calls to each endpoint fail (-1: nobody listens there), and the rules."""

    failures: tuple[int, ...]
    rules: dict[str, Any]


CASES = {
    "one of five lies far below": Case((0, 0, 0, 0, 10), RATED),
    "half of the calls of one": Case((0, 0, 0, 0, 5), RATED),
    "two of five hide each other": Case((0, 0, 0, 10, 10), RATED),
    "four are too few": Case((0, 0, 0, 10), RATED),
    "four are enough where four are asked for, and never far enough": Case((0, 0, 0, 10), RATED | {"success_rate_minimum_hosts": 4}),
    "four and a smaller factor": Case((0, 0, 0, 10), RATED | {"success_rate_minimum_hosts": 4, "success_rate_stdev_factor": 1_500}),
    "two deviations of five are never more than two": Case((0, 0, 0, 0, 10), RATED | {"success_rate_stdev_factor": 2_000}),
    "a factor of zero": Case((0, 1, 2, 3, 4), RATED | {"success_rate_stdev_factor": 0}),
    "alike": Case((3, 3, 3, 3, 3), RATED),
    "one percent of a hundred is enough": Case((0, 0, 0, 0, 0, 0, 1), RATED),
    "calls below the volume": Case((0, 0, 0, 0, 10), RATED | {"success_rate_request_volume": CALLS + 1, "failure_percentage_request_volume": CALLS + 1}),
    "detected and not enforced": Case((0, 0, 0, 0, 10), RATED | {"enforcing_success_rate": 0}),
    "no room": Case((0, 0, 0, 0, 10), RATED | {"max_ejection_percent": 10}),
    "room for one": Case((0, 0, 0, 0, 10), RATED | {"max_ejection_percent": 20}),
    "no room, but one always goes": Case((0, 0, 0, 0, 10), RATED | {"max_ejection_percent": 10, "always_eject_one_host": True}),
    "failures at the threshold": Case((0, 0, 0, 8), FAILING | {"failure_percentage_threshold": 80}),
    "failures below the threshold": Case((0, 0, 0, 7), FAILING | {"failure_percentage_threshold": 80}),
    "failures of all": Case((9, 9, 10), FAILING),
    "failures with too few endpoints": Case((0, 10), FAILING),
    "failures below their volume": Case((0, 0, 0, 10), FAILING | {"failure_percentage_request_volume": 50}),
    "failures not enforced": Case((0, 0, 0, 10), FAILING | {"enforcing_failure_percentage": 0}),
    "failures with room for one": Case((10, 0, 0, 0), FAILING | {"max_ejection_percent": 25}),
    "both detectors, one enforced": Case((0, 0, 0, 0, 10), RATED | {"failure_percentage_request_volume": CALLS}),
    "split: refused connections": Case((0, 0, 0, 0, -1), RATED | {"split_external_local_origin_errors": True, "consecutive_local_origin_failure": 0}),
    "split: failures of connections": Case(
        (0, 0, 0, -1),
        FAILING | {"split_external_local_origin_errors": True, "consecutive_local_origin_failure": 0,
                   "enforcing_failure_percentage_local_origin": 100, "enforcing_local_origin_success_rate": 0},
    ),
}  # fmt: skip


TWICE: Final = Case(
    (0, 0, 0, 0, 10), RATED | {"enforcing_failure_percentage": 100, "failure_percentage_request_volume": CALLS}
)
"""A wanted difference: in Envoy two detectors eject one endpoint twice in one sweep."""


class Timed(NamedTuple):
    """Ejections one after the other: the pause before each, in seconds, and the rules."""

    pauses: tuple[float, ...]
    rules: dict[str, Any]


GROWING: Final = {"consecutive_5xx": 1, "max_ejection_percent": 100, "base_ejection_time": f"{BASE}s"}
TIMED = {
    "growth in a line": Timed((0.0, 0.0, 0.0), GROWING),
    "growth up to the ceiling": Timed((0.0, 0.0, 0.0, 0.0), GROWING | {"max_ejection_time": "0.7s"}),
    "no growth where the ceiling is the base": Timed((0.0, 0.0, 0.0), GROWING | {"max_ejection_time": "0.5s"}),
    "forgiven after clean sweeps": Timed((0.0, 0.0, 1.0), GROWING),
}
SCRIPTS = CASES | {"twice": TWICE}


class Played(NamedTuple):
    """A finished run: what Envoy came to."""

    documents: dict[str, dict[str, Any]]
    hosts: dict[str, dict[int, dict[str, Any]]]
    counters: dict[str, dict[str, int]]
    events: list[dict[str, Any]]


def document(name: str, ports: list[int], rules: dict[str, Any], interval: float) -> dict[str, Any]:
    return ejecting(name, ports, {"interval": f"{interval}s", "max_ejection_time": "100s"} | rules)


@pytest.fixture(scope="module")
def played(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Played:
    for interval in INTERVALS:
        found = play(envoy_binary, tmp_path_factory.mktemp("sweeps"), interval)
        if found is not None:
            return found
    pytest.fail("the machine is too slow to play the scripts within 45 s")


def play(binary: Path, directory: Path, interval: float) -> Played | None:
    """All scripts within one interval, then the sweep; None: they took too long."""
    with ExitStack() as stack:
        peers, refused = stack.enter_context(serving()), stack.enter_context(refusing())
        documents = {}
        for number, (name, case) in enumerate(SCRIPTS.items()):
            ports = [refused if each < 0 else peers.add(failing_first(each)).port for each in case.failures]
            documents[name] = document(f"c{number}", ports, case.rules, interval)
        for number, (name, timed) in enumerate(TIMED.items()):
            bad = peers.add(Peer(calls=lambda _: Reply(500)))
            documents[name] = document(f"t{number}", [bad.port], timed.rules, SWEPT)
        begin = time.monotonic()
        envoy = stack.enter_context(running(binary, bootstrap(list(documents.values()), directory), directory))
        live = time.monotonic()
        for name, case in SCRIPTS.items():
            for _ in range(CALLS * len(case.failures)):
                envoy.call(documents[name]["name"])
        if time.monotonic() - begin > interval - LATE:
            return None
        follow(envoy, documents)
        sweep = live + interval + LATE
        far_below = documents["one of five lies far below"]["name"]
        eventually(lambda: time.monotonic() >= sweep and detected(envoy, far_below), within=interval + 30)
        counters = {name: envoy.counters(each["name"]) for name, each in documents.items()}
        hosts = envoy.hosts()
        return Played(
            documents, {name: hosts[each["name"]] for name, each in documents.items()}, counters, logged(envoy)
        )


def detected(envoy: Envoy, cluster: str) -> int:
    return envoy.counters(cluster)["outlier_detection.ejections_detected_success_rate"]


def failing_first(failures: int) -> Peer:
    return Peer(calls=lambda number: Reply(500 if number < failures else 200))


def follow(envoy: Envoy, documents: dict[str, dict[str, Any]]) -> None:
    """Put the endpoint of each timed cluster out as often as is said, as soon as it is back and the pause is over."""
    waiting = {name: [0.0, *timed.pauses[1:]] for name, timed in TIMED.items()}
    due = dict.fromkeys(TIMED, 0.0)
    returned = dict.fromkeys(TIMED, 0)
    while waiting:
        for name in list(waiting):
            cluster = documents[name]["name"]
            if time.monotonic() < due[name]:
                continue
            if returned[name] and not healthy(envoy, cluster):
                continue
            if returned[name] and due[name] == 0.0 and waiting[name] and waiting[name][0]:
                due[name] = time.monotonic() + waiting[name][0]
                continue
            if not waiting[name]:
                del waiting[name]
                continue
            waiting[name].pop(0)
            due[name] = 0.0
            envoy.call(cluster)
            envoy.barrier()
            returned[name] += 1
        time.sleep(0.005)


def healthy(envoy: Envoy, cluster: str) -> int:
    found = envoy.admin(f"/stats?format=json&filter=^cluster.{cluster}.membership_healthy$")["stats"]
    return int(found[0]["value"])


def logged(envoy: Envoy) -> list[dict[str, Any]]:
    """The log, once it has stopped growing."""
    before, found = -1, envoy.events()
    while len(found) != before:
        time.sleep(0.2)
        before, found = len(found), envoy.events()
    return found


def judged(document: dict[str, Any], failures: tuple[int, ...]) -> ours.Kept:
    """The same calls and one sweep, by our cluster."""
    machine = ours.Kept(document)
    # An endpoint where nobody listens is one of its own in each cluster.
    ports = [str(each.address.port) for each in machine.cluster.settings.membership.members]
    for port, failed in zip(ports, failures, strict=True):
        for number in range(CALLS):
            if failed < 0:
                machine.saw(port, Saw.UNCONNECTED, 1)
                continue
            machine.saw(port, Saw.CONNECTED, 1)
            status = 500 if number < failed else 200
            machine.saw(port, Saw.FAILED if number < failed else Saw.ANSWERED, 1, code=status)
    machine.turn(machine.rules.interval_ms)
    return machine


@pytest.mark.parametrize("name", CASES)
def test_a_sweep_finds_the_same(played: Played, name: str) -> None:
    machine = judged(played.documents[name], CASES[name].failures)

    counters = {key.removeprefix("outlier_detection."): value for key, value in played.counters[name].items()}

    out = {port for port, host in played.hosts[name].items() if host["health_status"].get("failed_outlier_check")}
    assert out == machine.ejected
    for word in ("detected", "enforced"):
        theirs = [counters[f"ejections_{word}_{each}"] for each in NAMES]
        assert theirs == [machine.counts.get(f"ejections_{word}_{each}", 0) for each in OWN], word
    assert counters["ejections_overflow"] == machine.counts.get("ejections_overflow", 0)
    assert counters["ejections_active"] == len(machine.ejected)
    assert counters["upstream_rq_completed"] + counters["upstream_cx_connect_fail"] >= CALLS * len(out)


@pytest.mark.parametrize("name", CASES)
def test_a_sweep_publishes_the_same_rates(played: Played, name: str) -> None:
    machine = judged(played.documents[name], CASES[name].failures)

    for port, host in played.hosts[name].items():
        monitor = machine.monitor(str(port))
        for kind, key in (("SUCCESS_RATE", "success_rate"), ("SUCCESS_RATE_LOCAL_ORIGIN", "local_origin_success_rate")):
            own = {detector.value: rate for detector, rate in monitor.rates.items()}.get(kind)
            theirs = host.get(key)
            assert (own is None) == (theirs is None), (port, key)
            if own is not None and theirs is not None:
                assert percent(own) == pytest.approx(theirs.get("value", 0.0), abs=1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("both")])
def test_a_sweep_logs_the_same_rate_mean_and_threshold(played: Played, name: str) -> None:
    document = played.documents[name]
    own = judged(document, CASES[name].failures).events
    theirs = [each for each in played.events if each["cluster_name"] == document["name"]]

    def order(each: dict[str, Any]) -> tuple[str, str]:
        return each["type"], each["upstream_url"]

    for mine, real in zip(
        sorted(own, key=order), sorted(theirs, key=order), strict=True
    ):  # fmt: skip
        for key, value in real.items():
            if isinstance(value, dict):
                assert mine[key] == pytest.approx(value, abs=1e-4)
            elif key != "timestamp":
                assert mine[key] == value, key


@shows("once a sweep")
def test_two_detectors_in_one_sweep_eject_twice_in_envoy_and_once_here(played: Played) -> None:
    """Once this fails, Envoy has mended it: then the row of `tests/wanted.py` goes, and the case moves to the others."""
    machine = judged(played.documents["twice"], TWICE.failures)

    theirs = played.counters["twice"]

    assert (len(machine.ejected), machine.counts["ejections_active"], machine.counts["ejections_enforced_total"]) == (
        1,
        1,
        1,
    )
    assert sum(bool(each["health_status"].get("failed_outlier_check")) for each in played.hosts["twice"].values()) == 1
    assert theirs["outlier_detection.ejections_active"] == 2
    assert theirs["outlier_detection.ejections_enforced_total"] == 2


@pytest.mark.parametrize("name", TIMED)
def test_an_ejection_lasts_as_long_up_to_one_sweep(
    played: Played, envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Where one was later, Envoy itself may have been kept waiting: another one is asked."""
    others = (play(envoy_binary, tmp_path_factory.mktemp("again"), INTERVALS[0]) or played for _ in count())
    runs = chain([played], others)

    best_of(3, lambda: check_lengths(next(runs), name))


def check_lengths(played: Played, name: str) -> None:
    document = played.documents[name]
    machine = ours.Kept(document)
    port = str(machine.cluster.settings.membership.members[0].address.port)
    events = [each for each in played.events if each["cluster_name"] == document["name"]]
    times = [datetime.fromisoformat(each["timestamp"]).timestamp() for each in events]
    start = times[0] - SWEPT / 2
    now = [round(1_000 * (at - start)) for at in times]

    for number in range(0, len(now) - 1, 2):
        # Sweeps since the last return, which was at one.
        last = now[number - 1] if number else now[number]
        for each in range(last + machine.rules.interval_ms, now[number], machine.rules.interval_ms):
            machine.turn(each)
        machine.saw(port, Saw.FAILED, now[number], code=500)
        due = machine.until_ms(port)
        assert due is not None
        exact = due_ms(machine.monitor(port), machine.rules)
        assert exact is not None
        late = now[number + 1] - exact
        assert -2 <= late <= 1_000 * (SWEPT + LATE), (number, now, exact)
        machine.turn(max(exact, now[number + 1]))
        assert not machine.ejected

    assert [each["action"] for each in events] == ["EJECT", "UNEJECT"] * len(TIMED[name].pauses)
    assert [each["num_ejections"] for each in events[::2]] == list(range(1, len(TIMED[name].pauses) + 1))
