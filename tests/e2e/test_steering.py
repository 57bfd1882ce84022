"""`--steer` as people start it: how it ends decides what the core has afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from tests.xray_messages import xray_messages

from reachline.testing.parts import free_port
from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e


class _Core(NamedTuple):
    port: int
    overrides: dict[str, str]


@pytest.fixture
def core() -> Iterator[_Core]:
    """RoutingService over one balancer, whose override somebody set before."""
    messages, overrides = xray_messages(), {"b": "s-before"}

    def info(request: Any, _: Any) -> Any:
        return messages["GetBalancerInfoResponse"](balancer={"override": {"target": overrides[request.tag]}})

    def override(request: Any, _: Any) -> bytes:
        overrides[request.balancerTag] = request.target
        return b""

    handlers = {
        "GetBalancerInfo": grpc.unary_unary_rpc_method_handler(
            info, messages["GetBalancerInfoRequest"].FromString, messages["GetBalancerInfoResponse"].SerializeToString
        ),
        "OverrideBalancerTarget": grpc.unary_unary_rpc_method_handler(
            override, messages["OverrideBalancerTargetRequest"].FromString, bytes
        ),
    }
    server = grpc.server(ThreadPoolExecutor(2))
    service = "xray.app.router.command.RoutingService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield _Core(port, overrides)
    server.stop(0).wait()


@pytest.mark.parametrize(
    ("end", "left"), [(signal.SIGTERM, "s-before"), (signal.SIGINT, "s-before"), (signal.SIGKILL, "s-a")]
)
def test_an_override_is_taken_back_unless_nobody_can(
    tmp_path: Path, core: _Core, end: signal.Signals, left: str
) -> None:
    path = tmp_path / "xray.json"
    url = f"http://127.0.0.1:{free_port()}/"
    document = {
        "outbounds": [{"tag": "s-a", "protocol": "freedom"}],
        "burstObservatory": {"subjectSelector": ["s-"], "pingConfig": {"destination": url, "interval": "60s"}},
        "routing": {"balancers": [{"tag": "b", "selector": ["s-"], "fallbackTag": "s-a"}]},
    }
    path.write_text(json.dumps(document))
    command = [sys.executable, "-m", "reachline", "observatory", str(path), "--steer", f"127.0.0.1:{core.port}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: core.overrides["b"] == "s-a" or None, within=60, what="the core is driven")
            process.send_signal(end)
            process.wait(60)
        finally:
            process.kill()

    assert core.overrides["b"] == left
