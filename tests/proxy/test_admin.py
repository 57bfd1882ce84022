"""The admin's paths, and what is refused of a document or of an address."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.proxy.world import (
    FILE_LOG,
    Endpoint,
    Loop,
    Proxy,
    ask,
    body,
    cluster,
    document,
    forward,
    get,
    http,
    listener,
    manager,
    running,
    status,
)

from reachline.errors import ConfigError
from reachline.testing.wait import eventually


@pytest.fixture
def proxy(loop: Loop, endpoint: Endpoint) -> Iterator[Proxy]:
    with running(loop, http([forward("/", "a")], [cluster("a", [endpoint.port])])) as found:
        yield found


def test_figures_have_envoys_names(proxy: Proxy) -> None:
    for path in ("/x", "/404", "/503"):
        ask(proxy.port, get(path))
    figures, prometheus = proxy.figures(), proxy.admin("/stats/prometheus").decode()

    wanted = {
        "cluster.a.upstream_rq_total": 3, "cluster.a.upstream_rq_200": 1, "cluster.a.upstream_rq_4xx": 1, "cluster.a.upstream_rq_5xx": 1,
        "cluster.a.upstream_cx_total": 1, "cluster.a.membership_healthy": 1, "http.in.downstream_rq_total": 3,
        "http.in.downstream_rq_2xx": 1, "http.in.downstream_cx_total": 3, "server.live": 1,
    }  # fmt: skip
    assert {name: figures[name] for name in wanted} == wanted
    assert 'envoy_cluster_upstream_rq{envoy_response_code="200",envoy_cluster_name="a"} 1\n' in prometheus
    assert (
        'envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="in"} 1\n'
        in prometheus
    )
    assert "# TYPE envoy_cluster_membership_healthy gauge\n" in prometheus
    assert body(proxy.admin("/stats?filter=upstream_rq_200")) == b"cluster.a.upstream_rq_200: 1\n"
    assert status(proxy.admin("/stats?filter=(")) == 400


def test_clusters_listeners_and_the_document_are_shown(proxy: Proxy, endpoint: Endpoint) -> None:
    ask(proxy.port, get("/x"))
    clusters = json.loads(body(proxy.admin("/clusters?format=json")))["cluster_statuses"]
    host = clusters[0]["host_statuses"][0]
    listeners = json.loads(body(proxy.admin("/listeners?format=json")))["listener_statuses"]

    assert host["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": endpoint.port}
    assert {each["name"]: each["value"] for each in host["stats"]}["rq_success"] == "1"
    assert f"a::127.0.0.1:{endpoint.port}::health_flags::healthy\n".encode() in proxy.admin("/clusters")
    assert listeners[0]["local_address"]["socket_address"]["port_value"] == proxy.port
    assert "static_listeners" in proxy.admin("/config_dump").decode()
    assert json.loads(body(proxy.admin("/server_info")))["state"] == "LIVE"


def test_what_changes_something_must_be_posted(proxy: Proxy) -> None:
    assert status(proxy.admin("/healthcheck/fail")) == 405
    assert (status(proxy.admin("/ready")), body(proxy.admin("/ready"))) == (200, b"LIVE\n")
    assert status(proxy.admin("/healthcheck/fail", "POST")) == 200
    assert (status(proxy.admin("/ready")), body(proxy.admin("/ready"))) == (503, b"DRAINING\n")
    assert status(proxy.admin("/healthcheck/ok", "POST")) == 200
    assert status(proxy.admin("/ready")) == 200
    assert status(proxy.admin("/nothing")) == 404


def test_drained_listeners_take_no_more(proxy: Proxy) -> None:
    assert body(proxy.admin("/drain_listeners", "POST")) == b"OK\n"

    with pytest.raises(ConnectionRefusedError):
        ask(proxy.port, get("/x"))
    assert body(proxy.admin("/listeners")) == b""


def test_it_ends_when_told_to_quit(proxy: Proxy) -> None:
    assert body(proxy.admin("/quitquitquit", "POST")) == b"OK\n"

    proxy.done()


def test_an_address_that_is_taken_is_told_with_its_listener(loop: Loop) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        given = document([listener(manager([forward("/", "a")]))], [cluster("a", [1])])
        given["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=r"listeners\.in.*the address is in use"), running(loop, given):
            pass


def test_an_address_where_another_proxy_listens_is_shared_with_a_warning(
    loop: Loop, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    given = document([listener(manager([forward("/", "a")]))], [cluster("a", [endpoint.port])])
    with running(loop, given) as first:
        assert not [each for each in caplog.records if each.message == "address_shared"]
        given["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] = first.port
        with running(loop, given):
            shared = [vars(each)["address"] for each in caplog.records if each.message == "address_shared"]

    assert shared == [f"127.0.0.1:{first.port}"]


def test_what_it_does_not_do_or_cannot_read_is_refused_by_name_all_at_once(loop: Loop) -> None:
    rds = manager([], rds={"route_config_name": "r", "config_source": {"path_config_source": {"path": "/nowhere"}}})
    del rds["route_config"]
    cookie = [{"cookie": {"name": "c", "ttl": "5s"}}]
    unsaid = {"rate_limited_retry_back_off": {"reset_headers": [{"name": "x", "format": "SECONDS"}]}, "retry_on": "5xx"}
    routes = [forward("/a", "a", hash_policy=cookie), forward("/b", "a", retry_policy=unsaid)]
    undone = manager(routes, xff_num_trusted_hops=2, use_remote_address=True, add_user_agent=True)
    listeners = [
        listener(rds),
        listener(manager([], proxy_100_continue=True), name="two"),
        listener(undone, name="three"),
    ]
    given = {**document(listeners, [cluster("a", [1])]), "node": {"id": "n", "cluster": "c"}}

    with pytest.raises(ConfigError) as told, running(loop, given):
        pass

    assert [(each.place, each.path) for each in told.value.problems] == [
        ("/nowhere", ""), ("test", "listeners.two.proxy_100_continue"), ("test", "listeners.three.xff_num_trusted_hops"),
        ("test", "listeners.three.add_user_agent"), ("test", "routes.all.all.retry_policy.rate_limited_retry_back_off"),
        ("test", "routes.all.all.hash_policy.cookie.ttl"),
    ]  # fmt: skip


def test_logs_are_filtered_formatted_and_begun_anew(loop: Loop, endpoint: Endpoint, tmp_path: Path) -> None:
    plain, objects = tmp_path / "plain", tmp_path / "objects"
    failed = {"status_code_filter": {"comparison": {"op": "GE", "value": {"default_value": 500, "runtime_key": "x"}}}}
    text = {
        "log_format": {
            "text_format_source": {
                "inline_string": "%REQ(X-A?:METHOD)% %RESPONSE_CODE%|%REQ(:PATH):3%|%UPSTREAM_CLUSTER%%%\n"
            }
        }
    }
    shown = {
        "log_format": {
            "json_format": {
                "code": "%RESPONSE_CODE%",
                "path": "%REQ(:PATH)%",
                "none": "%REQ(X-NONE)%",
                "both": "%PROTOCOL% %RESPONSE_FLAGS%",
            }
        }
    }
    logs = [
        {"name": "file", "filter": failed, "typed_config": {"@type": FILE_LOG, "path": str(plain), **text}},
        {"name": "file", "typed_config": {"@type": FILE_LOG, "path": str(objects), **shown}},
    ]
    with running(loop, http([forward("/", "a")], [cluster("a", [endpoint.port])], access_log=logs)) as proxy:
        ask(proxy.port, get("/x"))
        ask(proxy.port, get("/503", more=b"x-a: b\r\n"))
        eventually(plain.read_text)
        plain.rename(tmp_path / "old")
        proxy.admin("/reopen_logs", "POST")
        ask(proxy.port, get("/500"))
        eventually(lambda: plain.exists() and plain.read_text())

    assert (tmp_path / "old").read_text() == "b 503|/50|a%\n"
    assert plain.read_text() == "GET 500|/50|a%\n"
    assert json.loads(objects.read_text().splitlines()[0]) == {
        "code": 200,
        "path": "/x",
        "none": None,
        "both": "HTTP/1.1 -",
    }
