"""What `envoy bootstrap` and `grpc bootstrap` print: complete, from options or the center's document, and refused where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2  # noqa: F401 - named by an Any
from google.protobuf import json_format

from reachline.cli.bootstraps import Way, envoy, grpc, locality_of
from reachline.cli.main import main
from reachline.errors import ConfigError
from reachline.model import Locality
from reachline.wire.xds_rendering import CONTROL

WAY = Way(node="edge-1", center="127.0.0.1:7600")
DOCUMENT = """
clusters: {shop: {lines: ['tcp://10.0.0.1:80']}}
agents: {edge-1: {token: '${env:OWN}'}, edge-2: {}}
center: {grpc: '0.0.0.0:7777', token: '${env:ALL}', tls: {certificate: c.pem, key: k.pem}, journal: j}
"""


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code = main(list(arguments))
    text = capsys.readouterr().out
    assert code == 0, text
    return yaml.safe_load(text)


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OWN", "own-secret")
    monkeypatch.setenv("ALL", "all-secret")
    monkeypatch.delenv("REACHLINE_TOKEN", raising=False)
    monkeypatch.delenv("REACHLINE_AGENT_TOKEN", raising=False)
    file = tmp_path / "reachline.yaml"
    file.write_text(DOCUMENT)
    return str(file)


@pytest.mark.parametrize(
    "more", [{}, {"delta": True, "hds": True, "lrs": True, "als": True, "admin": "127.0.0.1:9901"}]
)
@pytest.mark.parametrize("tls", [False, True])
def test_an_envoys_bootstrap_is_one_by_envoys_own_schema(more: dict[str, Any], tls: bool) -> None:
    way = Way(node="edge-1", center="center.example:7600", tls=tls, token="t", certificate="c.pem", key="k.pem")

    found = json_format.ParseDict(envoy(way, **more), bootstrap_pb2.Bootstrap())

    (center,) = found.static_resources.clusters
    assert center.name == CONTROL
    assert found.dynamic_resources.ads_config.grpc_services[0].initial_metadata[0].value == "Bearer t"
    assert found.HasField("hds_config") == bool(more)
    assert center.HasField("transport_socket") == tls


def test_an_envoy_that_logs_its_calls_shows_its_token_with_its_node_for_the_center_configures_the_log() -> None:
    found = envoy(Way(node="edge-1", center="center.example:7600", token="t"), als=True)
    open_ = envoy(Way(node="edge-1", center="center.example:7600"), als=True)

    assert found["node"]["metadata"] == {"reachline": {"als": True, "token": "t"}}
    assert open_["node"]["metadata"] == {"reachline": {"als": True}}


def test_the_centers_certificate_is_checked_by_its_name_or_its_address() -> None:
    for host, sni in (("center.example", "center.example"), ("10.0.0.1", "")):
        found = json_format.ParseDict(envoy(Way(node="n", center=f"{host}:1", tls=True)), bootstrap_pb2.Bootstrap())
        socket = found.static_resources.clusters[0].transport_socket
        context = tls_pb2.UpstreamTlsContext.FromString(socket.typed_config.value)
        (name,) = context.common_tls_context.validation_context.match_typed_subject_alt_names
        assert (context.sni, name.matcher.exact) == (sni, host)


def test_address_tls_and_the_nodes_own_token_come_from_the_document(
    document: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(capsys, "grpc", "bootstrap", document, "--node", "edge-1", "--locality", "r1/az1")

    (server,) = found["xds_servers"]
    assert server["server_uri"] == "127.0.0.1:7777"
    assert server["channel_creds"] == [{"type": "tls"}]
    assert found["node"]["metadata"] == {"reachline": {"token": "own-secret"}}
    assert found["node"]["locality"] == {"region": "r1", "zone": "az1"}


def test_a_node_that_the_document_gives_no_token_shows_the_centers(
    document: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(capsys, "envoy", "bootstrap", document, "--node", "edge-2")

    (service,) = found["dynamic_resources"]["ads_config"]["grpc_services"]
    assert service["initial_metadata"] == [{"key": "authorization", "value": "Bearer all-secret"}]


def test_options_and_the_environment_win_over_the_document(
    document: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REACHLINE_TOKEN", "given")

    found = printed(capsys, "grpc", "bootstrap", document, "--center", "[::1]:1", "--ca", "ca.pem")

    (server,) = found["xds_servers"]
    assert server["server_uri"] == "[::1]:1"
    assert server["channel_creds"] == [{"type": "tls", "config": {"ca_certificate_file": "ca.pem"}}]
    assert found["node"]["metadata"] == {"reachline": {"token": "given"}}


def test_yaml_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    said = ("envoy", "bootstrap", "--node", "n", "--als")
    assert main([*said, "-o", "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)

    assert printed(capsys, *said) == as_json
    assert as_json["node"]["metadata"] == {"reachline": {"als": True}}


def test_a_unix_socket_is_a_center_too() -> None:
    found = envoy(Way(node="n", center="unix:/run/reachline.sock"))

    json_format.ParseDict(found, bootstrap_pb2.Bootstrap())
    assert (
        grpc(Way(node="n", center="unix:/run/reachline.sock"))["xds_servers"][0]["server_uri"]
        == "unix:/run/reachline.sock"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--center", "nowhere"], "--center: must be host:port"),
        (["--center", "http://a:1"], "--center: must be host:port"),
        (["--locality", "a//b"], "--locality: must be zone"),
        (["--cert", "x.pem"], "--cert: goes with --key"),
        (["--admin", "x"], "--admin: must be host:port"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envoy", "bootstrap", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_locality_alone_is_a_zone() -> None:
    assert locality_of("az1") == Locality(zone="az1")
    assert locality_of("r/z/s") == Locality(region="r", zone="z", sub_zone="s")
    with pytest.raises(ConfigError):
        locality_of("a/b/c/d")
