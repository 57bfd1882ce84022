"""Listeners, routes and clusters by ADS: all from a control plane, and served on when it is gone."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.proxy.plane import Plane
from tests.proxy.world import (
    Endpoint,
    Loop,
    Proxy,
    ask,
    body,
    cluster,
    document,
    forward,
    get,
    listener,
    manager,
    running,
    status,
)

from reachline.testing.wait import eventually
from reachline.wire.ads import CDS, LDS, RDS

HTTP2 = {
    "typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
}


def by_ads(**more: Any) -> dict[str, Any]:
    source = {"ads": {}, "resource_api_version": "V3"}
    found = manager([], rds={"route_config_name": "r", "config_source": source}, **more)
    del found["route_config"]
    return found


def routed(*routes: dict[str, Any]) -> dict[str, Any]:
    return {"name": "r", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": list(routes)}]}


@pytest.fixture
def plane(far_loop: Loop, endpoint: Endpoint, another: Endpoint) -> Iterator[Plane]:
    made = Plane(far_loop)
    made.say(CDS, cluster("one", [endpoint.port]), cluster("two", [another.port]))
    made.say(LDS, listener(by_ads()))
    made.say(RDS, routed(forward("/", "one")))
    yield made
    made.close()


PINNED = {
    "transport_socket": {
        "name": "tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {
                "validation_context": {"verify_certificate_spki": ["NvqYIYSbgK2vCJpQhObf77vv+bQWtc5ek5RIOwPiC9A="]}
            },
        },
    }
}


def follower(plane: Plane, **more: Any) -> dict[str, Any]:
    given = document([], [cluster("plane", [plane.port], **HTTP2)])
    given["node"] = {"id": "the-proxy", "cluster": "c"}
    service = {"envoy_grpc": {"cluster_name": "plane"}}
    ads = {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [service]}
    source = {"ads": {}, "resource_api_version": "V3"}
    given["dynamic_resources"] = {"ads_config": ads, "cds_config": source, "lds_config": {**source, **more}}
    return given


@pytest.fixture
def proxy(loop: Loop, plane: Plane) -> Iterator[Proxy]:
    with running(loop, follower(plane)) as found:
        yield found


def test_everything_comes_from_the_control_plane(proxy: Proxy, plane: Plane) -> None:
    assert body(ask(proxy.port, get("/x"))) == b"one"
    assert plane.nodes == ["the-proxy"]
    assert plane.refused == []


def test_the_dump_shows_what_the_control_plane_said(proxy: Proxy) -> None:
    _, clusters, listeners, routes = json.loads(body(proxy.admin("/config_dump")))["configs"]

    assert [each["cluster"]["name"] for each in clusters["static_clusters"]] == ["plane"]
    assert [each["cluster"]["name"] for each in clusters["dynamic_clusters"]] == ["one", "two"]
    assert [each["name"] for each in listeners["dynamic_listeners"]] == ["in"]
    assert [each["name"] for each in routes["dynamic_route_configs"]] == ["r"]


def test_routes_clusters_and_listeners_change(proxy: Proxy, plane: Plane, another: Endpoint) -> None:
    plane.say(RDS, routed(forward("/", "two")))
    eventually(lambda: body(ask(proxy.port, get("/x"))) == b"two")

    plane.say(CDS, cluster("one", [another.port]))
    eventually(lambda: status(ask(proxy.port, get("/x"))) == 503)
    plane.say(RDS, routed(forward("/", "one")))
    eventually(lambda: body(ask(proxy.port, get("/x"))) == b"two")

    plane.say(LDS, listener(by_ads(server_name="other")))
    eventually(lambda: b"server: other" in ask(proxy.port, get("/x")))
    plane.say(LDS)
    eventually(lambda: body(proxy.admin("/listeners")) == b"")


@pytest.mark.parametrize(
    ("kind", "wrong", "said"),
    [
        (CDS, cluster("more", [1], **PINNED), "more: validation_context.verify_certificate_spki: is not done by this proxy"),
        (LDS, {**listener(by_ads(xff_num_trusted_hops=1)), "name": "more"}, "listeners.more.xff_num_trusted_hops: is not done by this proxy"),
        (RDS, routed(forward("/", "two", retry_policy={"retry_on": "5xx", "per_try_idle_timeout": "1s"})), "per_try_idle_timeout: is not done by this proxy"),
    ],
)  # fmt: skip
def test_what_this_proxy_does_not_do_the_control_plane_hears_as_a_refusal(
    proxy: Proxy, plane: Plane, endpoint: Endpoint, another: Endpoint, kind: str, wrong: dict[str, Any], said: str
) -> None:
    before = {
        CDS: [cluster("one", [endpoint.port]), cluster("two", [another.port])],
        LDS: [listener(by_ads())],
        RDS: [],
    }

    plane.say(kind, *before[kind], wrong)

    eventually(lambda: plane.refused)
    assert said in plane.refused[0]
    assert body(ask(proxy.port, get("/x"))) == b"one"


def test_what_is_wrong_is_refused_with_its_reason_and_the_rest_counts(
    proxy: Proxy, plane: Plane, another: Endpoint
) -> None:
    bad = cluster("bad", [1], lb_policy="CLUSTER_PROVIDED")
    plane.say(CDS, bad, cluster("one", [another.port]))

    eventually(lambda: plane.refused)
    assert plane.refused[0].startswith("bad: ")
    assert "lb_policy" in plane.refused[0]
    eventually(lambda: body(ask(proxy.port, get("/x"))) == b"two")


def test_a_listener_whose_address_is_taken_when_its_routes_come_ends_nothing_else(
    proxy: Proxy, plane: Plane, another: Endpoint
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        late = listener(by_ads(), name="late")
        late["address"]["socket_address"]["port_value"] = taken.getsockname()[1]
        rds = late["filter_chains"][0]["filters"][0]["typed_config"]["rds"]
        rds["route_config_name"] = "late"
        plane.say(LDS, listener(by_ads()), late)
        plane.say(RDS, routed(forward("/", "one")), {**routed(forward("/", "one")), "name": "late"})
        plane.say(RDS, routed(forward("/", "two")), {**routed(forward("/", "two")), "name": "late"})

        eventually(lambda: body(ask(proxy.port, get("/x"))) == b"two")
        assert body(proxy.admin("/listeners")).count(b"\n") == 1


def test_it_serves_on_when_the_control_plane_is_gone(proxy: Proxy, plane: Plane) -> None:
    assert body(ask(proxy.port, get("/x"))) == b"one"

    plane.close()

    assert [body(ask(proxy.port, get("/x"))) for _ in range(5)] == [b"one"] * 5


@pytest.fixture
def mute(far_loop: Loop) -> Iterator[Plane]:
    made = Plane(far_loop)
    yield made
    made.close()


def test_what_was_never_said_keeps_it_from_serving_no_longer_than_allowed(
    loop: Loop, mute: Plane, endpoint: Endpoint
) -> None:
    plane = mute
    plane.say(CDS, cluster("one", [endpoint.port]))
    with running(loop, follower(plane, initial_fetch_timeout="0.2s")) as proxy:
        assert proxy.port == 0
        plane.say(LDS, listener(by_ads()))
        plane.say(RDS, routed(forward("/", "one")))
        shown = eventually(lambda: body(proxy.admin("/listeners")))

        assert body(ask(int(shown.rpartition(b":")[2]), get("/x"))) == b"one"
