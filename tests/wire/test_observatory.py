"""Messages of Xray's API: what is written is what protobuf reads by Xray's own field numbers, and the reverse."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.observing.values import Ping, Status
from reachline.errors import RemoteProtocolError
from reachline.wire.observatory import (
    GET_BALANCER_INFO,
    GET_OUTBOUND_STATUS,
    MAX_REQUEST,
    OVERRIDE_BALANCER_TARGET,
    Override,
    Statuses,
    balancer_info,
    outbound_statuses,
    read_override,
    read_tag,
)

_PROTO: Final = """
OutboundStatus: alive=1 bool, delay=2 int64, last_error_reason=3 string, outbound_tag=4 string, last_seen_time=5 int64, last_try_time=6 int64, health_ping=7 .Ping
Ping: all=1 int64, fail=2 int64, deviation=3 int64, average=4 int64, max=5 int64, min=6 int64
ObservationResult: status=1 *.OutboundStatus
GetOutboundStatusResponse: status=1 .ObservationResult
OverrideInfo: target=2 string
PrincipleTargetInfo: tag=1 *string
BalancerMsg: override=5 .OverrideInfo, principle_target=6 .PrincipleTargetInfo
GetBalancerInfoResponse: balancer=1 .BalancerMsg
GetBalancerInfoRequest: tag=1 string
OverrideBalancerTargetRequest: balancerTag=1 string, target=2 string
"""
"""Written from the field numbers of Xray's .proto files, a line a message; `*`: repeated."""
_TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=20)
_INT64: Final = st.integers(0, 2**63 - 1)


def _messages() -> dict[str, Any]:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    kinds = {"bool": 8, "int64": 3, "string": 9}
    file = descriptor_pb2.FileDescriptorProto(name="xray.proto", package="xray", syntax="proto3")
    for line in _PROTO.strip().splitlines():
        name, fields = line.split(": ", 1)
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            label, kind = field.rsplit(" ", 1)
            key, number = label.split("=")
            made = message.field.add(name=key, number=int(number), label=3 if kind.startswith("*") else 1)
            kind = kind.lstrip("*")
            if kind.startswith("."):
                made.type, made.type_name = 11, f".xray{kind}"
            else:
                made.type = kinds[kind]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [line.partition(":")[0] for line in _PROTO.strip().splitlines()]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"xray.{name}")) for name in names}


@pytest.fixture(scope="module")
def xray() -> dict[str, Any]:
    return _messages()


_STATUSES: Final = st.builds(
    Status,
    tag=_TEXT,
    alive=st.booleans(),
    delay=_INT64,
    reason=_TEXT,
    seen=_INT64,
    tried=_INT64,
    ping=st.none() | st.builds(Ping, _INT64, _INT64, _INT64, _INT64, _INT64, _INT64),
)


@given(statuses=st.lists(_STATUSES, max_size=4))
def test_statuses_are_what_protobuf_reads_and_writes(xray: dict[str, Any], statuses: list[Status]) -> None:
    data = outbound_statuses(statuses)

    found = xray["GetOutboundStatusResponse"].FromString(data)
    told = [
        Status(
            each.outbound_tag, each.alive, each.delay, each.last_error_reason, each.last_seen_time, each.last_try_time,
            Ping(*(getattr(each.health_ping, name) for name in Ping._fields)) if each.HasField("health_ping") else None,
        )
        for each in found.status.status
    ]  # fmt: skip
    assert told == statuses
    assert found.SerializeToString(deterministic=True) == data


def test_only_what_changed_is_written_anew_and_the_answer_is_the_same() -> None:
    writer, one, two = Statuses(), Status("a", alive=True), Status("b", alive=True)

    answers = [writer.response(each) for each in ((one, two), (one, two._replace(delay=9)), (two,), (one, two))]

    assert answers == [
        outbound_statuses(each) for each in ((one, two), (one, two._replace(delay=9)), (two,), (one, two))
    ]


@given(override=_TEXT, targets=st.lists(_TEXT, max_size=4))
def test_a_balancers_info_is_what_protobuf_reads(xray: dict[str, Any], override: str, targets: list[str]) -> None:
    found = xray["GetBalancerInfoResponse"].FromString(balancer_info(override, targets))

    assert found.balancer.HasField("override")
    assert (found.balancer.override.target, list(found.balancer.principle_target.tag)) == (override, targets)


@given(balancer=_TEXT, target=_TEXT)
def test_requests_that_protobuf_writes_are_read(xray: dict[str, Any], balancer: str, target: str) -> None:
    override = xray["OverrideBalancerTargetRequest"](balancerTag=balancer, target=target).SerializeToString()
    info = xray["GetBalancerInfoRequest"](tag=balancer).SerializeToString()

    assert read_override(override) == Override(balancer, target)
    assert read_tag(info) == balancer


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_override(data)
    except RemoteProtocolError:
        return


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x0a\x05ab", "field 1 is cut short"),
        (b"\x0a\x02\xff\xfe", "field 1 is no UTF-8 text"),
        (b"\x0b", "field 1 is of unknown wire type 3"),
        (b"\xff" * 11, "a number is cut short or too long"),
        (b"\x09\x00", "field 1 is cut short"),
        (b"\x0a" * (MAX_REQUEST + 1), "at most 4096 are taken"),
    ],
)
def test_broken_requests_are_refused_by_name(data: bytes, told: str) -> None:
    with pytest.raises(RemoteProtocolError, match=told):
        read_tag(data)


def test_unknown_fields_are_skipped_and_the_last_of_two_counts() -> None:
    assert read_tag(b"\x18\x07" + b"\x0a\x01a" + b"\x21" + bytes(8) + b"\x2d" + bytes(4) + b"\x0a\x01b") == "b"


def test_methods_are_named_as_xray_names_them() -> None:
    assert GET_OUTBOUND_STATUS == "/xray.core.app.observatory.command.ObservatoryService/GetOutboundStatus"
    assert GET_BALANCER_INFO[0] == "/xray.app.router.command.RoutingService/GetBalancerInfo"
    assert OVERRIDE_BALANCER_TARGET[1] == "/v2ray.core.app.router.command.RoutingService/OverrideBalancerTarget"
