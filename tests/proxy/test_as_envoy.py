"""The same document and the same bytes to a real Envoy and to our proxy: answers, what endpoints see, and access logs agree."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.differential.real import Envoy, binary
from tests.differential.real import running as envoy_running
from tests.proxy.world import FILE_LOG, WITHIN, Endpoint, Loop, Proxy, ask, cluster, drain, forward, get, running
from tests.proxy.world import http as document_of

from reachline.testing.wait import eventually

pytestmark = pytest.mark.real

GET = [
    "/api", "/dead", "/none", "/missing", "/over", "/direct", "/redirect", "/hang", "/retry", "/rw/x?q=1", "/500", "/204",
    "/304", "/eof", "/chunk", "/interim", "/reset", "/close", "/partial", "/garbage", "/nothing", "/api%00", "/api/../x",
    "/weighted", "/headers", "/exact?x=1", "/exact/more", "/CASE", "/retry5/x", "/r-404/x",
]  # fmt: skip
OTHERS = [
    get("/api", method="HEAD"), get("/chunk", method="HEAD"), get("/dead", method="HEAD"),
    get("/api", method="POST", more=b"content-length: 3\r\n") + b"abc",
    get("/api", method="POST", more=b"transfer-encoding: chunked\r\ntrailer: t\r\n") + b"3\r\nabc\r\n0\r\nT: v\r\n\r\n",
    get("/api", method="POST", more=b"expect: 100-continue\r\ncontent-length: 3\r\n") + b"abc",
    get("/retry5/y", method="POST", more=b"content-length: 3\r\n") + b"abc",
    b"GET /api HTTP/1.0\r\n\r\n", b"GET /api HTTP/1.1\r\nconnection: close\r\n\r\n",
    get("/api", more=b"X : y\r\n"), get("/api", more=b"content-length: 3\r\ntransfer-encoding: chunked\r\n"),
    get("/api", more=b"content-length: 3\r\ncontent-length: 4\r\n") + b"abc",
    get("/api", more=b"X: a\0b\r\n"), get("/api", more=b": a\r\n"), get("/api", more=b"content-length: 0x3\r\n") + b"abc",
    get("/api", method="POST", more=b"transfer-encoding: chunked\r\n") + b"xyz\r\nabc\r\n",
    get("/api", more=b"X-Foo: 1\r\nTE: trailers, gzip\r\nKeep-Alive: 1\r\nProxy-Connection: a\r\nX-Forwarded-For: 9.9.9.9\r\n"
        b"X-Forwarded-Proto: https\r\nX-Request-Id: mine\r\nX-Envoy-Foo: 1\r\nx-envoy-upstream-rq-timeout-ms: 100\r\nVia: 1.1 q\r\nX_u: 1\r\n"),
    get("/api", more=b"x-envoy-retry-on: 5xx\r\nx-envoy-max-retries: 9\r\nx-envoy-decorator-operation: o\r\nx-envoy-attempt-count: 9\r\n"),
    get("/api", more=b"x: 1\r\nX: 2\r\n"), get("/headers", more=b"x-a: 1\r\nx-b: 2\r\nx-c: 3\r\n"),
    b"GET /api HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"GET http://h.example/api?x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"FOO /api HTTP/1.1\r\nhost: a\r\n\r\n", get("/api", more=b"X: " + b"a" * 70_000 + b"\r\n"),
    get("/api", more=b"".join(b"x%d: 1\r\n" % number for number in range(120))), get("/api#frag"),
    get("/api", last=False) + get("/direct"), get("/hang2", method="POST", more=b"content-length: 10\r\n") + b"ab",
    get("/api", method="POST", more=b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 3\r\n") + b"abc",
    get("/api", more=b"upgrade: websocket\r\n"), get("/redirect2", more=b"x-forwarded-proto: javascript\r\n"),
    get("/redirect2", more=b"x-forwarded-proto: https\r\n"), get("/redirect2"), get("/redirect2", more=b"x-forwarded-proto: HTTPS\r\n"),
    b"CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\nconnection: close\r\n\r\n",
    get("/rw/x", more=b"x-envoy-original-path: /mine\r\nx-envoy-original-host: mine\r\nx-forwarded-host: mine\r\n"),
    get("/api", more=b"x-envoy-expected-rq-timeout-ms: 77\r\n"), get("/api", method="POST", more=b"content-length: 000003\r\n") + b"abc",
    get("/204-length"), get("/204-chunks"), get("/own"), get("/nolength", method="POST", more=b"content-length: 3\r\n") + b"abc",
    get("/api", more=b"x-a: \xc3\xa9\r\n"), get("/headers", more=b"x-a: \xc3\xa9\r\n"),
    b"GET /api HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n", b"GET http://[::1/api HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"\r\n\r\n" + get("/api"), b"GET /api HTTP/1.1\r\nhost: a b\r\n\r\n", b"GET /tls HTTP/1.1\r\nhost: a:80\r\nconnection: close\r\n\r\n",
]  # fmt: skip
RAW = [*map(get, GET), *OTHERS]
CHANGING = re.compile(
    rb"(date: )[^\r]*|(x-envoy-upstream-service-time: )[^\r]*|(x-request-id: )[0-9a-f-]{36}|(x-envoy-expected-rq-timeout-ms: )1[45]\d{3}"
)


SOON = {"delayed_close_timeout": "0.02s"}
"""Envoy says that there is no more only after it; all that is asked here is sent before anything is read."""
VARYING = {"date", "x-envoy-upstream-service-time", "connection"}
"""The last one: whether a body was here before its answer was is a matter of microseconds."""


def same(data: bytes) -> bytes:
    """Without what differs from one run to the next, and with headers in one order."""
    data = CHANGING.sub(lambda found: next(each for each in found.groups() if each), data)
    head, gap, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    return b"\r\n".join([first, *sorted(lines)]) + gap + rest


def routes() -> list[dict[str, Any]]:
    add = [{"header": {"key": "x-d", "value": "%REQ(x-a)%-%PROTOCOL%"}}, {"header": {"key": "x-b", "value": "new"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]  # fmt: skip
    retrying = {"retry_policy": {"retry_on": "connect-failure,5xx", "num_retries": 1}}
    return [
        forward("/dead", "dead"), forward("/none", "none"), forward("/missing", "nowhere"), forward("/over", "over"),
        {"match": {"prefix": "/direct"}, "direct_response": {"status": 418, "body": {"inline_string": "tea"}}},
        {"match": {"prefix": "/redirect2"}, "redirect": {"path_redirect": "/x"}},
        {**forward("/nolength", "a"), "request_headers_to_remove": ["content-length"], "response_headers_to_remove": ["content-length"]},
        {"match": {"connect_matcher": {}}, "route": {"cluster": "a"}},
        {"match": {"prefix": "/redirect"}, "redirect": {"https_redirect": True, "path_redirect": "/x"}},
        {"match": {"prefix": "/tls"}, "redirect": {"https_redirect": True, "response_code": "FOUND", "prefix_rewrite": "/new"}},
        forward("/hang2", "a", idle_timeout="0.3s"), forward("/hang", "a", timeout="0.3s"), forward("/retry5", "a", prefix_rewrite="/503", **retrying), forward("/retry", "dead", **retrying),
        forward("/rw", "a", prefix_rewrite="/new", host_rewrite_literal="other.example"),
        {"match": {"safe_regex": {"regex": "/r-(\\d+).*"}}, "route": {"cluster": "a", "regex_rewrite": {"pattern": {"regex": "/r-(\\d+)"}, "substitution": "/\\1"}}},
        {"match": {"prefix": "/weighted"}, "route": {"weighted_clusters": {"clusters": [{"name": "a", "weight": 1}, {"name": "none", "weight": 0}]}}},
        {**forward("/headers", "a"), "request_headers_to_add": add, "request_headers_to_remove": ["x-c"], "response_headers_to_add": [{"header": {"key": "x-code", "value": "%RESPONSE_CODE%"}}], "response_headers_to_remove": ["x-foo"]},
        {"match": {"path": "/exact"}, "route": {"cluster": "a"}}, {"match": {"path": "/case", "case_sensitive": False}, "route": {"cluster": "a"}},
        {"match": {"prefix": "/", "headers": [{"name": ":path", "string_match": {"safe_regex": {"regex": "/(api|own|500|204|304|eof|chunk|interim|reset|close|partial|garbage).*"}}}]}, "route": {"cluster": "a"}},
    ]  # fmt: skip


class Both:
    """Envoy, ours, and what their endpoints saw."""

    def __init__(
        self, envoy: Envoy, ours: Proxy, endpoints: tuple[Endpoint, Endpoint], logs: tuple[Path, Path]
    ) -> None:
        self.ports = (envoy.port, ours.port)
        self.endpoints = endpoints
        self.logs = logs

    def ask(self, raw: bytes) -> list[tuple[bytes, list[bytes]]]:
        found = []
        for port, endpoint in zip(self.ports, self.endpoints, strict=True):
            endpoint.asked.clear()
            found.append((ask(port, raw), [same(each) for each in endpoint.asked]))
        return found


@pytest.fixture(scope="module")
def both(loop: Loop, far_loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    found = binary()
    if found is None:
        pytest.skip("no Envoy: `make envoy`, or REACHLINE_ENVOY names its binary")
    endpoints = (Endpoint(far_loop), Endpoint(far_loop))
    unused = socket.socket()
    unused.bind(("127.0.0.1", 0))
    tmp = tmp_path_factory.mktemp("both")
    logs = (tmp / "envoy.access", tmp / "ours.access")
    given = [
        document_of(
            routes(),
            [
                cluster("a", [endpoint.port]), cluster("dead", [unused.getsockname()[1]]), cluster("none", []),
                cluster("over", [endpoint.port], circuit_breakers={"thresholds": [{"max_requests": 0, "max_pending_requests": 0}]}),
            ],
            access_log=[{"name": "file", "typed_config": {"@type": FILE_LOG, "path": str(log)}}],
            **SOON,
        )
        for endpoint, log in zip(endpoints, logs, strict=True)
    ]  # fmt: skip
    with envoy_running(found, given[0], tmp) as envoy, running(loop, given[1]) as ours:
        yield Both(envoy, ours, endpoints, logs)
    unused.close()
    for endpoint in endpoints:
        endpoint.close()


@pytest.mark.parametrize("raw", RAW, ids=lambda raw: repr(raw[:50]))
def test_an_answer_and_what_the_endpoint_sees_are_envoys(both: Both, raw: bytes) -> None:
    (theirs, theirs_seen), (ours, ours_seen) = both.ask(raw)

    assert same(ours) == same(theirs)
    assert ours_seen == theirs_seen


def test_access_logs_are_envoys(both: Both) -> None:
    paths = ["/api", "/dead", "/none", "/missing", "/over", "/direct", "/hang", "/retry", "/reset", "/nothing", "/chunk", "/garbage", "/rw/x"]  # fmt: skip
    for path in paths:
        both.ask(get(path, more=b"user-agent: tester\r\nx-request-id: id-%b\r\n" % path[1:].encode()))

    def told(log: Path) -> dict[str, str]:
        lines = [each for each in log.read_text().splitlines() if "tester" in each]
        # Times and ports differ; flags, sizes and texts do not.
        plain = [re.sub(r'^\[[^]]*\] | \d+ (?:\d+|-) "-" |"127.0.0.1:\d+"$', " ", each) for each in lines]
        return {each.split('"')[1]: each for each in plain}

    eventually(lambda: len(told(both.logs[0])) == len(told(both.logs[1])) == len(paths))
    assert told(both.logs[1]) == told(both.logs[0])


def test_who_sends_no_more_before_its_answer_is_there_gets_none(both: Both) -> None:
    raw = get("/hang", last=False, more=b"user-agent: half\r\n")
    for port in both.ports:
        with socket.create_connection(("127.0.0.1", port), WITHIN) as client:
            client.sendall(raw)
            client.shutdown(socket.SHUT_WR)
            assert drain(client) == b""

    for log in both.logs:
        line = eventually(lambda: [each for each in log.read_text().splitlines() if "half" in each])  # noqa: B023
        assert '" 0 DC 0 0 ' in line[0]


PATHS = [
    "/api", "/api/a?b=c", "/direct", "/redirect?q", "/rw/x?q=1", "/rw", "/500", "/404/x", "/204", "/304", "/chunk", "/interim", "/nothing",
    "/weighted", "/headers?x", "/exact?x=1", "/exact/more", "/CASE", "/case", "/r-201/x", "/r-x", "/tls?a=b", "/none", "/missing", "/retry5/x",
    "/api%2Fx", "/api//x", "/api/./x",
]  # fmt: skip
HEADERS = {
    "x-a": ["1", "", "two words"], "x-b": ["old"], "x-c": ["gone"], "user-agent": ["tester/1"], "accept": ["*/*"], "te": ["trailers", "gzip"],
    "x-request-id": ["an-id"], "x-forwarded-for": ["9.9.9.9", "10.0.0.1, 9.9.9.9"], "x-forwarded-proto": ["https", "http"],
    "x-envoy-max-retries": ["3"], "x-envoy-retry-on": ["5xx"], "x-envoy-foo": ["1"], "cookie": ["a=b; c=d"], "via": ["1.1 other"],
}  # fmt: skip


def drawn(rng: Random) -> tuple[str, str, dict[str, str], bytes | None, int]:
    """(method, path, headers, body, whether that comes in pieces)."""
    method = rng.choice(["GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    headers = {name: rng.choice(values) for name, values in HEADERS.items() if rng.random() < 0.25}
    headers["host"] = rng.choice(["a.example", "b.example:8080", "A.EXAMPLE"])
    size = rng.choice([0, 1, 100, 5_000]) if method in {"POST", "PUT", "PATCH"} else None
    return method, rng.choice(PATHS), headers, None if size is None else rng.randbytes(size), rng.randrange(2)


def test_a_thousand_random_requests_come_to_the_same(both: Both) -> None:
    rng = Random(20)
    doors = [http.client.HTTPConnection("127.0.0.1", port, timeout=10) for port in both.ports]
    for number in range(1_000):
        method, path, headers, content, is_chunked = drawn(rng)
        found = []
        for door, endpoint in zip(doors, both.endpoints, strict=True):
            endpoint.asked.clear()
            pieces = iter([content[:50], content[50:]]) if is_chunked and content else content
            door.request(method, path, body=pieces, headers=headers, encode_chunked=bool(is_chunked and content))
            answer = door.getresponse()
            said = sorted((name, value) for name, value in answer.getheaders() if name not in VARYING)
            # A body in pieces may reach the endpoint in other pieces.
            seen = [same(each).partition(b"\r\n\r\n")[0] if is_chunked else same(each) for each in endpoint.asked]
            found.append((answer.status, answer.reason, said, answer.read(), seen))
        assert found[1] == found[0], (number, method, path, headers)
    for door in doors:
        door.close()


def test_paths_that_are_normalised_and_texts_beyond_ascii_are_envoys(
    loop: Loop, far_loop: Loop, tmp_path: Path
) -> None:
    found = binary()
    if found is None:
        pytest.skip("no Envoy: `make envoy`, or REACHLINE_ENVOY names its binary")
    add = [{"header": {"key": "x-z", "value": "Zürich ✓ %REQ(x-a)%"}}]
    line = {"log_format": {"text_format_source": {"inline_string": "Ü %REQ(X-A)% %REQ(:PATH)% %ROUTE_NAME%\n"}}}
    logs, seen = (tmp_path / "envoy.access", tmp_path / "ours.access"), []
    endpoints = (Endpoint(far_loop), Endpoint(far_loop))
    given = [
        document_of(
            [{**forward("/", "a"), "name": "wäg", "response_headers_to_add": add, "request_headers_to_add": add}],
            [cluster("a", [endpoint.port])],
            normalize_path=True,
            access_log=[{"name": "file", "typed_config": {"@type": FILE_LOG, "path": str(log), **line}}],
            **SOON,
        )
        for endpoint, log in zip(endpoints, logs, strict=True)
    ]
    paths = ["/x", "/a%00b", "/a?b=%00", "/a%zz", "/a%2fb", "/a/%2e%2e/b", "/a\\b", "/%41", "//a//b", "/a%c3%a9"]
    with envoy_running(found, given[0], tmp_path) as envoy, running(loop, given[1]) as ours:
        for path in paths:
            answers = [same(ask(port, get(path, more=b"x-a: \xc3\xa9\xff\r\n"))) for port in (envoy.port, ours.port)]
            asked = [[same(each) for each in endpoint.asked] for endpoint in endpoints]
            seen.append((path, answers[0] == answers[1], asked[0] == asked[1]))
        eventually(lambda: all(log.exists() and log.read_bytes().count(b"\n") == len(paths) for log in logs), within=15)
    for endpoint in endpoints:
        endpoint.close()

    assert seen == [(path, True, True) for path in paths]
    assert logs[0].read_bytes() == logs[1].read_bytes()
