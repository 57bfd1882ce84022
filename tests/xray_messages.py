"""Messages of Xray's API as protobuf has them, made from their field numbers: what ours are held against."""

from __future__ import annotations

from functools import cache
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
TypedMessage: type=1 string, value=2 bytes
IPOrDomain: ip=1 bytes, domain=2 string
PortRange: From=1 uint32, To=2 uint32
PortList: range=1 *.PortRange
SocketConfig: mark=1 int32, tproxy=3 int32, domain_strategy=8 int32, dialer_proxy=9 string, interface=13 string
StreamConfig: protocol_name=5 string, security_type=3 string, security_settings=4 *.TypedMessage, socket_settings=6 .SocketConfig
TlsConfig: allow_insecure=1 bool, server_name=3 string
ProxyConfig: tag=1 string, transportLayerProxy=2 bool
MultiplexingConfig: enabled=1 bool, concurrency=2 int32
SenderConfig: via=1 .IPOrDomain, stream_settings=2 .StreamConfig, proxy_settings=3 .ProxyConfig, multiplex_settings=4 .MultiplexingConfig, via_cidr=5 string, target_strategy=6 int32
SniffingConfig: enabled=1 bool
ReceiverConfig: port_list=1 .PortList, listen=2 .IPOrDomain, stream_settings=3 .StreamConfig, sniffing_settings=6 .SniffingConfig
OutboundHandlerConfig: tag=1 string, sender_settings=2 .TypedMessage, proxy_settings=3 .TypedMessage, expire=4 int64, comment=5 string
InboundHandlerConfig: tag=1 string, receiver_settings=2 .TypedMessage, proxy_settings=3 .TypedMessage
AddOutboundRequest: outbound=1 .OutboundHandlerConfig
AddInboundRequest: inbound=1 .InboundHandlerConfig
RemoveOutboundRequest: tag=1 string
RemoveInboundRequest: tag=1 string
ListInboundsRequest: isOnlyTags=1 bool
ListOutboundsResponse: outbounds=1 *.OutboundHandlerConfig
ListInboundsResponse: inbounds=1 *.InboundHandlerConfig
Account: username=1 string, password=2 string
User: level=1 uint32, email=2 string, account=3 .TypedMessage
ServerEndpoint: address=1 .IPOrDomain, port=2 uint32, user=3 .User
Header: key=1 string, value=2 string
ClientConfig: server=1 .ServerEndpoint, header=2 *.Header
DestinationOverride: server=1 .ServerEndpoint
FreedomConfig: domain_strategy=1 int32, destination_override=3 .DestinationOverride, user_level=4 uint32
BlackholeConfig: response=1 .TypedMessage
LoopbackConfig: inbound_tag=1 string
AccountEntry: key=1 string, value=2 string
SocksServerConfig: auth_type=1 int32, accounts=2 *.AccountEntry, address=3 .IPOrDomain, udp_enabled=4 bool, user_level=6 uint32
HttpServerConfig: accounts=2 *.AccountEntry, allow_transparent=3 bool, user_level=4 uint32
DokodemoConfig: address=1 .IPOrDomain, port=2 uint32, networks=7 *int32, follow_redirect=5 bool, user_level=6 uint32
"""
"""Written from the field numbers of Xray's .proto files, a line a message; `*`: repeated."""


@cache
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
