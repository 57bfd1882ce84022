"""The commands with an `api`: outbounds and inbounds come and go, and a route is told, as Xray's own clients ask for it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.handler_requests import add_inbound, add_outbound, remove, typed
from tests.xray_messages import xray_messages

from reachline.testing.parts import free_port
from reachline.wire import xray_handler as wire
from reachline.wire.xray_route import TEST_ROUTE

pytestmark = pytest.mark.e2e

_DOCUMENT: dict[str, Any] = {
    "outbounds": [{"tag": "no", "protocol": "blackhole"}],
    "routing": {
        "rules": [
            {"domain": ["full:a.example"], "balancerTag": "b"},
            {"ip": ["127.0.0.0/8"], "outboundTag": "later"},
        ],
        "balancers": [{"tag": "b", "selector": ["p-"]}],
    },
}


@contextlib.contextmanager
def _running(path: Path, command: str, document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The first line that it says, and a channel to its `api`."""
    port = free_port()
    path.write_text(json.dumps(document | {"api": {"tag": "api", "listen": f"127.0.0.1:{port}", "services": _ALL}}))
    line = [sys.executable, "-m", "reachline", command, str(path), "--log-level", "error"]
    with (
        subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        try:
            assert process.stdout is not None
            yield process.stdout.readline(), channel
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


_ALL = ["HandlerService", "RoutingService"]


def _ask(channel: Any, method: str, request: bytes = b"") -> bytes:
    answer: bytes = channel.unary_unary(method)(request, timeout=60)
    return answer


def _route(channel: Any, **context: object) -> str:
    messages = xray_messages()
    request = messages["TestRouteRequest"](RoutingContext=context).SerializeToString()
    return str(messages["RoutingContext"].FromString(_ask(channel, TEST_ROUTE[0], request)).OutboundTag)


def test_the_observatory_alone_tells_routes_and_takes_outbounds(tmp_path: Path) -> None:
    path = tmp_path / "xray.json"
    with _running(path, "observatory", _DOCUMENT) as (_, channel):
        _ask(channel, wire.ADD_OUTBOUND[0], add_outbound("p-new"))

        assert _route(channel, TargetDomain="a.example") == "p-new"
        assert _route(channel, TargetIPs=[bytes((127, 0, 0, 1))]) == "later"
        with pytest.raises(grpc.RpcError) as caught:
            _ask(channel, wire.LIST_INBOUNDS[0])
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_route_that_needs_lists_that_are_not_there_says_so(tmp_path: Path) -> None:
    rules = {"rules": [{"domain": ["geosite:cn"], "outboundTag": "no"}]}
    with _running(tmp_path / "xray.json", "observatory", _DOCUMENT | {"routing": rules}) as (_, channel):
        with pytest.raises(grpc.RpcError) as caught:
            _route(channel, TargetDomain="a.example")

        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert "geosite.dat" in (caught.value.details() or "")


def test_connections_go_by_who_was_added_and_come_in_where_was_added(tmp_path: Path) -> None:
    inbound = {"tag": "in", "protocol": "socks", "listen": "127.0.0.1", "port": 0}
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        _running(tmp_path / "xray.json", "proxy", _DOCUMENT | {"inbounds": [inbound]}) as (said, channel),
    ):
        found = re.search(r"in 127\.0\.0\.1:(\d+)", said)
        assert found
        request = b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + target.getsockname()[1].to_bytes(2)
        assert _reply(int(found[1]), request) != 0

        _ask(channel, wire.ADD_OUTBOUND[0], add_outbound("later"))
        assert _reply(int(found[1]), request) == 0

        more = free_port()
        server = typed("xray.proxy.socks.ServerConfig", xray_messages()["SocksServerConfig"]())
        _ask(channel, wire.ADD_INBOUND[0], add_inbound("more", server, ports=((more, more),)))
        assert _reply(more, request) == 0

        _ask(channel, wire.REMOVE_OUTBOUND[0], remove("later"))
        assert _reply(more, request) != 0


def _reply(port: int, request: bytes) -> int:
    """What the SOCKS5 server says of the connection, 0: it is made."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client, client.makefile("rb") as answer:
        client.sendall(request)
        return answer.read(12)[3]
