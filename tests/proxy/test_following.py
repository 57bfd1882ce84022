"""Resources in files: what changes is in force while requests go on, and none of them fails by it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.proxy.world import (
    Endpoint,
    Loop,
    Proxy,
    ask,
    body,
    cluster,
    document,
    forward,
    get,
    listener,
    manager,
    running,
    status,
)

from reachline.testing.wait import eventually

PREFIX = "type.googleapis.com/envoy.config"
KINDS = {
    "lds": f"{PREFIX}.listener.v3.Listener",
    "cds": f"{PREFIX}.cluster.v3.Cluster",
    "rds": f"{PREFIX}.route.v3.RouteConfiguration",
    "eds": f"{PREFIX}.endpoint.v3.ClusterLoadAssignment",
}


TURNS = 50


class Files:
    """Documents of resources; each is written beside and moved into place, as Envoy wants it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, kind: str, resources: list[dict[str, Any]], *, version: int = 0) -> None:
        said = {"version_info": str(version), "resources": [{"@type": KINDS[kind], **each} for each in resources]}
        self.text(kind, json.dumps(said))

    def text(self, kind: str, text: str) -> None:
        fresh = self.directory / f"{kind}.new"
        fresh.write_text(text)
        fresh.replace(self.directory / f"{kind}.json")

    def source(self, kind: str) -> dict[str, Any]:
        return {"path_config_source": {"path": str(self.directory / f"{kind}.json")}}


def routes(name: str, *given: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": list(given)}]}


def by_rds(files: Files, **more: Any) -> dict[str, Any]:
    found = manager([], rds={"route_config_name": "r", "config_source": files.source("rds")}, **more)
    del found["route_config"]
    return found


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def proxy(loop: Loop, endpoint: Endpoint, another: Endpoint, files: Files) -> Iterator[Proxy]:
    files.write("cds", [cluster("one", [endpoint.port]), cluster("two", [another.port])])
    files.write("rds", [routes("r", forward("/", "one"))])
    files.write("lds", [listener(by_rds(files))])
    given = {**document([], []), "node": {"id": "n", "cluster": "c"}}
    given["dynamic_resources"] = {"cds_config": files.source("cds"), "lds_config": files.source("lds")}
    with running(loop, given) as found:
        yield found


def test_routes_that_change_are_in_force_for_the_next_request(proxy: Proxy, files: Files) -> None:
    assert body(ask(proxy.port, get("/x"))) == b"one"

    files.write("rds", [routes("r", forward("/", "two"))])

    eventually(lambda: body(ask(proxy.port, get("/x"))) == b"two")


def test_clusters_come_change_and_go(proxy: Proxy, files: Files, endpoint: Endpoint, another: Endpoint) -> None:
    files.write("cds", [cluster("one", [another.port])])
    eventually(lambda: body(ask(proxy.port, get("/x"))) == b"two")

    files.write("cds", [])
    eventually(lambda: status(ask(proxy.port, get("/x"))) == 503)

    files.write("cds", [cluster("one", [endpoint.port])])
    eventually(lambda: body(ask(proxy.port, get("/x"))) == b"one")


def test_what_is_wrong_is_told_and_changes_nothing(
    proxy: Proxy, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.text("rds", "resources: [{'@type': x}]")
    eventually(lambda: [each for each in caplog.records if each.message == "resources_refused"])
    assert body(ask(proxy.port, get("/x"))) == b"one"

    files.write("rds", [routes("r", forward("/", "two"))])
    eventually(lambda: body(ask(proxy.port, get("/x"))) == b"two")


def test_listeners_come_change_and_go(proxy: Proxy, files: Files) -> None:
    changed = listener(by_rds(files, server_name="other"))
    files.write("lds", [changed, listener(by_rds(files), name="more")])
    eventually(lambda: b"server: other" in ask(proxy.port, get("/x")))
    shown = eventually(lambda: [each for each in proxy.admin("/listeners").split() if each.startswith(b"more::")])
    port = int(shown[0].rpartition(b":")[2])
    assert body(ask(port, get("/x"))) == b"one"

    files.write("lds", [changed])
    eventually(lambda: b"more::" not in proxy.admin("/listeners"))
    with pytest.raises(ConnectionRefusedError):
        ask(port, get("/x"))


def test_no_request_fails_while_everything_changes(
    loop: Loop, proxy: Proxy, files: Files, endpoint: Endpoint, another: Endpoint
) -> None:
    import http.client

    stop, found, faults = threading.Event(), [0, 0, 0], list[str]()

    def load(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        while not stop.is_set():
            try:
                connection.request("POST", "/x", body=b"abc")
                answer = connection.getresponse()
                said = answer.read()
                if answer.status != 200 or said not in (b"one", b"two"):
                    faults.append(f"{answer.status} {said!r}")
                if answer.getheader("connection") == "close":
                    connection.close()
                found[number] += 1
            except OSError as error:
                faults.append(repr(error))
                connection.close()
        connection.close()

    threads = [threading.Thread(target=load, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(TURNS):
        name, ports = ("one", "two")[turn % 2], (endpoint.port, another.port)
        files.write(
            "cds",
            [cluster(each, ports[:: (-1) ** (turn // 2)], connect_timeout=f"{turn + 1}s") for each in ("one", "two")],
            version=turn,
        )
        files.write("rds", [routes("r", forward("/", name))], version=turn)
        files.write("lds", [listener(by_rds(files, server_name=f"v{turn}"))], version=turn)
        eventually(lambda: f"server: v{turn}\r\n".encode() in ask(proxy.port, get("/x")))  # noqa: B023
    stop.set()
    for thread in threads:
        thread.join(10)

    assert faults == []
    assert min(found) > TURNS
