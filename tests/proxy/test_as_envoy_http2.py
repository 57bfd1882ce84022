"""The same document and the same requests by HTTP/2 to a real Envoy and to our proxy: answers, what endpoints see, and access logs agree."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from tests.differential.real import binary
from tests.differential.real import running as envoy_running
from tests.proxy.asking import GRPC, Came, Client, Fields, head
from tests.proxy.test_as_envoy import PATHS, SOON, Both, routes, same
from tests.proxy.world import FILE_LOG, Endpoint, Loop, cluster, forward, running
from tests.proxy.world import http as document_of

from reachline.testing.wait import eventually

pytestmark = pytest.mark.real


class Question(NamedTuple):
    """One request."""

    headers: Fields
    body: bytes | None = None
    trailers: Fields | None = None
    end: bool = True


def post(path: str, *more: tuple[bytes, bytes], body: bytes | None = None, end: bool = True) -> Question:
    return Question(head(path, method="POST", more=more), body, end=end)


LOCAL = ["/dead", "/none", "/missing", "/over", "/drop", "/direct", "/redirect", "/hang", "/reset", "/nothing", "/garbage", "/retry"]  # fmt: skip
ENDED = ["/api", "/204", "/304", "/eof", "/chunk", "/interim", "/partial", "/own", "/204-length", "/204-chunks", "/rw/x?q=1", "/headers", "/hang2", "/retry5/x"]  # fmt: skip
LENGTH = (b"content-length", b"3")
QUESTIONS = {
    **{path: Question(head(path)) for path in (*LOCAL, *ENDED)},
    **{f"HEAD {path}": Question(head(path, method="HEAD")) for path in ("/api", "/direct", "/chunk", "/dead")},
    **{f"gRPC {path}": post(path, *GRPC) for path in (*LOCAL, "/api", "/500", "/partial")},
    "a body by its length": post("/api", LENGTH, body=b"abc"),
    "a body without": post("/api", body=b"abc"),
    "no body": post("/api"),
    "trailers": Question(head("/api", method="POST"), b"abc", [(b"x-t", b"1")]),
    "an early answer": post("/none", body=b"abc", end=False),
    "a body that does not come": post("/hang2", (b"content-length", b"10"), body=b"ab", end=False),
    "the same by gRPC": post("/hang2", (b"content-length", b"10"), *GRPC, body=b"ab", end=False),
    "100 Continue": post("/api", (b"expect", b"100-continue"), LENGTH, body=b"abc"),
    "a body of another length": post("/api", (b"content-length", b"5"), body=b"abc"),
    "Host for authority": Question([*head("/api")[:2], head("/api")[3], (b"host", b"a.example")]),
    "Host beside authority": Question(head("/api", more=[(b"host", b"b.example")])),
    "a strange method": Question(head("/api", method="FOO")),
    "large headers": Question(head("/api", more=[(b"x", b"a" * 15_000)] * 5)),
    "many headers": Question(head("/api", more=[(b"x%d" % number, b"a") for number in range(120)])),
    "a cookie in crumbs": Question(head("/api", more=[(b"cookie", b"a=1"), (b"cookie", b"b=2")])),
    "a fragment": Question(head("/api#frag")),
    "https, it says": Question(head("/api", scheme="https")),
    "TE": Question(head("/api", more=[(b"te", b"trailers")])),
    "headers of Envoy's": Question(head("/api", more=[(b"x-envoy-foo", b"1"), (b"x-envoy-max-retries", b"9"), (b"x-request-id", b"mine")])),
}  # fmt: skip
BROKEN = {
    "no slash": Question(head("api")),
    "an asterisk": Question(head("*")),
    "Connection": Question(head("/api", more=[(b"connection", b"close")])),
    "TE of another kind": Question(head("/api", more=[(b"te", b"gzip")])),
    "upper case": Question(head("/api", more=[(b"X-A", b"1")])),
    "no path": Question(head("/api")[:3]),
    "no authority": Question([*head("/api")[:2], head("/api")[3]]),
    "a space in the authority": Question(head("/api", authority="a b")),
    "a user in the authority": Question(head("/api", authority="u@a")),
    "a line feed in a value": Question(head("/api", more=[(b"x", b"a\nb: c")])),
}
CHANGING = {b"date": b"", b"x-envoy-upstream-service-time": b""}


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
    given = []
    for endpoint, log in zip(endpoints, logs, strict=True):
        dropping = cluster("drop", [endpoint.port])
        dropping["load_assignment"]["policy"] = {
            "drop_overloads": [{"category": "all", "drop_percentage": {"numerator": 100}}]
        }
        none = {"thresholds": [{"max_requests": 0, "max_pending_requests": 0}]}
        clusters = [
            cluster("a", [endpoint.port]), cluster("dead", [unused.getsockname()[1]]), cluster("none", []), dropping,
            cluster("over", [endpoint.port], circuit_breakers=none),
        ]  # fmt: skip
        logged = [{"name": "file", "typed_config": {"@type": FILE_LOG, "path": str(log)}}]
        given.append(document_of([forward("/drop", "drop"), *routes()], clusters, access_log=logged, **SOON))
    with envoy_running(found, given[0], tmp) as envoy, running(loop, given[1]) as ours:
        yield Both(envoy, ours, endpoints, logs)
    unused.close()
    for endpoint in endpoints:
        endpoint.close()


def shown(came: Came) -> Came:
    """Without what differs from one run to the next, and with headers in one order."""
    return replace(came, headers=sorted((name, CHANGING.get(name, value)) for name, value in came.headers))


def asked(both: Both, question: Question) -> list[tuple[Came, list[bytes]]]:
    found = []
    for port, endpoint in zip(both.ports, both.endpoints, strict=True):
        endpoint.asked.clear()
        with Client(port) as client:
            came = client.answer(question.headers, question.body, question.trailers, end=question.end)
        found.append((shown(came), [same(each) for each in endpoint.asked]))
    return found


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_an_answer_and_what_the_endpoint_sees_are_envoys(both: Both, question: Question) -> None:
    theirs, ours = asked(both, question)

    assert ours == theirs


@pytest.mark.parametrize("question", BROKEN.values(), ids=BROKEN)
def test_what_breaks_the_protocol_ends_the_connection_with_either(both: Both, question: Question) -> None:
    for port, endpoint in zip(both.ports, both.endpoints, strict=True):
        endpoint.asked.clear()
        with Client(port) as client:
            stream = client.ask(question.headers, question.body, question.trailers, end=question.end)
            while not client.is_closed:
                client.read()
            assert not client.streams[stream].status
            assert not endpoint.asked


def test_access_logs_are_envoys(both: Both) -> None:
    paths = [*LOCAL, *ENDED]
    for path in paths:
        for kind, more in (("GET", []), ("POST", GRPC)):
            told = [(b"user-agent", b"tester-" + kind.encode()), (b"x-request-id", b"id-" + path[1:].encode()), *more]
            asked(both, Question(head(path, method=kind, more=told)))

    def lines(log: Path) -> list[str]:
        found = [each for each in log.read_text().splitlines() if "tester" in each]
        return sorted(re.sub(r'^\[[^]]*\] | \d+ (?:\d+|-) "-" |"127.0.0.1:\d+"$', " ", each) for each in found)

    eventually(lambda: len(lines(both.logs[0])) == len(lines(both.logs[1])) == 2 * len(paths))
    assert lines(both.logs[1]) == lines(both.logs[0])


HEADERS: dict[bytes, list[bytes]] = {
    b"x-a": [b"1", b"", b"two words"], b"x-b": [b"old"], b"x-c": [b"gone"], b"user-agent": [b"tester/1"], b"te": [b"trailers"],
    b"x-request-id": [b"an-id"], b"x-forwarded-for": [b"9.9.9.9", b"10.0.0.1, 9.9.9.9"], b"x-envoy-retry-on": [b"5xx"],
    b"x-envoy-foo": [b"1"], b"cookie": [b"a=b; c=d"], b"via": [b"1.1 other"], b"content-type": [b"application/grpc", b"text/plain"],
}  # fmt: skip


def drawn(rng: Random) -> Question:
    method = rng.choice(["GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    more = [(name, rng.choice(values)) for name, values in HEADERS.items() if rng.random() < 0.25]
    size = rng.choice([1, 100, 5_000]) if method in {"POST", "PUT", "PATCH"} else None
    if size is not None and rng.random() < 0.5:
        more.append((b"content-length", b"%d" % size))
    authority = rng.choice(["a.example", "b.example:8080", "A.EXAMPLE"])
    return Question(
        head(rng.choice(PATHS), method=method, more=more, authority=authority),
        None if size is None else rng.randbytes(size),
    )


def test_many_random_requests_of_one_connection_come_to_the_same(both: Both) -> None:
    rng = Random(20)
    with Client(both.ports[0]) as theirs, Client(both.ports[1]) as ours:
        for number in range(500):
            question, found = drawn(rng), []
            for client, endpoint in zip((theirs, ours), both.endpoints, strict=True):
                endpoint.asked.clear()
                came = client.answer(question.headers, question.body)
                # A body in pieces may reach the endpoint in other pieces.
                found.append((shown(came), [same(each).partition(b"\r\n\r\n")[0] for each in endpoint.asked]))
            assert found[1] == found[0], (number, question)
