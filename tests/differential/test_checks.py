"""Active checks: the same endpoints, asked by Envoy and by us at the same time, each with peers of its own that play the same
script. What is compared is the event log, in which both write every check down: so how many checks a change took, its reason, what
came before it and after. Times: no wait is shorter than ours says, and none longer by more than a busy machine explains.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import pytest
from tests.differential import ours
from tests.differential.peers import CHECK, HANG, RESET, Peer, Peers, Reply, listed, refusing, serving
from tests.differential.real import Envoy, bootstrap, running

from reachline.core.checking import After, Verdict, as_envoy
from reachline.core.checking_rules import wait_ms
from reachline.core.outlier import Outliers
from reachline.core.outlier_events import Saw
from reachline.testing.wait import eventually, until
from reachline.upstream.checks import Checks, Target

pytestmark = pytest.mark.real

INTERVAL: Final = 0.1
TIMEOUTS: Final = (0.8, 2.5, 5.0)
"""Seconds. Where a busy machine lets answers come too late, what was played proves nothing: it is played again, with more patience."""
LATE: Final = 0.35
"""Seconds that a check may be late on a busy machine; waits that are compared differ by more."""
PLAYED: Final = 120.0
"""Seconds at most; it ends once every script is played."""
SINK: Final = "type.googleapis.com/envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink"
REDIS: Final = "type.googleapis.com/envoy.extensions.health_checkers.redis.v3.Redis"
H2: Final = {
    "typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
}
Raw = Callable[[int, bytes], bytes | None]


class Case(NamedTuple):
    """What the endpoint answers, how it is asked, and of how many checks the events are compared."""

    peer: Callable[[], Peer] | str
    asked: dict[str, Any]
    checks: int = 8
    rules: dict[str, Any] = {}  # noqa: RUF012  never written
    cluster: dict[str, Any] = {}  # noqa: RUF012
    waits: bool = False
    """Whether its waits are compared as well."""


def http(**fields: Any) -> dict[str, Any]:
    return {"http_health_check": {"path": CHECK, **fields}}


def tcp(*receive: str, send: str = "") -> dict[str, Any]:
    said: dict[str, Any] = {"receive": [{"text": each} for each in receive]} if receive else {}
    return {"tcp_health_check": said | ({"send": {"text": send}} if send else {})}


def redis(key: str = "") -> dict[str, Any]:
    return {"custom_health_check": {"name": "redis", "typed_config": {"@type": REDIS} | ({"key": key} if key else {})}}


def plays(*replies: Reply | int, then: Reply | int = 200) -> Callable[[], Peer]:
    return lambda: Peer(checks=listed(*replies, then=then))


def talks(*answers: bytes | None) -> Callable[[], Peer]:
    """Raw bytes, one answer after another, the last for ever; None closes, empty says nothing."""
    return lambda: Peer(raw=lambda number, _: answers[min(number, len(answers) - 1)])


def serves(*statuses: int) -> str:
    """A gRPC peer: its health by the number of the check; a negative one is an error of that code."""
    return "grpc " + json.dumps(statuses)


THREE = {"unhealthy_threshold": 3, "healthy_threshold": 2}
TWO = {"unhealthy_threshold": 2, "healthy_threshold": 2}
SLOW_BACK = {"unhealthy_threshold": 1, "healthy_threshold": 3}
RETRIABLE = {"retriable_statuses": [{"start": 500, "end": 600}]}
DEGRADED = Reply(200, (("x-envoy-degraded", "true"),))
EXCLUDED = Reply(503, (("x-envoy-immediate-health-check-fail", "true"),))
REFUSED = "refused"
WAITED: Final = 9
"""Checks of the case whose waits are compared: eight waits lie between them."""
WAITS = {
    "interval": "1.3s", "unhealthy_interval": "0.5s", "unhealthy_edge_interval": "0.1s", "healthy_edge_interval": "0.9s",
    "unhealthy_threshold": 3, "healthy_threshold": 3,
}  # fmt: skip
UNCALLED = TWO | {"interval": "0.1s", "no_traffic_interval": "0.5s", "no_traffic_healthy_interval": "0.9s"}
RESULTS = {
    # Well; two failures that count, three that fail it (they count as failed); then passes, two of them pending.
    "http: waits": (
        True, [(True, False), (False, True), (False, True), *[(False, False)] * 3, (True, True), (True, True)],
    ),
    "http: waits of a cluster that nobody calls": (False, [(True, False), (True, False), (False, True), (True, False)]),
}  # fmt: skip
"""Whether there are calls, and of each check that a wait follows: whether it passed, and whether a change was pending."""
CASES = {
    "http: well from the first": Case(plays(), http(), rules=SLOW_BACK),
    "http: a wrong status fails at once": Case(plays(200, 503, 503), http(), rules=THREE),
    "http: a first failure makes it wait for the threshold": Case(plays(503), http(), rules=SLOW_BACK),
    "http: a failure ends the run of passes": Case(plays(503, 200, 503, 200, 200), http(), rules=SLOW_BACK),
    "http: retriable ones count": Case(plays(200, 500, 500, 500, 500), http(**RETRIABLE), 9, THREE),
    "http: a pass ends the run of failures": Case(plays(200, 500, 500, 200, 500, 500, 200), http(**RETRIABLE), 9, THREE),
    "http: 404 is not retriable here": Case(plays(200, 404), http(**RETRIABLE), rules=THREE),
    "http: expected wins over retriable": Case(
        plays(200, 503, 503), http(expected_statuses=[{"start": 200, "end": 504}], **RETRIABLE), rules=THREE
    ),
    "http: 200 is not expected": Case(plays(201, 200, 201), http(expected_statuses=[{"start": 201, "end": 202}]), rules=TWO),
    "http: silence counts": Case(plays(200, HANG, HANG, HANG), http(), 7, TWO),
    "http: resets count": Case(plays(200, RESET, RESET, RESET), http(), rules=TWO),
    "http: silence and resets are one run": Case(plays(200, HANG, RESET, HANG), http(), 7, THREE),
    "http: a reset, a retriable status and silence are one run": Case(plays(200, RESET, 500, HANG), http(**RETRIABLE), 7, THREE),
    "http: a wrong status ends a run below its threshold": Case(plays(200, RESET, 503), http(), 7, THREE),
    # Short, for an Envoy is not live before every first check is over, and until then nobody calls it.
    "http: silence from the first": Case(plays(HANG, HANG), http(), 6, TWO | {"timeout": "0.5s"}),
    "http: refused": Case(REFUSED, http(), 6, TWO),
    "http: the body holds what is asked for": Case(
        plays(Reply(body=b"..one..two"), Reply(body=b"two one"), then=Reply(body=b"onetwo")),
        http(receive=[{"text": b"one".hex()}, {"text": b"two".hex()}]), rules=TWO,
    ),
    "http: what is asked for lies beyond the buffer": Case(
        plays(Reply(body=b"one"), Reply(body=b"......one"), then=Reply(body=b"one")),
        http(receive=[{"text": b"one".hex()}], response_buffer_size=6), rules=TWO,
    ),
    "http: all of the body is looked at": Case(
        plays(then=Reply(body=b"." * 5_000 + b"one")), http(receive=[{"text": b"one".hex()}], response_buffer_size=0), rules=TWO
    ),
    "http: degraded and well again": Case(plays(200, DEGRADED, DEGRADED, 200), http(), rules=TWO),
    "http: degraded, then failed": Case(plays(200, DEGRADED, 503, DEGRADED), http(), rules=TWO),
    "http: degraded from the first": Case(plays(DEGRADED, then=DEGRADED), http(), rules=TWO),
    "http: asks to be left out": Case(plays(200, EXCLUDED, EXCLUDED), http(), rules=TWO),
    "http: a connection each": Case(plays(200, 503), http(), rules=TWO | {"reuse_connection": False}),
    "http: by POST with a body": Case(plays(), http(method="POST", send={"text": "6869"}), rules=TWO),
    "http: waits": Case(plays(200, *[RESET] * 5), http(), 9, WAITS, waits=True),
    "http: waits of a cluster that nobody calls": Case(plays(200, 200, RESET, 200), http(), 5, UNCALLED, waits=True),
    "tcp: connects": Case(talks(b""), tcp(), rules=TWO),
    "tcp: refused": Case(REFUSED, tcp(), 6, THREE),
    "tcp: what is asked for": Case(talks(b"pong"), tcp(b"pong".hex(), send=b"ping".hex()), rules=TWO),
    "tcp: blocks with something between": Case(talks(b"\1\3\2"), tcp("01", "02", send="00"), rules=TWO),
    "tcp: the wrong order is silence": Case(talks(b"\1\2", b"\2\1", b"\2\1", b"\2\1", b"\1\2"), tcp("01", "02", send="00"), 7, THREE),
    "tcp: closed before the answer": Case(talks(b"\1", None, None, b"\1"), tcp("01", send="00"), 7, TWO),
    "grpc: serving": Case(serves(1), {"grpc_health_check": {}}, rules=TWO, cluster=H2),
    "grpc: not serving fails at once": Case(serves(1, 2, 2, 1), {"grpc_health_check": {}}, rules=THREE, cluster=H2),
    "grpc: an unknown service": Case(serves(1, 3, 1), {"grpc_health_check": {"service_name": "s"}}, rules=THREE, cluster=H2),
    "grpc: an error": Case(serves(1, -12, -12, 1), {"grpc_health_check": {}}, rules=THREE, cluster=H2),
    "grpc: refused": Case(REFUSED, {"grpc_health_check": {}}, 5, TWO, H2),
    "redis: pong": Case(talks(b"+PONG\r\n"), redis(), rules=TWO),
    "redis: something else fails at once": Case(talks(b"+PONG\r\n", b"-LOADING\r\n", b"+PONG\r\n"), redis(), rules=THREE),
    "redis: the key is not there": Case(talks(b":0\r\n"), redis("off"), rules=TWO),
    "redis: the key is there": Case(talks(b":0\r\n", b":1\r\n", b":1\r\n", b":0\r\n"), redis("off"), rules=THREE),
    "redis: closed": Case(talks(b"+PONG\r\n", None, None, b"+PONG\r\n"), redis(), 7, THREE),
}  # fmt: skip


class World(NamedTuple):
    """What was played: documents and events by case, Envoy's and ours, and when checks came."""

    documents: dict[str, dict[str, Any]]
    theirs: dict[str, list[dict[str, Any]]]
    own: dict[str, list[dict[str, Any]]]
    times: dict[str, tuple[list[float], list[float]]]
    figures: dict[str, dict[str, int]]


def document(name: str, case: Case, port: int, log: Path, timeout: float) -> dict[str, Any]:
    rules = {"timeout": f"{timeout}s", "interval": f"{INTERVAL}s"} | case.rules
    endpoint = {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
    return {
        "name": name,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"},
        "health_checks": [
            {
                "no_traffic_interval": rules["interval"],
                "always_log_health_check_failures": True,
                "always_log_health_check_success": True,
                "event_logger": [{"name": "f", "typed_config": {"@type": SINK, "event_log_path": str(log)}}],
                **rules,
                **case.asked,
            }
        ],
        **case.cluster,
    }


@contextmanager
def endpoint(case: Case, peers: Peers) -> Iterator[tuple[int, list[float]]]:
    """An endpoint of its own that plays the script: its port, and when it was checked."""
    if case.peer == REFUSED:
        with refusing() as port:
            yield port, []
    elif isinstance(case.peer, str):
        with health_server(json.loads(case.peer.removeprefix("grpc "))) as port:
            yield port, []
    else:
        peer = peers.add(case.peer())
        yield peer.port, peer.checked


@contextmanager
def health_server(statuses: list[int]) -> Iterator[int]:
    asked = []

    def check(request: bytes, context: grpc.ServicerContext) -> bytes:
        status = statuses[min(len(asked), len(statuses) - 1)]
        asked.append(request)
        if status < 0:
            context.abort(next(each for each in grpc.StatusCode if each.value[0] == -status), "as the script says")
        return bytes((8, status))

    handler = grpc.method_handlers_generic_handler(
        "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)}
    )
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


@pytest.fixture(scope="module")
def world(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    for timeout in TIMEOUTS:
        found = played(envoy_binary, tmp_path_factory.mktemp("checks"), timeout)
        if not is_late(found):
            break
    return found


def is_late(world: World) -> bool:
    """Whether answers came too late, or waits were too long, by either side, where the script has no silence."""
    silent = {name for name in CASES if "silence" in name}
    heard = [
        event
        for side in (world.theirs, world.own)
        for name, case in CASES.items()
        for event in side[name][: case.checks]
        if name not in silent
    ]
    return any("NETWORK_TIMEOUT" in json.dumps(event) for event in heard) or any(
        late > 1 for name in RESULTS for late in map(len, too_long(world, name))
    )


def played(binary: Path, directory: Path, timeout: float) -> World:
    """All scripts, by both, once."""
    documents, own_documents, times = {}, {}, {}
    with ExitStack() as stack:
        peers = stack.enter_context(serving())
        for number, (name, case) in enumerate(CASES.items()):
            (port, checked), (own_port, own_checked) = (stack.enter_context(endpoint(case, peers)) for _ in "to")
            log = directory / f"{number}.log"
            documents[name] = document(f"c{number}", case, port, log, timeout)
            own_documents[name] = document(f"c{number}", case, own_port, log, timeout)
            times[name] = checked, own_checked
        envoy = stack.enter_context(running(binary, bootstrap(list(documents.values()), directory), directory))
        envoy.call(documents["http: waits"]["name"])  # from now on the cluster has traffic
        own = asyncio.run(play(own_documents, times["http: waits"]))
        eventually(
            lambda: all(len(events(envoy, at)) >= case.checks for at, case in enumerate(CASES.values())), within=PLAYED
        )
        theirs = {name: events(envoy, number) for number, name in enumerate(CASES)}
        figures = {name: envoy.counters(each["name"]) for name, each in documents.items()}
    return World(documents, theirs, own, times, figures)


def events(envoy: Envoy, number: int) -> list[dict[str, Any]]:
    return envoy.events(f"{number}.log")


async def play(
    documents: dict[str, dict[str, Any]], waited: tuple[list[float], list[float]]
) -> dict[str, list[dict[str, Any]]]:
    """Our checks of all clusters until there are events enough: as Envoy writes them."""
    heard: dict[str, list[dict[str, Any]]] = {name: [] for name in documents}
    running = [checks(name, documents[name], heard[name]) for name in documents]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in running]
        await until(
            lambda: (
                all(len(heard[name]) >= case.checks for name, case in CASES.items()) and min(map(len, waited)) >= WAITED
            ),
            within=PLAYED,
        )
        for task in tasks:
            task.cancel()
    return heard


def checks(name: str, said: dict[str, Any], heard: list[dict[str, Any]]) -> Checks:
    found = ours.cluster(said)
    assert found.check is not None
    kind, cluster = found.check.asked.checker, found.name

    def told(key: str, after: After, verdict: Verdict, /) -> None:
        del verdict
        host, _, port = key.rpartition(":")
        heard.extend(
            as_envoy(event, checker=kind, host=host, port=int(port), cluster=cluster, timestamp="")
            for event in after.events
        )

    has_traffic = RESULTS.get(name, (True,))[0]
    made = Checks(cluster, found.check.asked, found.check.rules, seed=1, told=told, has_traffic=lambda: has_traffic)
    made.replace([Target(str(each.address), *each.address) for each in found.membership.members])
    return made


def plain(event: dict[str, Any]) -> dict[str, Any]:
    """Without when and where."""
    return {key: value for key, value in event.items() if key not in {"timestamp", "host"}}


@pytest.mark.parametrize("name", CASES)
def test_the_same_checks_come_to_the_same_events(world: World, name: str) -> None:
    count = CASES[name].checks
    theirs, own = ([plain(each) for each in heard[name]] for heard in (world.theirs, world.own))

    assert len(own) >= count, "the machine was too slow"
    assert own[:count] == theirs[:count]
    assert world.figures[name]["health_check.attempt"] >= count - 2


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.waits])
def test_waits_are_as_long(world: World, name: str) -> None:
    for pairs in waits_of(world, name):
        assert len(pairs) == len(RESULTS[name][1]) - 1
        assert all(wait - 0.02 <= gap for wait, gap in pairs), pairs
    # One may be later still, for nobody else knows how busy the machine was.
    assert all(len(late) <= 1 for late in too_long(world, name)), waits_of(world, name)


def waits_of(world: World, name: str) -> list[list[tuple[float, float]]]:
    """By both sides: how long a wait must be, and how long it was. Without the first: Envoy's began before there was traffic."""
    found = ours.cluster(world.documents[name])
    assert found.check is not None
    has_traffic, results = RESULTS[name]
    waits = [wait_ms(found.check.rules, *each, has_traffic, "a", 1, seed=1) / 1_000 for each in results]
    gaps = [[after - before for before, after in pairwise(checked)] for checked in world.times[name]]
    return [list(zip(waits[1:], each[1 : len(waits)], strict=True)) for each in gaps]


def too_long(world: World, name: str) -> list[list[tuple[float, float]]]:
    return [[(wait, gap) for wait, gap in pairs if gap > wait + LATE] for pairs in waits_of(world, name)]


def test_a_passing_check_ends_an_ejection_where_rules_say_so(envoy_binary: Path, tmp_path: Path) -> None:
    """And an answer to a call that asks for it fails the endpoint as a check would."""
    gone = Reply(200, (("x-envoy-immediate-health-check-fail", "true"),))
    with serving() as peers:
        back, stays, asks = (
            peers.add(Peer(calls=listed(then=reply))).port for reply in (Reply(500), Reply(500), gone)
        )  # fmt: skip
        documents = {}
        for name, port, flag in (("back", back, True), ("stays", stays, False), ("asks", asks, True)):
            # Asked once and then only after the calls: what is seen between is of the calls.
            case = Case(REFUSED, http(), rules={"unhealthy_threshold": 1, "healthy_threshold": 2, "interval": "1s"})
            documents[name] = document(name, case, port, tmp_path / f"{name}.log", TIMEOUTS[-1]) | {
                "outlier_detection": {
                    "consecutive_5xx": 1, "max_ejection_percent": 100, "interval": "600s", "base_ejection_time": "600s",
                    "max_ejection_time": "600s", "successful_active_health_check_uneject_host": flag,
                }
            }  # fmt: skip
        with running(envoy_binary, bootstrap(list(documents.values()), tmp_path), tmp_path) as envoy:
            for name in documents:
                envoy.call(name)
            envoy.barrier()
            before = envoy.hosts()
            eventually(lambda: envoy.counters("back")["outlier_detection.ejections_active"] == 0)
            checked = envoy.counters("stays")["health_check.success"]
            eventually(lambda: envoy.counters("stays")["health_check.success"] > checked)
            left = {name: envoy.counters(name)["outlier_detection.ejections_active"] for name in ("back", "stays")}
            figures = envoy.counters("asks")

    machines = {name: ejecting(documents[name]) for name in ("back", "stays")}
    for machine in machines.values():
        assert machine.ejected == {"a"}
        machine.passed_check("a", 1)
    assert left == {name: len(machine.ejected) for name, machine in machines.items()} == {"back": 0, "stays": 1}
    status = before["asks"][asks]["health_status"]
    assert (status["failed_active_health_check"], status["excluded_via_immediate_hc_fail"]) == (True, True)
    assert figures["health_check.passive_failure"] == 1


def ejecting(said: dict[str, Any]) -> Outliers:
    found = ours.cluster(said)
    assert found.outliers is not None
    machine = Outliers(found.outliers, seed=1, now_ms=0)
    machine.replace({"a": 0}, 0)
    machine.saw("a", Saw.FAILED, 0, code=500)
    return machine
