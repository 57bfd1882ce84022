"""A real Envoy and our proxy over the same endpoints: by a key they pick the same one, in turn the same cycle, by chance the same shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from tests.differential.real import binary
from tests.differential.real import running as envoy_running
from tests.proxy.world import Endpoint, Loop, ask, body, cluster, forward, get, http, running, status

pytestmark = pytest.mark.real

NAMES = (b"one", b"two", b"three", b"four")
KEYS = 60
CHI_SQUARE_MOST = 19.51
"""One degree of freedom: of a hundred thousand runs of the right shares one lies above (Envoy's chance has no seed)."""


class Both(NamedTuple):
    """Ports: Envoy's, ours; and the endpoints of both."""

    ports: tuple[int, int]
    endpoints: list[Endpoint]

    def picks(self, path: str, headers: list[bytes]) -> list[list[bytes]]:
        return [[body(ask(port, get(path, more=each))) for each in headers] for port in self.ports]


@pytest.fixture(scope="module")
def both(loop: Loop, far_loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    found = binary()
    if found is None:
        pytest.skip("no Envoy: `make envoy`, or REACHLINE_ENVOY names its binary")
    endpoints = [Endpoint(far_loop, name) for name in NAMES]
    ports = [each.port for each in endpoints]
    tiers = cluster("tiers", ports[:1])
    behind = cluster("tiers", ports[1:2])["load_assignment"]["endpoints"][0]
    tiers["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["health_status"] = "UNHEALTHY"
    tiers["load_assignment"]["endpoints"].append({**behind, "priority": 1})
    shares = {"clusters": [{"name": "first", "weight": 30}, {"name": "second", "weight": 70}]}
    by_header = [{"header": {"header_name": "x-key"}}]
    elsewhere = {"name": "envoy.retry_host_predicates.previous_hosts"}
    elsewhere["typed_config"] = {
        "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    }  # type: ignore[assignment]
    retrying = {"retry_on": "5xx", "num_retries": 1, "retry_host_predicate": [elsewhere]}
    routes = [
        forward("/ring", "ring", hash_policy=by_header), forward("/maglev", "maglev", hash_policy=[{"cookie": {"name": "who"}}]),
        forward("/turn", "turn"), forward("/tiers", "tiers"), {"match": {"prefix": "/shares"}, "route": {"weighted_clusters": shares}},
        forward("/503", "turn", retry_policy=retrying),
    ]  # fmt: skip
    clusters = [
        cluster("ring", ports, lb_policy="RING_HASH"), cluster("maglev", ports, lb_policy="MAGLEV"), cluster("turn", ports), tiers,
        cluster("first", ports[:1]), cluster("second", ports[1:2]),
    ]  # fmt: skip
    given: dict[str, Any] = http(routes, clusters, delayed_close_timeout="0.02s")
    with envoy_running(found, given, tmp_path_factory.mktemp("picks")) as envoy, running(loop, given) as ours:
        yield Both((envoy.port, ours.port), endpoints)
    for each in endpoints:
        each.close()


@pytest.mark.parametrize(("path", "header"), [("/ring", b"x-key: %d\r\n"), ("/maglev", b"cookie: who=%d\r\n")])
def test_the_same_key_leads_to_the_same_endpoint(both: Both, path: str, header: bytes) -> None:
    theirs, ours = both.picks(path, [header % number for number in range(KEYS)])

    assert ours == theirs
    assert set(theirs) == set(NAMES)


def test_in_turn_the_cycle_is_the_same_up_to_where_it_begins(both: Both) -> None:
    theirs, ours = both.picks("/turn", [b""] * 12)

    def turned(picks: list[bytes]) -> list[bytes]:
        at = picks.index(NAMES[0])
        return picks[at : at + 8]

    assert turned(ours) == turned(theirs)


def test_an_unwell_first_priority_is_left_for_the_next(both: Both) -> None:
    theirs, ours = both.picks("/tiers", [b""] * 10)

    assert ours == theirs == [b"two"] * 10


def test_weighted_clusters_get_their_shares(both: Both) -> None:
    for picks in both.picks("/shares", [b""] * 300):
        counts, wanted = Counter(picks), {b"one": 90, b"two": 210}

        assert sum((counts[name] - each) ** 2 / each for name, each in wanted.items()) < CHI_SQUARE_MOST


def test_a_retry_goes_to_another_host_and_comes_to_the_same(both: Both) -> None:
    for port in both.ports:
        for each in both.endpoints:
            each.asked.clear()

        assert status(ask(port, get("/503"))) == 503
        assert sorted(len(each.asked) for each in both.endpoints) == [0, 0, 1, 1]
