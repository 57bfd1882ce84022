"""What becomes of a request before it is routed; as a real Envoy 1.40 was seen to do it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from reachline.doors.envoy.chain import HttpManager, Network
from reachline.doors.envoy.routes import RouteConfig
from reachline.proxy.arrival import Arrivals, Peer
from reachline.proxy.message import Headers, Request

OWN = b"x-envoy-upstream-rq-timeout-ms"
NEAR = Peer("127.0.0.1", 1, 80)
LOOPBACK = (Network("127.0.0.0", 8), Network("10.0.0.0", 8))


def arrived(
    headers: Headers, *, peer: Peer = NEAR, path: bytes = b"/", **settings: Any
) -> tuple[dict[bytes, bytes], bool, Request]:
    manager = HttpManager(stat_prefix="x", routes=RouteConfig(), **settings)
    request = Request(0.0)
    request.headers, request.path, request.authority = list(headers), path, b"a.example:80"
    internal = Arrivals(manager, Random(1).getrandbits).take(request, peer)
    assert len({name for name, _ in request.headers}) == len(request.headers)
    return dict(request.headers), internal, request


@pytest.mark.parametrize(
    ("forwarded", "settings", "internal"),
    [
        (None, {}, False),
        (b"10.1.1.1", {}, False),
        (None, {"internal_networks": LOOPBACK}, False),
        (b"10.1.1.1", {"internal_networks": LOOPBACK}, True),
        (b"9.9.9.9", {"internal_networks": LOOPBACK}, False),
        (b"9.9.9.9, 10.1.1.1", {"internal_networks": LOOPBACK}, False),
        (None, {"use_remote_address": True}, False),
        (None, {"use_remote_address": True, "internal_networks": LOOPBACK}, True),
        (b"10.1.1.1", {"use_remote_address": True, "internal_networks": LOOPBACK}, False),
    ],
)
def test_headers_for_the_proxy_are_believed_of_internal_requests_alone(
    forwarded: bytes | None, settings: dict[str, Any], internal: bool
) -> None:
    sent: Headers = [(OWN, b"100"), (b"x-envoy-foo", b"1")]
    if forwarded is not None:
        sent.append((b"x-forwarded-for", forwarded))

    headers, was_internal, _ = arrived(sent, **settings)

    assert was_internal is internal
    assert (OWN in headers) is internal
    assert (headers.get(b"x-envoy-internal") == b"true") is internal
    assert headers[b"x-envoy-foo"] == b"1"


def test_the_first_proxy_tells_who_asks_and_gives_the_request_its_id() -> None:
    sent: Headers = [
        (b"x-forwarded-for", b"9.9.9.9"),
        (b"x-forwarded-proto", b"https"),
        (b"x-request-id", b"mine"),
        (b"x-envoy-original-path", b"/q"),
    ]

    behind, _, _ = arrived(sent)
    first, _, _ = arrived(sent, use_remote_address=True, peer=Peer("192.0.2.7", 1))

    assert {name: behind[name] for name, _ in sent} == dict(sent)
    assert first[b"x-forwarded-for"] == b"9.9.9.9,192.0.2.7"
    assert first[b"x-forwarded-proto"] == b"http"
    assert first[b"x-envoy-external-address"] == b"192.0.2.7"
    assert first[b"x-request-id"] != b"mine"
    assert b"x-envoy-original-path" not in first


def test_an_id_is_a_random_uuid() -> None:
    headers, _, _ = arrived([])
    parts = headers[b"x-request-id"].split(b"-")

    assert [len(each) for each in parts] == [8, 4, 4, 4, 12]
    assert (parts[2][:1], parts[3][:1] in b"89ab") == (b"4", True)
    assert b"x-request-id" not in arrived([], generate_request_id=False)[0]


def test_a_ports_removal_is_as_set() -> None:
    assert arrived([])[2].authority == b"a.example:80"
    assert arrived([], strip_port="MATCHING")[2].authority == b"a.example"
    assert arrived([], strip_port="MATCHING", peer=Peer("127.0.0.1", 1, 81))[2].authority == b"a.example:80"
    assert arrived([], strip_port="MATCHING", peer=Peer("127.0.0.1", 1, 8))[2].authority == b"a.example:80"
    assert arrived([], strip_port="ANY", peer=Peer("127.0.0.1", 1, 81))[2].authority == b"a.example"


@pytest.mark.parametrize(
    ("path", "settings", "becomes"),
    [
        (b"/a/../b/./c/", {}, b"/a/../b/./c/"),
        (b"/a/../b/./c/", {"normalize_path": True}, b"/b/c/"),
        (b"/../../a?x=/../y", {"normalize_path": True}, b"/a?x=/../y"),
        (b"/%61\\b%2f", {"normalize_path": True}, b"/a/b%2f"),
            (b"/a%00b?c", {"normalize_path": True}, None),
            (b"/a?b=%00", {"normalize_path": True}, b"/a?b=%00"),
        (b"//a///b?c//d", {"merge_slashes": True}, b"/a/b?c//d"),
        (b"/a%2Fb", {"escaped_slashes": "REJECT_REQUEST"}, None),
        (b"/a?b=%2F", {"escaped_slashes": "REJECT_REQUEST"}, b"/a?b=%2F"),
        (b"/a%2Fb", {"escaped_slashes": "UNESCAPE_AND_FORWARD"}, b"/a/b"),
    ],
)  # fmt: skip
def test_paths_are_normalised_as_set(path: bytes, settings: dict[str, Any], becomes: bytes | None) -> None:
    manager = HttpManager(stat_prefix="x", routes=RouteConfig(), **settings)
    request = Request(0.0)
    request.path = path

    assert Arrivals(manager, Random(1).getrandbits).path_of(request) == becomes


@pytest.mark.parametrize(
    ("mode", "certified", "stays"),
    [
        ("SANITIZE", True, False),
        ("FORWARD_ONLY", True, True),
        ("FORWARD_ONLY", False, False),
        ("ALWAYS_FORWARD_ONLY", False, True),
    ],
)
def test_what_is_said_of_a_clients_certificate_is_believed_as_set(mode: str, certified: bool, stays: bool) -> None:
    headers, _, _ = arrived(
        [(b"x-forwarded-client-cert", b"Hash=1")],
        client_certificate=mode,
        peer=Peer("127.0.0.1", 1, is_certified=certified),
    )

    assert (b"x-forwarded-client-cert" in headers) is stays
