"""Lines of the event log, key by key and in the order in which Envoy 1.40 wrote them."""

from __future__ import annotations

import json

from tests.core.outliers import World

from reachline.core.outlier_events import Event, Saw, as_envoy
from reachline.core.outlier_rules import ENVOY, OutlierRules

RULES = ENVOY._replace(
    max_ejection_percent=100, consecutive_5xx=0, consecutive_gateway_failure=0, success_rate_request_volume=4,
    interval_ms=1_000, base_ejection_ms=2_000,
)  # fmt: skip
AT = "2026-11-30T18:08:22.840Z"


def line(event: Event) -> str:
    return json.dumps(as_envoy(event, cluster="c", url="127.0.0.1:1", timestamp=AT), separators=(",", ":"))


def failing(rules: OutlierRules) -> World:
    world = World(5, rules)
    world.calls((10, 0), (10, 0), (10, 0), (10, 0), (0, 10))
    world.at(1)
    return world


def test_a_consecutive_ejection() -> None:
    world = World(3, RULES._replace(consecutive_5xx=3))

    assert line(world.call(0, 500, times=3)[0]) == (
        f'{{"type":"CONSECUTIVE_5XX","timestamp":"{AT}","cluster_name":"c","upstream_url":"127.0.0.1:1","action":"EJECT",'
        '"num_ejections":1,"enforced":true,"eject_consecutive_event":{}}'
    )


def test_a_detection_that_is_not_enforced() -> None:
    world = World(3, RULES._replace(consecutive_gateway_failure=3))

    assert line(world.call(0, 503, times=3)[0]) == (
        f'{{"type":"CONSECUTIVE_GATEWAY_FAILURE","timestamp":"{AT}","cluster_name":"c","upstream_url":"127.0.0.1:1",'
        '"action":"EJECT","num_ejections":0,"enforced":false,"eject_consecutive_event":{}}'
    )


def test_an_ejection_by_success_rate() -> None:
    assert line(failing(RULES).events[0]) == (
        f'{{"type":"SUCCESS_RATE","timestamp":"{AT}","cluster_name":"c","upstream_url":"127.0.0.1:1","action":"EJECT",'
        '"num_ejections":1,"enforced":true,"eject_success_rate_event":{"host_success_rate":0,'
        '"cluster_average_success_rate":80,"cluster_success_rate_ejection_threshold":4}}'
    )


def test_an_ejection_by_failure_percentage() -> None:
    rules = RULES._replace(
        enforcing_success_rate=0, enforcing_failure_percentage=100, failure_percentage_request_volume=4
    )

    assert line(failing(rules).events[1]) == (
        f'{{"type":"FAILURE_PERCENTAGE","timestamp":"{AT}","cluster_name":"c","upstream_url":"127.0.0.1:1",'
        '"action":"EJECT","num_ejections":1,"enforced":true,"eject_failure_percentage_event":{"host_success_rate":0}}'
    )


def test_a_return_and_the_next_ejection_tell_how_long_ago_the_opposite_was() -> None:
    world = failing(RULES._replace(consecutive_5xx=30))
    world.at(5)
    again = world.call(4, 500, times=30)[0]

    assert line(world.events[1]) == (
        f'{{"type":"CONSECUTIVE_5XX","timestamp":"{AT}","secs_since_last_action":"2","cluster_name":"c",'
        '"upstream_url":"127.0.0.1:1","action":"UNEJECT","num_ejections":1,"enforced":false}'
    )
    assert '"secs_since_last_action":"2"' in line(again)
    assert '"num_ejections":2' in line(again)


def test_what_the_cap_holds_is_no_line() -> None:
    world = World(3, RULES._replace(consecutive_5xx=3, max_ejection_percent=0))

    assert as_envoy(world.call(0, 500, times=3)[0], cluster="c", url="", timestamp=AT) is None


def test_a_latency_ejection_has_a_key_of_its_own() -> None:
    world = World(5, RULES._replace(latency=True, latency_request_volume=1))
    for number in range(5):
        world.see(number, Saw.ANSWERED, took_us=900_000 if number == 4 else 10_000)
    world.at(1)

    told = as_envoy(world.events[0], cluster="c", url="", timestamp=AT)

    assert told is not None
    assert told["type"] == "LATENCY"
    assert told["eject_latency_event"] == {
        "host_latency_us": 901_120, "cluster_latency_us": 9_984, "cluster_latency_threshold_us": 59_984,
    }  # fmt: skip
