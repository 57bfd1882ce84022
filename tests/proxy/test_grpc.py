"""What of an answer by gRPC counts for its endpoint, and how this process says why a call ended."""

from __future__ import annotations

import asyncio

import pytest
from tests.proxy.asking import GRPC, Client, head
from tests.proxy.world import Endpoint, Loop, cluster, forward, http, running

from reachline.proxy.flags import LocalReply
from reachline.proxy.grpc import as_grpc, code_of, is_grpc, went_wrong
from reachline.proxy.message import Answer, Request


def request(kind: bytes, method: bytes = b"POST") -> Request:
    made = Request(0.0)
    made.method, made.headers = method, [(b"content-type", kind)]
    return made


@pytest.mark.parametrize(
    ("kind", "is_so"),
    [
        (b"application/grpc", True),
        (b"application/grpc+proto", True),
        (b"application/grpc-web", False),
        (b"application/grpcx", False),
        (b"text/plain", False),
    ],
)
def test_only_its_own_content_is_grpc(kind: bytes, is_so: bool) -> None:
    assert is_grpc(request(kind)) is is_so


@pytest.mark.parametrize(
    ("status", "http"),
    [
        (b"0", 200),
        (b"1", 499),
        (b"4", 504),
        (b"13", 500),
        (b"14", 503),
        (b"16", 401),
        (b"17", 500),
        (b"x", 500),
        (b"", 500),
    ],
)
def test_an_answer_of_headers_alone_is_judged_by_its_status(status: bytes, http: int) -> None:
    answer = Answer()
    answer.status, answer.headers = 200, [(b"grpc-status", status)]

    assert code_of(request(b"application/grpc"), answer) == http
    assert code_of(request(b"text/plain"), answer) == 200
    assert went_wrong([(b"grpc-status", status)]) is (http >= 500)


def test_a_message_says_what_is_not_plain_by_numbers() -> None:
    reply = as_grpc(LocalReply(503, "50 % für\n".encode(), headers=((b"x", b"y"),)), head_only=False)

    assert (reply.status, reply.body, reply.headers[0]) == (200, b"", (b"x", b"y"))
    assert dict(reply.headers)[b"grpc-message"] == b"50 %25 f%C3%BCr%0A"


def test_an_endpoint_whose_calls_fail_is_ejected_where_the_headers_say_so_and_counted_where_trailers_do(
    loop: Loop, far_loop: Loop
) -> None:
    async def failing(asked: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if b"/headers" in asked:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ngrpc-status: 14\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\ngrpc-status: 13\r\n\r\n")
        return True

    endpoint = Endpoint(far_loop, answering=failing)
    name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    options = {
        "@type": f"type.googleapis.com/{name}",
        "explicit_http_config": {"http_protocol_options": {"enable_trailers": True}},
    }
    outliers = {
        "consecutive_5xx": 3,
        "enforcing_consecutive_5xx": 100,
        "max_ejection_percent": 100,
        "always_eject_one_host": True,
    }
    given = cluster("a", [endpoint.port], typed_extension_protocol_options={name: options}, outlier_detection=outliers)
    with running(loop, http([forward("/", "a")], [given])) as proxy, Client(proxy.port) as client:
        for _ in range(4):
            assert client.answer(head("/trailers", method="POST", more=GRPC)).trailers == [(b"grpc-status", b"13")]
        before = proxy.figures()["cluster.a.outlier_detection.ejections_active"]
        errors = proxy.admin("/clusters").count(b"::rq_error::4")
        for _ in range(3):
            client.answer(head("/headers", method="POST", more=GRPC))
        after = proxy.figures()["cluster.a.outlier_detection.ejections_active"]
    endpoint.close()

    assert (before, errors, after) == (0, 1, 1)
