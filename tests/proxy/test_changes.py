"""Each type of resource changed fifty times by ADS, and endpoints in a file, under load on kept connections and on new ones: no request fails by it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from tests.proxy.plane import Plane
from tests.proxy.test_ads import by_ads, follower, routed
from tests.proxy.test_following import Files
from tests.proxy.world import WITHIN, Endpoint, Loop, ask, body, cluster, forward, get, http, listener, running, status

from reachline.testing.wait import eventually
from reachline.wire.ads import CDS, EDS, LDS, RDS

TURNS = 50
ADS = {"eds_config": {"ads": {}, "resource_api_version": "V3"}}


def assigned(name: str, *ports: int) -> dict[str, Any]:
    found: dict[str, Any] = cluster(name, ports)["load_assignment"]
    return found


def by_eds(name: str, timeout: int = 10) -> dict[str, Any]:
    return {"name": name, "type": "EDS", "connect_timeout": f"{timeout}s", "eds_cluster_config": ADS}


class Load:
    """What calls came to that did not come to what is wanted, and how many there were, by caller."""

    def __init__(self, port: int) -> None:
        self.faults: list[str] = []
        self.calls: Counter[str] = Counter()
        self._port = port
        self._over = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=each) for each in (self._kept, self._kept, self._anew)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(WITHIN)

    def _kept(self) -> None:
        """One connection, as long as the proxy keeps it; a body each time, so that nothing may be tried again unseen."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=WITHIN)
        while not self._over.is_set():
            try:
                connection.request("POST", "/x", body=b"abc")
                answer = connection.getresponse()
                self._said("kept", answer.status, answer.read())
                if answer.getheader("connection") == "close":
                    connection.close()
            except (OSError, HTTPException) as error:
                self.faults.append(f"kept: {error!r}")
                connection.close()
        connection.close()

    def _anew(self) -> None:
        while not self._over.is_set():
            try:
                answer = ask(self._port, get("/x", method="POST", more=b"content-length: 3\r\n") + b"abc")
                self._said("anew", status(answer), body(answer))
            except (OSError, IndexError) as error:
                self.faults.append(f"anew: {error!r}")

    def _said(self, who: str, code: int, said: bytes) -> None:
        self.calls[who] += 1
        if code != 200 or said not in (b"one", b"two"):
            self.faults.append(f"{who}: {code} {said!r}")


def test_each_type_changed_fifty_times_by_ads_fails_no_request(
    loop: Loop, far_loop: Loop, endpoint: Endpoint, another: Endpoint
) -> None:
    plane, ports = Plane(far_loop), (endpoint.port, another.port)
    plane.say(CDS, by_eds("one"), by_eds("two"))
    plane.say(EDS, assigned("one", ports[0]), assigned("two", ports[1]))
    plane.say(LDS, listener(by_ads()))
    plane.say(RDS, routed(forward("/", "one")))
    with running(loop, follower(plane)) as proxy:
        load = Load(proxy.port)
        with load.running():
            for turn in range(TURNS):
                plane.say(CDS, by_eds("one", 11 + turn), by_eds("two", 11 + turn))
                plane.say(EDS, assigned("one", ports[turn % 2]), assigned("two", *ports[: 1 + turn % 2]))
                plane.say(LDS, listener(by_ads(server_name=f"v{turn}")))
                plane.say(RDS, routed(forward("/", ("one", "two")[turn // 2 % 2])))
                wanted = f"server: v{turn}\r\n".encode()
                eventually(lambda: wanted in ask(proxy.port, get("/x")), within=WITHIN)  # noqa: B023
    plane.close()

    assert load.faults == []
    assert load.calls["kept"] > TURNS
    assert load.calls["anew"] > TURNS
    assert plane.refused == []
    assert endpoint.asked
    assert another.asked


def test_endpoints_in_a_file_changed_fifty_times_under_load_fail_no_request(
    loop: Loop, endpoint: Endpoint, another: Endpoint, tmp_path: Path
) -> None:
    files, ports = Files(tmp_path), (endpoint.port, another.port)
    files.write("eds", [assigned("one", ports[1])])
    eds = {"eds_config": {**files.source("eds"), "resource_api_version": "V3"}}
    given = {"name": "one", "type": "EDS", "connect_timeout": "10s", "eds_cluster_config": eds}
    with running(loop, http([forward("/", "one")], [given])) as proxy:
        load = Load(proxy.port)
        with load.running():
            for turn in range(TURNS):
                files.write("eds", [assigned("one", ports[turn % 2])], version=turn)
                wanted = (b"one", b"two")[turn % 2]
                eventually(lambda: body(ask(proxy.port, get("/x"))) == wanted, within=WITHIN)  # noqa: B023

    assert load.faults == []
    assert load.calls["kept"] > TURNS
    assert load.calls["anew"] > TURNS
