"""The command with an Xray document: it is told from an Envoy bootstrap, says where it listens, ends on SIGTERM, and refuses by place."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest

from reachline.testing.parts import free_port
from reachline.testing.wait import eventually
from reachline.wire.observatory import GET_OUTBOUND_STATUS

pytestmark = pytest.mark.e2e

_INBOUND = {"tag": "in", "protocol": "socks", "listen": "127.0.0.1", "port": 0}


def _command(tmp_path: Path, inbound: dict[str, Any], *options: str) -> list[str]:
    path = tmp_path / "xray.json"
    path.write_text(json.dumps({"inbounds": [inbound], "outbounds": [{"protocol": "freedom"}]}))
    return [sys.executable, "-m", "reachline", "proxy", str(path), "--log-level", "error", *options]


def test_it_serves_a_document_until_told_to_stop(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        subprocess.Popen(_command(tmp_path, _INBOUND), stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"in 127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found
            with socket.create_connection(("127.0.0.1", int(found[1]))) as client:
                client.sendall(
                    b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + target.getsockname()[1].to_bytes(2) + b"hello"
                )
                with target.accept()[0] as made:
                    assert made.recv(5) == b"hello"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def _routed(path: Path, tag: str, metrics: int) -> None:
    document = {
        "inbounds": [_INBOUND],
        "outbounds": [{"tag": "s-a", "protocol": "freedom"}, {"tag": "no", "protocol": "blackhole"}],
        "routing": {"rules": [{"network": "tcp", "outboundTag": tag}]},
        "observatory": {"subjectSelector": ["s-"], "probeURL": f"http://127.0.0.1:{free_port()}/"},
        "policy": {"system": {"statsInboundDownlink": True, "statsOutboundUplink": True}},
        "metrics": {"tag": "m", "listen": f"127.0.0.1:{metrics}"},
        "api": {"tag": "api", "listen": "127.0.0.1:0", "services": ["ObservatoryService", "RoutingService"]},
    }
    path.write_text(json.dumps(document))


def _page(port: int) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/debug/vars", timeout=30) as answer:
        return json.load(answer)


def _answered(door: int, target: int, first: bytes = b"") -> int | None:
    """What SOCKS says of a connection: 0 is yes; None: it was closed."""
    with socket.create_connection(("127.0.0.1", door), timeout=60) as client:
        client.sendall(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + target.to_bytes(2) + first)
        said = client.recv(2, socket.MSG_WAITALL) + client.recv(2, socket.MSG_WAITALL)
        return said[3] if len(said) == 4 else None


def test_metrics_and_api_are_served_beside_and_the_file_is_followed(tmp_path: Path) -> None:
    path, metrics = tmp_path / "xray.json", free_port()
    _routed(path, "s-a", metrics)
    command = [sys.executable, "-m", "reachline", "proxy", str(path), "--log-level", "error", "--grace", "0"]
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(rf"in 127\.0\.0\.1:(\d+), metrics port {metrics}, api port (\d+)", said)
            assert found, said
            door, port = int(found[1]), target.getsockname()[1]
            assert _answered(door, port, b"hello") == 0
            sent = {"inbound": {"in": {"downlink": 0}}, "outbound": {"s-a": {"uplink": 5}}}
            eventually(lambda: _page(metrics)["stats"] == sent or None, within=60, what="bytes are told")
            eventually(lambda: "s-a" in (_page(metrics)["observatory"] or ()) or None, within=60, what="it observes")
            with grpc.insecure_channel(f"127.0.0.1:{found[2]}") as channel:
                call: Any = channel.unary_unary(GET_OUTBOUND_STATUS)
                assert b"s-a" in call(b"", timeout=60)

            _routed(path, "no", metrics)

            eventually(lambda: _answered(door, port) != 0 or None, within=60, what="the rule of the changed file")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_an_open_relay_is_refused_with_its_place(tmp_path: Path) -> None:
    command = _command(tmp_path, {**_INBOUND, "listen": "0.0.0.0"})

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 2
    assert re.search(r"xray\.json:1:\d+", done.stderr)
    assert "inbounds[0].listen" in done.stderr
    assert "would be an open relay" in done.stderr


def test_a_list_that_cannot_be_read_is_refused_with_its_place(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "geosite.dat").symlink_to("/proc/self/mem")  # a file whose first byte nobody gets
    path = tmp_path / "xray.json"
    rule = {"domain": ["geosite:cn"], "outboundTag": "d"}
    document = {
        "inbounds": [_INBOUND],
        "outbounds": [{"tag": "d", "protocol": "freedom"}],
        "routing": {"rules": [rule]},
    }
    path.write_text(json.dumps(document))
    command = [sys.executable, "-m", "reachline", "proxy", str(path), "--geodata", str(lists)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 2
    assert "routing.rules[0].domain" in done.stderr
    assert "Traceback" not in done.stderr


def test_options_of_xray_are_refused_where_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.yaml"
    path.write_text("static_resources: {}\n")
    command = [sys.executable, "-m", "reachline", "proxy", str(path), "--compat", "strict"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 2
    assert "are of Xray documents" in done.stderr
