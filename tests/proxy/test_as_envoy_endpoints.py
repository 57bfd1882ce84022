"""The same requests by way of a real Envoy and of our proxy to endpoints that speak HTTP/2: answers, and what endpoints see, agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from tests.differential.real import binary
from tests.differential.real import running as envoy_running
from tests.proxy.asking import GRPC, Came, Client, Fields, head
from tests.proxy.serving import Asked, Endpoint2
from tests.proxy.test_as_envoy import SOON, same
from tests.proxy.test_carried import speaking
from tests.proxy.world import Loop, ask, cluster, forward, get, running
from tests.proxy.world import http as document_of

pytestmark = pytest.mark.real

CHANGING = {b"date", b"x-envoy-upstream-service-time", b"x-request-id", b"x-envoy-expected-rq-timeout-ms"}


class Both(NamedTuple):
    """Envoy and ours, by their ports, and the endpoint of each."""

    ports: tuple[int, int]
    endpoints: tuple[Endpoint2, Endpoint2]


class Question(NamedTuple):
    headers: Fields
    body: bytes | None = None
    trailers: Fields | None = None


@pytest.fixture(scope="module")
def both(loop: Loop, far_loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    found = binary()
    if found is None:
        pytest.skip("no Envoy: `make envoy`, or REACHLINE_ENVOY names its binary")
    endpoints = (Endpoint2(far_loop), Endpoint2(far_loop))
    again = {"retry_on": "refused-stream", "num_retries": 1}
    routes = [
        {**forward("/again", "a", prefix_rewrite="/refused", retry_policy=again)},
        forward("/hang", "a", timeout="0.3s"),
        forward("/", "a"),
    ]
    given = [
        document_of(routes, [cluster("a", [each.port], **speaking())], enable_trailers=True, **SOON)
        for each in endpoints
    ]
    for each in given:
        manager = each["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        manager["http_protocol_options"] = {"enable_trailers": manager.pop("enable_trailers")}
    tmp = tmp_path_factory.mktemp("endpoints")
    with envoy_running(found, given[0], tmp) as envoy, running(loop, given[1]) as ours:
        yield Both((envoy.port, ours.port), endpoints)
    for endpoint in endpoints:
        endpoint.close()


def seen(asked: Asked) -> tuple[Fields, bytes, Fields]:
    """As the endpoint saw it: pseudo-headers first, the others in one order."""
    headers = [(name, b"" if name in CHANGING else value) for name, value in asked.headers]
    pseudo = sorted(each for each in headers if each[0][:1] == b":")
    return pseudo + sorted(each for each in headers if each[0][:1] != b":"), asked.body, asked.trailers


def shown(came: Came) -> Came:
    return replace(came, headers=sorted((name, b"" if name in CHANGING else value) for name, value in came.headers))


PATHS = [
    "/x", "/x?y=1", "/nothing", "/204", "/304", "/500", "/interim", "/trailers", "/reset", "/refused", "/again", "/partial", "/close", "/garbage", "/malformed", "/leave", "/hang",
]  # fmt: skip
QUESTIONS = {
    **{path: Question(head(path)) for path in PATHS},
    **{f"HEAD {path}": Question(head(path, method="HEAD")) for path in ("/x", "/nothing")},
    **{f"gRPC {path}": Question(head(path, method="POST", more=GRPC), b"abc") for path in ("/x", "/trailers", "/reset", "/refused", "/partial", "/500", "/hang")},
    "a body": Question(head("/echo", method="POST", more=[(b"content-length", b"3")]), b"abc"),
    "a body without a length": Question(head("/echo", method="POST"), b"abc"),
    "trailers": Question(head("/trailers", method="POST"), b"abc", [(b"x-t", b"1")]),
    "trailers alone": Question(head("/x", method="POST"), None, [(b"x-t", b"1")]),
    "https, it says": Question(head("/x", scheme="https")),
    "a cookie in crumbs": Question(head("/x", more=[(b"cookie", b"a=1"), (b"cookie", b"b=2")])),
    "TE": Question(head("/x", more=[(b"te", b"trailers")])),
}  # fmt: skip
RAW = {
    **{path: get(path) for path in PATHS},
    **{f"HEAD {path}": get(path, method="HEAD") for path in ("/x", "/nothing", "/trailers")},
    "POST without a body": get("/x", method="POST"),
    "POST of nothing": get("/x", method="POST", more=b"content-length: 0\r\n"),
    "a body": get("/echo", method="POST", more=b"content-length: 3\r\n") + b"abc",
    "chunks": get("/echo", method="POST", more=b"transfer-encoding: chunked\r\n") + b"3\r\nabc\r\n0\r\n\r\n",
    "chunks with trailers": get("/echo", method="POST", more=b"transfer-encoding: chunked\r\n")
    + b"3\r\nabc\r\n0\r\nx-t: 1\r\n\r\n",
    "absolute form": b"GET http://h.example/x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    "headers of one connection": get(
        "/x", more=b"te: trailers, gzip\r\nkeep-alive: 1\r\nproxy-connection: a\r\nX-A: b\r\n"
    ),
    "forwarded proto": get("/x", more=b"x-forwarded-proto: https\r\n"),
    "an upgrade": get("/x", more=b"connection: upgrade\r\nupgrade: websocket\r\n", last=False),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_by_http_2_it_is_envoys(both: Both, question: Question) -> None:
    found = []
    for port, endpoint in zip(both.ports, both.endpoints, strict=True):
        endpoint.asked.clear()
        with Client(port) as client:
            came = client.answer(question.headers, question.body, question.trailers)
        found.append((shown(came), [seen(each) for each in endpoint.asked]))
    theirs, ours = found

    assert ours == theirs


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW)
def test_by_http_1_it_is_envoys(both: Both, raw: bytes) -> None:
    found = []
    for port, endpoint in zip(both.ports, both.endpoints, strict=True):
        endpoint.asked.clear()
        found.append((same(ask(port, raw)), [seen(each) for each in endpoint.asked]))
    theirs, ours = found

    assert ours == theirs
