"""Where requests go: a real Envoy and our rules decide on the same documents, one request after the other."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.differential.peers import Reply, always, serving
from tests.differential.real import running
from tests.differential.routed import ASKED, INTERNAL, RETRIED, RETRIED_ASKED, Asking, document, listener

from reachline.doors.envoy.asked import Request
from reachline.doors.envoy.chain import Chain, HttpManager
from reachline.doors.envoy.routes import RouteConfig
from reachline.doors.envoy.routing import Answered, Decision, Missing, Redirected, Sent, decide, routes
from reachline.doors.envoy.whole import read

Heard = Mapping[str, Any]
"""What an answer came to, by name."""


class Teller(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"path": self.requestline.split(" ")[1], "headers": dict(self.headers.items())}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  (as the base class names it)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def teller() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Teller)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def theirs(envoy_binary: Path, teller: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Heard]]:
    """What Envoy makes of every request, by listener."""
    with running(envoy_binary, document(teller), tmp_path_factory.mktemp("routing")) as envoy:
        found = envoy.admin("/listeners?format=json")["listener_statuses"]
        ports = {each["name"]: each["local_address"]["socket_address"]["port_value"] for each in found}
        return {name: _all(ports[name], asked) for name, asked in ASKED.items()}


def _all(port: int, asked: tuple[Asking, ...]) -> list[Heard]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        return [_one(connection, each) for each in asked]
    finally:
        connection.close()


def _one(connection: http.client.HTTPConnection, asking: Asking) -> Heard:
    connection.putrequest(asking.method, asking.path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("host", asking.authority)
    for name, value in asking.headers:
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    said = json.loads(body) if body.startswith("{") else {}
    headers = {name.lower(): value for name, value in said.get("headers", {}).items()}
    return {
        "status": answer.status,
        "body": "" if said else body,
        "location": answer.headers.get("location"),
        "route": answer.headers.get("x-told-route"),
        "cluster": answer.headers.get("x-told-cluster"),
        "path": said.get("path"),
        "host": headers.get("host"),
        "original": headers.get("x-envoy-original-path"),
        "original host": headers.get("x-envoy-original-host"),
        "expected": headers.get("x-envoy-expected-rq-timeout-ms"),
        "grpc": headers.get("grpc-timeout"),
        "consumed": sorted(name for name in headers if name.startswith("x-envoy-") and name[8:] not in ("original-path", "original-host", "expected-rq-timeout-ms", "internal")),
        "forwarded host": headers.get("x-forwarded-host"),
    }  # fmt: skip


@pytest.fixture(scope="module")
def chain(teller: int) -> Chain:
    return read(document(teller))


def config_of(chain: Chain, name: str) -> RouteConfig:
    handler = next(each for each in chain.listeners if each.name == name).chains[0].handler
    assert isinstance(handler, HttpManager)
    assert isinstance(handler.routes, RouteConfig)
    return handler.routes


def ours(decision: Decision, asking: Asking, chain: Chain) -> Heard:
    """The same as `_one`, of what we would do."""
    match decision:
        case Missing(status=status):
            return {"status": status}
        case Answered(answer=answer, route=route) if route.match.grpc:
            return {"status": answer.status, "route": route.name}
        case Answered(answer=answer):
            return {"status": answer.status, "body": answer.body.decode()}
        case Redirected(status=status, location=location):
            return {"status": status, "location": location}
        case Sent() as sent if sent.cluster not in chain.settings.clusters:
            return {"status": sent.action.not_found}
        case Sent() as sent:
            auto = f"{sent.cluster}.host" if sent.auto_host else None
            limit = sent.times.per_try or sent.times.total
            return {
                "status": 200,
                "route": sent.route.name,
                "cluster": sent.cluster,
                "path": sent.path,
                "host": auto or sent.authority or asking.authority,
                "original": asking.path if sent.is_rewritten else None,
                "original host": asking.authority if auto or sent.authority else None,
                "expected": dict(asking.headers).get("x-envoy-expected-rq-timeout-ms")
                if limit is None
                else str(round(limit * 1_000)),
                "grpc": dict(asking.headers).get("grpc-timeout")
                if sent.times.grpc is None
                else f"{round(sent.times.grpc * 1_000)}m",
                "consumed": [],
                "forwarded host": asking.authority if sent.action.append_x_forwarded_host else None,
            }


@pytest.mark.real
@pytest.mark.parametrize("name", list(ASKED))
def test_every_request_goes_where_envoy_sends_it(name: str, theirs: Mapping[str, list[Heard]], chain: Chain) -> None:
    table = routes(config_of(chain, name))
    differences = []

    for asking, heard in zip(ASKED[name], theirs[name], strict=True):
        found = ours(decide(table, request_of(asking), chance=0), asking, chain)
        if found != {key: heard[key] for key in found}:
            differing = [
                f"{key}: {value!r}, Envoy {heard[key]!r}" for key, value in found.items() if heard[key] != value
            ]
            differences.append(f"{asking}: {'; '.join(differing)}")

    assert not differences, "\n".join(differences)


@pytest.mark.real
def test_a_request_is_tried_as_often_as_envoy_tries_it(envoy_binary: Path, tmp_path: Path) -> None:
    """Of an endpoint that always answers 503."""
    differences = []

    with serving() as peers:
        peer = peers.add(calls=always(Reply(503)))
        made = document(peer.port)
        made["static_resources"]["listeners"] = [listener("in", RETRIED, internal_address_config=INTERNAL)]
        table = routes(config_of(read(made), "in"))
        with running(envoy_binary, made, tmp_path) as envoy:
            connection = http.client.HTTPConnection("127.0.0.1", envoy.port, timeout=30)
            for each in RETRIED_ASKED:
                before = len(peer.called)
                _one(connection, each)
                sent = decide(table, request_of(each), chance=0)
                assert isinstance(sent, Sent)
                policy = sent.retry
                meant = policy is not None and (
                    bool(policy.retry_on & {"5xx", "gateway-error"})
                    or ("retriable-status-codes" in policy.retry_on and 503 in policy.statuses)
                )
                ours = 1 + (policy.retries if policy is not None and meant else 0)
                if ours != (theirs := len(peer.called) - before):
                    differences.append(f"{each}: {ours}, Envoy {theirs}")
            connection.close()

    assert not differences, "\n".join(differences)


def request_of(asking: Asking) -> Request:
    headers: dict[str, list[str]] = {}
    for name, value in asking.headers:
        headers.setdefault(name, []).append(value.strip())
    return Request(method=asking.method, authority=asking.authority, path=asking.path, headers=headers)


def test_the_requests_are_two_hundred_and_more() -> None:
    assert sum(map(len, ASKED.values())) >= 200
