"""TLS on both sides: certificates by name, chains by name, clients' certificates, and files that change."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.proxy.asking import Client, head
from tests.proxy.test_following import Files
from tests.proxy.world import (
    WITHIN,
    Endpoint,
    Loop,
    Proxy,
    ask,
    body,
    cluster,
    document,
    drain,
    forward,
    get,
    http,
    listener,
    manager,
    running,
    status,
)

from reachline.testing.wait import eventually

DOWN = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
UP = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def written(cert: trustme.LeafCert, directory: Path, name: str) -> dict[str, Any]:
    chain, key = directory / f"{name}.pem", directory / f"{name}.key"
    # Beside and renamed into place: never half a file.
    for path, pem in ((chain, cert.cert_chain_pems[0].bytes()), (key, cert.private_key_pem.bytes())):
        fresh = path.with_suffix(".new")
        fresh.write_bytes(pem)
        fresh.replace(path)
    return {"certificate_chain": {"filename": str(chain)}, "private_key": {"filename": str(key)}}


def secured(common: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"transport_socket": {"name": "tls", "typed_config": {"@type": DOWN, "common_tls_context": common, **more}}}


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), WITHIN)


def call(proxy: Proxy, authority: trustme.CA, name: str, own: trustme.LeafCert | None = None) -> tuple[int, bytes, str]:
    """(status, body, the name of the certificate that was shown)."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.check_hostname = False
    if own is not None:
        own.configure_cert(context)
    with (
        socket.create_connection(("127.0.0.1", proxy.port), WITHIN) as plain,
        context.wrap_socket(plain, server_hostname=name) as client,
    ):
        client.sendall(get("/x"))
        told = client.getpeercert() or {}
        answer = drain(client)
    names: Any = told.get("subjectAltName", ())
    return status(answer), body(answer), names[0][1]


def test_the_certificate_and_the_chain_are_those_of_the_name(
    loop: Loop, endpoint: Endpoint, another: Endpoint, authority: trustme.CA, tmp_path: Path
) -> None:
    one, two, three = (authority.issue_cert(f"{name}.example") for name in ("one", "two", "three"))
    given = listener(
        manager([forward("/", "a")]),
        **secured({"tls_certificates": [written(one, tmp_path, "one"), written(two, tmp_path, "two")]}),
    )
    other = listener(manager([forward("/", "b")]), **secured({"tls_certificates": [written(three, tmp_path, "three")]}))
    given["listener_filters"] = [
        {
            "name": "tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"
            },
        }
    ]
    given["filter_chains"][0]["filter_chain_match"] = {"server_names": ["one.example", "two.example"]}
    given["filter_chains"].append(
        {**other["filter_chains"][0], "filter_chain_match": {"server_names": ["three.example"]}}
    )
    with running(loop, document([given], [cluster("a", [endpoint.port]), cluster("b", [another.port])])) as proxy:
        found = [call(proxy, authority, f"{name}.example") for name in ("one", "two", "three")]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            call(proxy, authority, "four.example")

    assert found == [(200, b"one", "one.example"), (200, b"one", "two.example"), (200, b"two", "three.example")]
    assert b"x-forwarded-proto: https" in endpoint.asked[0]


@pytest.mark.parametrize(
    ("codec", "offered", "agreed"),
    [("AUTO", ["h2", "http/1.1"], "h2"), ("AUTO", ["http/1.1"], "http/1.1"), ("HTTP1", ["h2", "http/1.1"], "http/1.1")],
)
def test_a_client_is_promised_what_it_will_be_answered_by(
    loop: Loop, endpoint: Endpoint, authority: trustme.CA, tmp_path: Path, codec: str, offered: list[str], agreed: str
) -> None:
    certificate = written(authority.issue_cert("localhost"), tmp_path, "a")
    common = {"tls_certificates": [certificate], "alpn_protocols": ["h2", "http/1.1"]}
    handler = manager([forward("/", "a")], codec_type=codec)
    given = document([listener(handler, **secured(common))], [cluster("a", [endpoint.port])])
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.set_alpn_protocols(offered)
    with running(loop, given) as proxy:
        if agreed == "h2":
            with Client(proxy.port, context) as client:
                assert client.answer(head("/x", scheme="https")).body == b"one"
        with connect(proxy) as plain, context.wrap_socket(plain, server_hostname="localhost") as client_of_1:
            assert client_of_1.selected_alpn_protocol() == agreed
            if agreed != "h2":
                client_of_1.sendall(get("/x"))
                assert status(drain(client_of_1)) == 200

    assert all(b"x-forwarded-proto: https" in each for each in endpoint.asked)


def test_a_certificate_that_changes_is_shown_and_one_that_is_broken_is_not(
    loop: Loop, endpoint: Endpoint, authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = written(authority.issue_cert("before.example"), tmp_path, "own")
    given = document(
        [listener(manager([forward("/", "a")]), **secured({"tls_certificates": [files]}))],
        [cluster("a", [endpoint.port])],
    )
    with running(loop, given) as proxy:
        assert call(proxy, authority, "a")[2] == "before.example"
        written(authority.issue_cert("after.example"), tmp_path, "own")
        eventually(lambda: call(proxy, authority, "a")[2] == "after.example")
        (tmp_path / "own.pem").write_text("no certificate")
        Path(files["private_key"]["filename"]).touch()

        def is_refused() -> bool:
            assert call(proxy, authority, "a")[2] == "after.example"
            return any(each.message == "certificates_refused" for each in caplog.records)

        eventually(is_refused)
        assert call(proxy, authority, "a")[2] == "after.example"


def test_clients_must_show_a_certificate_where_that_is_asked_for(
    loop: Loop, endpoint: Endpoint, authority: trustme.CA, tmp_path: Path
) -> None:
    files, own = written(authority.issue_cert("own.example"), tmp_path, "own"), authority.issue_cert("client.example")
    trusted = {"validation_context": {"trusted_ca": {"inline_string": authority.cert_pem.bytes().decode()}}}
    tls = secured({"tls_certificates": [files], **trusted}, require_client_certificate=True)
    with running(
        loop, document([listener(manager([forward("/", "a")]), **tls)], [cluster("a", [endpoint.port])])
    ) as proxy:
        assert call(proxy, authority, "own.example", own)[:2] == (200, b"one")
        with pytest.raises((ssl.SSLError, ConnectionError, IndexError)):
            call(proxy, authority, "own.example")


def test_endpoints_must_show_the_certificate_that_is_asked_for(
    loop: Loop, far_loop: Loop, authority: trustme.CA
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("good.example").configure_cert(context)
    endpoint = Endpoint(far_loop, b"safe", ssl=context)

    def to(name: str, san: str, ca: trustme.CA) -> dict[str, Any]:
        sans = [{"san_type": "DNS", "matcher": {"exact": san}}]
        common = {
            "validation_context": {
                "trusted_ca": {"inline_string": ca.cert_pem.bytes().decode()},
                "match_typed_subject_alt_names": sans,
            }
        }
        socket_of = {"name": "tls", "typed_config": {"@type": UP, "sni": "good.example", "common_tls_context": common}}
        return cluster(name, [endpoint.port], transport_socket=socket_of)

    clusters = [
        to("good", "good.example", authority),
        to("name", "bad.example", authority),
        to("issuer", "good.example", trustme.CA()),
    ]
    given = http([forward("/good", "good"), forward("/name", "name"), forward("/issuer", "issuer")], clusters)
    with running(loop, given) as proxy:
        good, name, issuer = (ask(proxy.port, get(f"/{each}")) for each in ("good", "name", "issuer"))
    endpoint.close()

    assert (status(good), body(good)) == (200, b"safe")
    assert (status(name), status(issuer)) == (503, 503)
    assert b"CERTIFICATE_VERIFY_FAILED" in body(name)
    assert b"CERTIFICATE_VERIFY_FAILED" in body(issuer)


def test_a_clients_first_words_may_come_in_pieces_or_not_at_all(
    loop: Loop, endpoint: Endpoint, authority: trustme.CA, tmp_path: Path
) -> None:
    files = written(authority.issue_cert("own.example"), tmp_path, "own")
    chain = listener(manager([forward("/", "a")]), **secured({"tls_certificates": [files]}))
    chain["filter_chains"][0]["filter_chain_match"] = {"server_names": ["own.example"]}
    given = document([{**chain, "listener_filters_timeout": "5s"}], [cluster("a", [endpoint.port])])
    context = ssl.create_default_context()
    authority.configure_trust(context)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(back, there, server_hostname="own.example").do_handshake()
    hello = there.read()
    with running(loop, given) as proxy, connect(proxy) as whole, connect(proxy) as half:
        half.sendall(hello[:1])
        half.shutdown(socket.SHUT_WR)
        for piece in (hello[:1], hello[1:100], hello[100:]):
            whole.sendall(piece)
            # Not before it was looked at: a connection that came later is through.
            assert call(proxy, authority, "own.example")[0] == 200

        assert whole.recv(1) == b"\x16"
        assert drain(half) == b""
        assert proxy.figures()["listener.in.no_filter_chain_match"] == 1


def test_hands_that_are_shaken_while_a_listener_is_replaced_leave_a_connection_that_ends_like_others(
    loop: Loop, endpoint: Endpoint, authority: trustme.CA, tmp_path: Path
) -> None:
    own, files = written(authority.issue_cert("own.example"), tmp_path, "own"), Files(tmp_path)
    tls = secured({"tls_certificates": [own]})
    soon = {"common_http_protocol_options": {"idle_timeout": "0.2s"}}

    def write(name: str) -> None:
        files.write("lds", [listener(manager([forward("/", "a")], server_name=name, **soon), **tls)])

    write("before")
    given = {**document([], [cluster("a", [endpoint.port])]), "node": {"id": "n", "cluster": "c"}}
    given["dynamic_resources"] = {"lds_config": files.source("lds")}
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with running(loop, given) as proxy, connect(proxy) as plain:
        eventually(lambda: proxy.figures().get("listener.in.downstream_cx_total", 0) == 1)
        write("after")
        # Told by the admin: one that connects would be the new listener's first.
        eventually(lambda: proxy.figures().get("listener.in.downstream_cx_total", 0) == 0)
        with connect(proxy) as other, context.wrap_socket(other, server_hostname="own.example") as ends:
            assert ends.recv(1) == b""  # many looks at what is silent later
        with context.wrap_socket(plain, server_hostname="own.example") as client:
            assert client.recv(1) == b""


def test_a_client_that_shakes_no_hands_is_no_error(
    loop: Loop, endpoint: Endpoint, authority: trustme.CA, tmp_path: Path
) -> None:
    files = written(authority.issue_cert("own.example"), tmp_path, "own")
    given = document(
        [listener(manager([forward("/", "a")]), **secured({"tls_certificates": [files]}))],
        [cluster("a", [endpoint.port])],
    )
    with running(loop, given) as proxy:
        assert not ask(proxy.port, get("/x")).startswith(b"HTTP/1.1 2")
        assert call(proxy, authority, "own.example")[0] == 200
