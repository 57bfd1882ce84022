"""A control plane's messages: requests as values, and answers put together from bodies so that protobuf reads them back."""

from __future__ import annotations

import pytest

pytest.importorskip("envoy.service.discovery.v3.discovery_pb2", reason="xds-protos is not installed")

from envoy.service.discovery.v3 import discovery_pb2
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import RemoteProtocolError
from reachline.model import Locality
from reachline.wire import xds
from reachline.wire.ads import CDS, EDS, DeltaRequest, Request
from reachline.wire.ads_owing import Answer
from reachline.wire.resources import rendered
from reachline.wire.xds_serving import Splicer, read, read_delta

NODE = xds.Node(id="n", cluster="c", locality=Locality(region="r", zone="z"), metadata={"k": "v"}, version="1")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
RESOURCES = st.lists(
    st.builds(
        lambda name, body: rendered(EDS, name, body), TEXTS.filter(bool), st.binary(max_size=300).map(lambda b: b * 99)
    ),
    max_size=4,
)


@pytest.mark.parametrize("request_", [Request(EDS, ("a",), "7", "n", "bad", is_first=True), Request(CDS, ())])
def test_a_request_is_read_as_our_own_client_writes_it(request_) -> None:
    assert read(xds.encode(request_, NODE)) == (request_, NODE if request_.is_first else None)


@pytest.mark.parametrize(
    "request_", [DeltaRequest(EDS, ("a",), ("b",), {"c": "1"}, "n", "bad", is_first=True), DeltaRequest(CDS)]
)
def test_a_delta_request_is_read_as_our_own_client_writes_it(request_) -> None:
    assert read_delta(xds.encode(request_, NODE)) == (request_, NODE if request_.is_first else None)


@pytest.mark.parametrize("parse", [read, read_delta])
def test_what_is_no_request_is_refused(parse) -> None:
    with pytest.raises(RemoteProtocolError, match="DiscoveryRequest cannot be read"):
        parse(b"\xff\xff\xff")


def test_a_refusal_without_words_is_one_and_an_envoys_build_is_its_version() -> None:
    message = discovery_pb2.DiscoveryRequest(type_url=EDS)
    message.error_detail.code = 13
    build = message.node.user_agent_build_version.version
    build.major_number, build.minor_number, build.patch = 1, 40, 2

    request, node = read(message.SerializeToString())

    assert request.error == "no reason given (code 13)"
    assert node is not None
    assert node.version == "1.40.2"


def test_metadata_that_is_too_much_or_unspeakable_is_left_out() -> None:
    for value in ("x" * (17 << 10), float("nan")):
        message = discovery_pb2.DiscoveryRequest(type_url=EDS)
        message.node.metadata.update({"k": value})

        _, node = read(message.SerializeToString())

        assert node is not None
        assert node.metadata is None


@given(resources=RESOURCES, version=TEXTS, nonce=TEXTS)
def test_a_spliced_answer_is_what_protobuf_would_write(resources, version, nonce) -> None:
    answer = Answer(EDS, version, nonce, tuple(resources))
    message = discovery_pb2.DiscoveryResponse(version_info=version, type_url=EDS, nonce=nonce)
    for one in resources:
        message.resources.add(type_url=EDS, value=one.body)

    assert discovery_pb2.DiscoveryResponse.FromString(Splicer().bytes_of(answer)) == message


@given(resources=RESOURCES, version=TEXTS, removed=st.lists(TEXTS.filter(bool), max_size=3))
def test_a_spliced_delta_answer_is_what_protobuf_would_write(resources, version, removed) -> None:
    answer = Answer(EDS, version, "9", tuple(resources), tuple(removed), is_delta=True)
    message = discovery_pb2.DeltaDiscoveryResponse(
        system_version_info=version, type_url=EDS, nonce="9", removed_resources=removed
    )
    for one in resources:
        said = message.resources.add(name=one.name, version=one.version)
        said.resource.type_url, said.resource.value = EDS, one.body

    assert discovery_pb2.DeltaDiscoveryResponse.FromString(Splicer().bytes_of(answer)) == message


def test_streams_share_what_is_spliced_and_have_their_own_nonces() -> None:
    splicer, one = Splicer(), rendered(EDS, "a", b"body")
    first = splicer.bytes_of(Answer(EDS, "1", "first", (one,)))

    second = splicer.bytes_of(Answer(EDS, "1", "second", (one,)))
    other = splicer.bytes_of(Answer(EDS, "1", "first", (rendered(EDS, "a", b"other"),)))

    assert first.removesuffix(b"\x2a\x05first") == second.removesuffix(b"\x2a\x06second")
    assert discovery_pb2.DiscoveryResponse.FromString(other).resources[0].value == b"other"


def test_the_same_answer_is_the_same_bytes_object_for_all_streams_and_another_nonce_is_not() -> None:
    splicer, one = Splicer(), rendered(EDS, "a", b"x" * 300)

    first, second, third = (splicer.bytes_of(Answer(EDS, "7", nonce, (one,))) for nonce in ("1", "1", "2"))

    assert first is second
    assert discovery_pb2.DiscoveryResponse.FromString(third).nonce == "2"
