"""Listeners, routes and clusters by xDS: what comes as a message is what stands in a document, and what cannot be is refused whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.differential.bootstraps import TAKEN, cluster, http, listener, manager

from reachline.discovery.chained import parsers
from reachline.doors.envoy.chain import Listener
from reachline.doors.envoy.resources import CDS, LDS, RDS, read, read_one
from reachline.doors.envoy.routes import RouteConfig
from reachline.errors import ConfigError, RemoteProtocolError
from reachline.wire.ads import Parcel

pytest.importorskip("envoy.config.listener.v3.listener_pb2", reason="needs the extra xds")


def message(kind: str, document: dict[str, Any]) -> bytes:
    """The resource as it is sent."""
    from google.protobuf import any_pb2, json_format

    from reachline.wire.plain import _import, plain

    plain(kind, b"")
    for each in types(document):
        _import(each)
    packed = json_format.ParseDict({"@type": kind, **document}, any_pb2.Any())
    return bytes(packed.value)


def types(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "@type" in value:
            yield str(value["@type"]).rpartition("/")[2]
        for each in value.values():
            yield from types(each)
    elif isinstance(value, list):
        for each in value:
            yield from types(each)


def resources() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every listener and cluster of the documents that are taken."""
    for name, document in TAKEN.items():
        static = document.get("static_resources") if isinstance(document, dict) else None
        for kind, key in ((LDS, "listeners"), (CDS, "clusters")):
            for each in (static or {}).get(key, ()):
                if each != cluster():
                    yield name, kind, each


@pytest.mark.parametrize(("name", "kind", "document"), list(resources()))
def test_what_is_sent_is_what_stands_in_a_document(name: str, kind: str, document: dict[str, Any]) -> None:
    del name
    found = parsers()[kind](Parcel(kind, message(kind, document)))

    assert found.error == ""
    assert found.name == document["name"]
    assert found.value == read_one({"@type": kind, **document})[0]


def test_routes_come_alone_and_their_clusters_may_come_later() -> None:
    config = manager({"match": {"prefix": "/"}, "route": {"cluster": "later"}})["typed_config"]["route_config"] | {
        "name": "r"
    }
    found = parsers()[RDS](Parcel(RDS, message(RDS, config)))

    assert found.error == ""
    assert isinstance(found.value, RouteConfig)
    assert (found.name, found.value.validate_clusters) == ("r", False)


def test_what_is_not_supported_is_refused_with_every_reason_in_one_line() -> None:
    refused = listener(manager(http_filters=[], scheme_header_transformation={"match_upstream": True}))
    found = parsers()[LDS](Parcel(LDS, message(LDS, refused)))

    assert found.name == "in"
    assert found.value is None
    assert found.error == (
        "filter_chains[0].filters[0].typed_config.scheme_header_transformation.match_upstream: is not supported here; "
        "filter_chains[0].filters[0].typed_config.http_filters: must end with the router"
    )


def _foreign() -> bytes:
    """A listener with a filter of a type from elsewhere."""
    from envoy.config.listener.v3 import listener_pb2

    made = listener_pb2.Listener(name="x")
    made.filter_chains.add().filters.add(name="f").typed_config.type_url = "type.googleapis.com/os.path"
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (LDS, b"\xff\xff", "cannot be read"),
        (LDS, _foreign(), "holds what is not known here"),
    ],
)
def test_bytes_that_are_no_resource_are_refused(kind: str, body: bytes, said: str) -> None:
    assert said in parsers()[kind](Parcel(kind, body, name="x")).error


@pytest.mark.parametrize(
    "name", ["os.path", "envoy", "envoy.config.nowhere.v3.Thing", "envoy.config.listener.v3.Nothing", ""]
)
def test_only_envoys_own_packages_are_looked_into(name: str) -> None:
    from reachline.wire.plain import plain

    with pytest.raises(RemoteProtocolError, match="is no type that is known here"):
        plain(f"type.googleapis.com/{name}", b"")


def test_a_response_in_a_file_holds_resources_of_all_kinds() -> None:
    static = http()["static_resources"]
    routes = {"@type": RDS, "name": "r", "virtual_hosts": []}
    wrapped = {
        "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
        "name": "c",
        "resource": {"@type": CDS, **static["clusters"][0]},
    }
    found = read(
        json.dumps({"version_info": "7", "resources": [{"@type": LDS, **static["listeners"][0]}, routes, wrapped]})
    )

    assert (list(found.listeners), list(found.routes), list(found.clusters), list(found.upstreams)) == (
        ["in"],
        ["r"],
        ["c"],
        ["c"],
    )
    assert found.version == "7"
    assert isinstance(found.listeners["in"], Listener)


def test_what_is_wrong_with_a_file_is_told_by_place() -> None:
    text = f"resources:\n- {{'@type': {CDS}, name: a, lb_polcy: x}}\n- {{name: b}}\n- {{'@type': {CDS}, name: a}}\n"

    with pytest.raises(ConfigError) as refused:
        read(text, name="cds.yaml")

    assert [str(each).partition(" (got")[0] for each in refused.value.problems] == [
        "cds.yaml:2:75: resources[0].lb_polcy: unknown field; did you mean 'lb_policy'?",
        'cds.yaml:3:3: resources[1]."@type": is needed and must not be empty',
        "cds.yaml:4:72: resources[2].name: stands here a second time",
    ]


def test_all_listeners_of_a_control_plane_come_by_one_subscription_and_go_when_it_leaves_them_out() -> None:
    from envoy.config.listener.v3 import listener_pb2
    from tests.discovery.plane import plane

    from reachline.net.ads import Ads
    from reachline.testing.wait import until
    from reachline.wire.ads import ALL, News, Told
    from reachline.wire.xds import Node

    async def main() -> None:
        told: list[Told] = []
        async with plane() as server:  # type: ignore[no-untyped-call]
            ads = Ads(server.address, node=Node(id="n"), rng=Random(1), parsers=parsers())
            ads.subscribe(LDS, ALL, lambda news: None if news is None else told.append(news))
            task = asyncio.ensure_future(ads.run())
            stream = await server.stream()
            asked = await stream.next()
            good = listener_pb2.Listener.FromString(message(LDS, listener(manager())))
            bad = listener_pb2.Listener.FromString(message(LDS, listener(manager(http_filters=[]), name="other")))
            await stream.say(good, bad, nonce="n1", type_url=LDS)
            refused = await stream.next()
            await stream.say(nonce="n2", version="2", type_url=LDS)
            await stream.next()
            await until(lambda: len(told) == 3)
            late: list[Told | None] = []
            ads.subscribe(LDS, ALL, late.append)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        assert list(asked.resource_names) == []
        assert "http_filters: must end with the router" in refused.error_detail.message
        assert [(each.news, each.name) for each in told] == [
            (News.HERE, "in"),
            (News.REFUSED, "other"),
            (News.GONE, "in"),
        ]
        assert isinstance(told[0].value, Listener)
        assert late == []

    asyncio.run(main())
