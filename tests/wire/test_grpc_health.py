"""The health messages: byte for byte those of the real ones, and bounded whatever comes."""

from __future__ import annotations

import pytest
from grpc_health.v1 import health_pb2
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import RemoteProtocolError
from reachline.wire import grpc_health


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


@given(st.text(max_size=200))
def test_a_request_is_what_the_schema_makes_of_it(service: str) -> None:
    real = health_pb2.HealthCheckRequest(service=service).SerializeToString()

    assert grpc_health.request(service) == framed(real)


@pytest.mark.parametrize("status", range(4))
def test_a_response_of_the_schema_is_read(status: int) -> None:
    body = framed(health_pb2.HealthCheckResponse(status=status).SerializeToString())

    assert grpc_health.decode(body) == status
    assert grpc_health.serving_name(status) == health_pb2.HealthCheckResponse.ServingStatus.Name(status)


def test_unknown_fields_are_skipped_and_unknown_statuses_kept() -> None:
    fields = b"\x10\x05" + b"\x1a\x03abc" + b"\x25\0\0\0\0" + b"\x29" + bytes(8) + b"\x08\x07"

    assert grpc_health.decode(framed(fields)) == 7
    assert grpc_health.serving_name(7) == "serving status 7"
    assert grpc_health.code_name(99) == "gRPC status 99"


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"", "cut short"),
        (b"\0\0\0\0\2\x08", "cut short"),
        (framed(b"\x08\1") + framed(b"\x08\1"), "more than one message"),
        (b"\1" + framed(b"\x08\1")[1:], "compressed"),
        (b"\0\xff\xff\xff\xff", "at most 1024"),
        (framed(b"\x08"), "malformed"),
        (framed(b"\x08" + b"\x80" * 12), "malformed"),
        (framed(b"\x1a\x7fabc"), "malformed"),
        (framed(b"\x0b"), "malformed"),
        (framed(b"\x25\0"), "malformed"),
    ],
    ids=range(10),
)
def test_what_is_no_response_breaks_the_protocol(body: bytes, rule: str) -> None:
    with pytest.raises(RemoteProtocolError, match=rule):
        grpc_health.decode(body)


@given(st.binary(max_size=60), st.booleans())
def test_a_body_is_a_status_or_broken_whatever_it_is(body: bytes, whole: bool) -> None:
    try:
        status = grpc_health.decode(framed(body) if whole else body)
    except RemoteProtocolError:
        return

    assert status >= 0
