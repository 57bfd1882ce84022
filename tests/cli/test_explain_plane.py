"""`reachline explain --request` where a bootstrap's rest comes from elsewhere: a running center, and files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from reachline.cli.main import main
from reachline.testing.center import running_center

pytest.importorskip("envoy.config.listener.v3.listener_pb2", reason="needs the extra xds")

DOCUMENT = """\
schema_version: 1
clusters:
  payments:
    lines: ["http://127.0.0.1:18081/", "http://127.0.0.1:18082/"]
    listen: {at: "127.0.0.1:19000", prefix: /pay}
"""


def test_a_centers_own_listeners_routes_and_endpoints_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the bootstrap that `reachline envoy bootstrap` prints for it."""

    async def run() -> None:
        async with asyncio.timeout(50), running_center(tmp_path, DOCUMENT) as center:
            assert main(["envoy", "bootstrap", "--center", center.grpc[0]]) == 0
            file = tmp_path / "envoy.yaml"
            file.write_text(capsys.readouterr().out)
            request = ["explain", "--request", "GET http://any:19000/pay/1", "-f", str(file)]
            assert await asyncio.to_thread(main, request) == 0

    asyncio.run(run())
    said = capsys.readouterr().out.splitlines()

    assert said[1:7] == [
        "listener   127.0.0.1:19000 on 127.0.0.1:19000: it has port 19000",
        "chain      the only one: http_connection_manager 127.0.0.1:19000",
        "host       *: its domain * fits all",
        "route      one without a name: the first that fits (path_separated_prefix /pay)",
        "times      15 s for all",
        "retries    1 more after connect-failure, refused-stream, reset-before-request, each at another endpoint",
    ]
    assert said[7] == "cluster    payments, EDS: 2 endpoints"
    assert {"127.0.0.1:18081", "127.0.0.1:18082"} <= set(" ".join(said[8:10]).split())


def test_files_are_read_and_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = "type.googleapis.com/envoy.config."
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "rds": {"route_config_name": "r", "config_source": {"path": str(tmp_path / "rds.json")}},
        "http_filters": [{"name": "r", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    }  # fmt: skip
    listener = {
        "@type": f"{kind}listener.v3.Listener",
        "name": "in",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 80}},
        "filter_chains": {"filters": {"name": "h", "typed_config": manager}},
    }
    routes = {"match": {"prefix": "/"}, "route": {"cluster": "later"}}
    config = {
        "@type": f"{kind}route.v3.RouteConfiguration",
        "name": "r",
        "virtual_hosts": {"name": "a", "domains": "*", "routes": routes},
    }
    (tmp_path / "lds.json").write_text(json.dumps({"resources": [listener]}))
    (tmp_path / "rds.json").write_text(json.dumps({"resources": [config]}))
    file = tmp_path / "envoy.yaml"
    file.write_text(f"node: {{id: n, cluster: c}}\ndynamic_resources: {{lds_config: {{path: {tmp_path}/lds.json}}}}\n")

    assert main(["explain", "--request", "http://a/", "-f", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "cluster    there is none of the name 'later': 503"


def test_a_control_plane_that_cannot_be_asked_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envoy", "bootstrap", "--center", "127.0.0.1:1"]) == 0
    text = capsys.readouterr().out
    file = tmp_path / "envoy.yaml"
    file.write_text(
        text.replace("    - envoy_grpc:\n", "    - initial_metadata: [{key: a, value: b}]\n      envoy_grpc:\n")
    )

    assert main(["explain", "--request", "http://a/", "-f", str(file)]) == 2
    assert "by TLS or with metadata, which explain does not speak" in capsys.readouterr().err
