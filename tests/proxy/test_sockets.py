"""Endpoints of one cluster, each spoken to as its metadata says: TLS by its own name, or plain text; checks too."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.proxy.world import Endpoint, Loop, body, cluster, forward, get, http, running, status

from reachline.doors.envoy.secured import SOCKET_MATCH, SocketMatch, UpstreamTls, matched
from reachline.errors import ConfigError
from reachline.testing.wait import eventually

UP = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
RAW = "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
PLAIN = {"name": "plain", "match": {}, "transport_socket": {"name": "raw", "typed_config": {"@type": RAW}}}
NAMES = ("a.example", "b.example")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


class Secured:
    """Endpoints that speak TLS, each with a certificate of its own name, and which name they were asked for."""

    def __init__(self, loop: Loop, authority: trustme.CA, directory: Path) -> None:
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(authority.cert_pem.bytes())
        self.asked: list[str | None] = []
        self.endpoints: dict[str, Endpoint] = {}
        for name in NAMES:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert(name).configure_cert(context)
            context.sni_callback = lambda _, asked, __: self.asked.append(asked)
            self.endpoints[name] = Endpoint(loop, name.encode(), ssl=context)

    def match(self, name: str, shown: str = "") -> dict[str, Any]:
        """Endpoints that are labelled `name` must show a certificate of `shown`."""
        known = {"san_type": "DNS", "matcher": {"exact": shown or name}}
        trusted = {"trusted_ca": {"filename": str(self.ca)}, "match_typed_subject_alt_names": [known]}
        config = {"@type": UP, "sni": name, "common_tls_context": {"validation_context": trusted}}
        return {"name": name, "match": {"tls": name}, "transport_socket": {"name": "tls", "typed_config": config}}


@pytest.fixture
def secured(far_loop: Loop, authority: trustme.CA, tmp_path: Path) -> Iterator[Secured]:
    made = Secured(far_loop, authority, tmp_path)
    yield made
    for each in made.endpoints.values():
        each.close()


def labelled(ports: dict[int, str], **more: Any) -> dict[str, Any]:
    """A cluster of these ports, each with its label; empty: with none."""
    found = cluster("a", list(ports), **more)
    for each, label in zip(found["load_assignment"]["endpoints"][0]["lb_endpoints"], ports.values(), strict=True):
        if label:
            each["metadata"] = {"filter_metadata": {SOCKET_MATCH: {"tls": label}}}
    return found


def answers(proxy: Any, times: int) -> set[bytes]:
    return {body(proxy.ask(get("/x"))) for _ in range(times)}


def test_the_first_match_counts_an_empty_one_fits_all_and_without_one_the_clusters_own_does() -> None:
    tls = UpstreamTls(sni="one")
    one, any_of = SocketMatch("one", {"tls": "one", "on": True}, tls), SocketMatch("any", {}, None)
    labels = {SOCKET_MATCH: {"tls": "one", "on": True, "more": 1}}

    assert matched((one, any_of), labels) == 0
    assert matched((any_of, one), labels) == 0
    assert matched((one, any_of), {}) == 1
    assert matched((one,), {SOCKET_MATCH: {"tls": "one", "on": 1}}) is None
    assert matched((one,), {"envoy.lb": {"tls": "one", "on": True}}) is None


def test_each_endpoint_is_spoken_to_as_its_metadata_says(loop: Loop, endpoint: Endpoint, secured: Secured) -> None:
    ports = {each.port: name for name, each in secured.endpoints.items()} | {endpoint.port: ""}
    matches = [*(secured.match(name) for name in NAMES), PLAIN]
    with running(loop, http([forward("/", "a")], [labelled(ports, transport_socket_matches=matches)])) as proxy:
        found = answers(proxy, 6)

    assert found == {b"one", b"a.example", b"b.example"}
    assert set(secured.asked) == set(NAMES)


def test_a_certificate_of_another_name_than_the_match_wants_is_not_believed(loop: Loop, secured: Secured) -> None:
    ports = {secured.endpoints["a.example"].port: "a.example"}
    matches = [secured.match("a.example", shown="c.example")]
    with running(loop, http([forward("/", "a")], [labelled(ports, transport_socket_matches=matches)])) as proxy:
        assert status(proxy.ask(get("/x"))) == 503


CHECK = {
    "timeout": "20s", "interval": "0.1s", "no_traffic_interval": "0.1s", "unhealthy_threshold": 1, "healthy_threshold": 1,
    "http_health_check": {"path": "/x"},
}  # fmt: skip


def test_checks_go_by_the_endpoints_own_socket(loop: Loop, endpoint: Endpoint, secured: Secured) -> None:
    ports = {each.port: name for name, each in secured.endpoints.items()} | {endpoint.port: ""}
    # The certificate of the second is not the one that is wanted: its checks must say so.
    matches = [secured.match("a.example"), secured.match("b.example", shown="c.example"), PLAIN]
    given = labelled(ports, transport_socket_matches=matches, health_checks=[CHECK])
    with running(loop, http([forward("/", "a")], [given])) as proxy:
        eventually(lambda: b"failed_active_hc" in proxy.admin("/clusters"))
        found = answers(proxy, 8)

    assert found == {b"one", b"a.example"}


def test_the_criteria_of_a_check_stand_for_the_endpoints_metadata(loop: Loop, secured: Secured) -> None:
    port = secured.endpoints["a.example"].port
    criteria = {**CHECK, "transport_socket_match_criteria": {"tls": "a.example"}}
    # Calls go in plain text, which this endpoint does not speak; its checks do not.
    given = labelled({port: ""}, transport_socket_matches=[secured.match("a.example"), PLAIN], health_checks=[criteria])
    with running(loop, http([forward("/", "a")], [given])) as proxy:
        assert b"::health_flags::healthy" in proxy.admin("/clusters")
        assert status(proxy.ask(get("/x"))) == 503
    assert set(secured.asked) == {"a.example"}


def test_a_match_without_a_socket_is_refused_where_it_stands(loop: Loop, endpoint: Endpoint) -> None:
    given = labelled({endpoint.port: ""}, transport_socket_matches=[{"name": "one", "match": {}}])

    with pytest.raises(ConfigError, match=r"transport_socket_matches\[0\]\.transport_socket.*is needed"):
        running(loop, http([forward("/", "a")], [given])).__enter__()
