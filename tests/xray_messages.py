"""Messages of Xray's API as protobuf has them, made from their field numbers: what ours are held against."""

from __future__ import annotations

from typing import Any, Final

import pytest

__all__ = ["xray_messages"]

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
RoutingContext: InboundTag=1 string, Network=2 int32, SourceIPs=3 *bytes, TargetIPs=4 *bytes, SourcePort=5 uint32, TargetPort=6 uint32, TargetDomain=7 string, Protocol=8 string, User=9 string, OutboundGroupTags=11 *string, OutboundTag=12 string, LocalIPs=13 *bytes, LocalPort=14 uint32
TestRouteRequest: RoutingContext=1 .RoutingContext, FieldSelectors=2 *string, PublishResult=3 bool
"""
"""Written from the field numbers of Xray's .proto files, a line a message; `*`: repeated."""


def xray_messages() -> dict[str, Any]:
    """Classes by their names; without protobuf the test is skipped."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    kinds = {"bool": 8, "int64": 3, "string": 9, "int32": 5, "bytes": 12, "uint32": 13}
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
