"""Messages of Xray's API: what is written is what protobuf reads by Xray's own field numbers, and the reverse."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.xray_messages import xray_messages

from reachline.core.observing.values import Ping, Status
from reachline.errors import RemoteProtocolError
from reachline.wire.observatory import (
    GET_BALANCER_INFO,
    GET_OUTBOUND_STATUS,
    MAX_REQUEST,
    OVERRIDE_BALANCER_TARGET,
    Info,
    Override,
    ask_info,
    ask_override,
    balancer_info,
    outbound_statuses,
    read_info,
    read_override,
    read_tag,
)

_TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=20)
_INT64: Final = st.integers(0, 2**63 - 1)


@pytest.fixture(scope="module")
def xray() -> dict[str, Any]:
    return xray_messages()


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


@given(override=_TEXT, targets=st.lists(_TEXT, max_size=4))
def test_a_balancers_info_is_what_protobuf_reads(xray: dict[str, Any], override: str, targets: list[str]) -> None:
    found = xray["GetBalancerInfoResponse"].FromString(balancer_info(override, targets))

    assert found.balancer.HasField("override")
    assert (found.balancer.override.target, list(found.balancer.principle_target.tag)) == (override, targets)


@given(override=_TEXT, targets=st.lists(_TEXT, max_size=4))
def test_a_balancers_info_that_protobuf_writes_is_read(xray: dict[str, Any], override: str, targets: list[str]) -> None:
    found = xray["GetBalancerInfoResponse"]()
    found.balancer.override.target = override
    found.balancer.principle_target.tag.extend(targets)

    assert read_info(found.SerializeToString()) == Info(override, tuple(targets))


@given(balancer=_TEXT, target=_TEXT)
def test_requests_that_are_written_are_what_protobuf_writes(xray: dict[str, Any], balancer: str, target: str) -> None:
    override = xray["OverrideBalancerTargetRequest"](balancerTag=balancer, target=target)

    assert ask_override(balancer, target) == override.SerializeToString(deterministic=True)
    assert ask_info(balancer) == xray["GetBalancerInfoRequest"](tag=balancer).SerializeToString()


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
