"""Who is asked, how often, and how much at once: outliers, retries, timeouts of tries, circuit breakers."""

from __future__ import annotations

import socket

import pytest
from tests.proxy.world import WITHIN, Endpoint, Loop, ask, body, cluster, drain, forward, get, http, running, status

from reachline.testing.wait import eventually


@pytest.fixture
def dead() -> int:
    """A port where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def test_an_outlier_is_ejected_by_the_calls_of_clients(loop: Loop, endpoint: Endpoint, another: Endpoint) -> None:
    more = {
        "outlier_detection": {"consecutive_5xx": 2, "max_ejection_percent": 100, "base_ejection_time": "60s"},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
    }
    given = http([forward("/", "a")], [cluster("a", [endpoint.port, another.port], **more)])
    with running(loop, given) as proxy:
        for _ in range(4):
            assert status(ask(proxy.port, get("/503"))) == 503
        eventually(lambda: proxy.figures()["cluster.a.outlier_detection.ejections_active"] == 2)
        answer = ask(proxy.port, get("/x"))
        shown = proxy.admin("/clusters")

    assert body(answer) == b"no healthy upstream"
    assert shown.count(b"health_flags::/failed_outlier_check") == 2
    assert shown.count(b"rq_error::2") == 2


def test_connects_that_fail_count_against_their_endpoint(loop: Loop, endpoint: Endpoint, dead: int) -> None:
    more = {"outlier_detection": {"consecutive_5xx": 2, "max_ejection_percent": 50, "base_ejection_time": "60s"}}
    with running(loop, http([forward("/", "a")], [cluster("a", [endpoint.port, dead], **more)])) as proxy:
        found = [status(ask(proxy.port, get("/x"))) for _ in range(12)]

    assert found.count(503) == 2
    assert found[-4:] == [200] * 4


def test_a_check_that_fails_takes_an_endpoint_out(loop: Loop, endpoint: Endpoint, dead: int) -> None:
    check = {
        "timeout": "0.3s",
        "interval": "60s",
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "http_health_check": {"path": "/x"},
    }
    with running(
        loop, http([forward("/", "a")], [cluster("a", [endpoint.port, dead], health_checks=[check])])
    ) as proxy:
        found = {status(ask(proxy.port, get("/x"))) for _ in range(8)}
        assert b"health_flags::/failed_active_hc" in proxy.admin("/clusters")

    assert found == {200}


def test_a_failed_try_is_made_again_at_another_endpoint(loop: Loop, endpoint: Endpoint, dead: int) -> None:
    predicate = [{"name": "envoy.retry_host_predicates.previous_hosts"}]
    predicate[0]["typed_config"] = {  # type: ignore[assignment]
        "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    }
    policy = {"retry_on": "connect-failure", "num_retries": 1, "retry_host_predicate": predicate}
    with running(loop, http([forward("/", "a", retry_policy=policy)], [cluster("a", [endpoint.port, dead])])) as proxy:
        found = [
            status(ask(proxy.port, get("/x", method="POST", more=b"content-length: 3\r\n") + b"abc")) for _ in range(6)
        ]
        figures = proxy.figures()

    assert found == [200] * 6
    assert all(each.endswith(b"\r\n\r\nabc") for each in endpoint.asked)
    assert figures["cluster.a.upstream_rq_retry"] == figures["cluster.a.upstream_cx_connect_fail"] >= 1


def test_a_try_may_take_no_longer_than_its_own_time(loop: Loop, endpoint: Endpoint) -> None:
    policy = {"retry_on": "5xx", "num_retries": 2, "per_try_timeout": "0.1s"}
    with running(loop, http([forward("/", "a", retry_policy=policy)], [cluster("a", [endpoint.port])])) as proxy:
        answer = ask(proxy.port, get("/hang"))
        figures = proxy.figures()

    assert (status(answer), body(answer)) == (504, b"upstream request timeout")
    assert len(endpoint.asked) == 3
    assert figures["cluster.a.upstream_rq_per_try_timeout"] == 3
    assert figures["cluster.a.upstream_rq_retry_limit_exceeded"] == 1


def test_a_body_too_large_to_be_kept_is_sent_once(loop: Loop, endpoint: Endpoint) -> None:
    routes = [{**forward("/", "a", retry_policy={"retry_on": "5xx"}), "per_request_buffer_limit_bytes": 10}]
    with running(loop, http(routes, [cluster("a", [endpoint.port])])) as proxy:
        large = ask(proxy.port, get("/503", method="POST", more=b"content-length: 11\r\n") + b"x" * 11)
        count = len(endpoint.asked)
        small = ask(proxy.port, get("/503", method="POST", more=b"content-length: 3\r\n") + b"abc")

    assert (status(large), count) == (503, 1)
    assert (status(small), len(endpoint.asked)) == (503, 3)


def test_retries_are_bounded_together(loop: Loop, endpoint: Endpoint) -> None:
    limits = {"thresholds": [{"max_retries": 0}]}
    given = http(
        [forward("/", "a", retry_policy={"retry_on": "5xx"})], [cluster("a", [endpoint.port], circuit_breakers=limits)]
    )
    with running(loop, given) as proxy:
        assert status(ask(proxy.port, get("/503"))) == 503
        assert proxy.figures()["cluster.a.upstream_rq_retry_overflow"] == 1

    assert len(endpoint.asked) == 1


def test_requests_are_bounded_together(loop: Loop, endpoint: Endpoint) -> None:
    limits = {"thresholds": [{"max_requests": 1}]}
    given = http([forward("/", "a")], [cluster("a", [endpoint.port], circuit_breakers=limits)])
    with running(loop, given) as proxy, socket.create_connection(("127.0.0.1", proxy.port), WITHIN) as client:
        client.sendall(get("/held"))
        eventually(lambda: endpoint.asked)
        answer = ask(proxy.port, get("/x"))
        endpoint.gate.set()
        held = drain(client)
        after = ask(proxy.port, get("/x"))

    assert (status(answer), b"x-envoy-overloaded: true" in answer) == (503, True)
    assert (status(held), status(after)) == (200, 200)


def test_a_request_waits_for_a_connection_where_there_may_be_no_more(loop: Loop, endpoint: Endpoint) -> None:
    limits = {"thresholds": [{"max_connections": 1}]}
    given = http([forward("/", "a")], [cluster("a", [endpoint.port], circuit_breakers=limits)])
    with running(loop, given) as proxy, socket.create_connection(("127.0.0.1", proxy.port), WITHIN) as client:
        client.sendall(get("/held"))
        eventually(lambda: endpoint.asked)
        with socket.create_connection(("127.0.0.1", proxy.port), WITHIN) as second:
            second.sendall(get("/x"))
            eventually(lambda: proxy.figures()["cluster.a.upstream_rq_pending_active"] == 1)
            endpoint.gate.set()
            found = (body(drain(client)), body(drain(second)))

    assert found == (b"held", b"one")
    assert endpoint.connections == 1


def test_hash_policies_keep_calls_together(loop: Loop, endpoint: Endpoint, another: Endpoint) -> None:
    route = forward("/", "a", hash_policy=[{"header": {"header_name": "x-key"}}])
    with running(loop, http([route], [cluster("a", [endpoint.port, another.port], lb_policy="RING_HASH")])) as proxy:
        found = {
            key: {body(ask(proxy.port, get("/x", more=b"x-key: %d\r\n" % key))) for _ in range(3)} for key in range(12)
        }

    assert all(len(each) == 1 for each in found.values())
    assert set.union(*found.values()) == {b"one", b"two"}
