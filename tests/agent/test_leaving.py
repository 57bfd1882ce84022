"""From where attempts leave, how they are closed, and whose buckets they take from."""

from __future__ import annotations

import pytest
from tests.agent.peer import line, probe

from reachline.agent.jobs import endpoint_of, jobs_of
from reachline.agent.leaving import Leaving, Outflow, Sources, claims_of, network_of
from reachline.agent.pace import Close, Limits
from reachline.model import Kind
from reachline.net import budget
from reachline.net.attempt import EARLY

LIMITS = Limits(network=1_000, source=5_000)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.1.2.3", "10.1.2.0/24"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/48"),
        ("a.example", "a.example"),
        ("127.0.0.9", ""),
        ("::1", ""),
        ("localhost", ""),
        ("", ""),
    ],
)
def test_a_network_is_what_one_operator_routes_and_loopback_is_nobodys(host: str, network: str) -> None:
    assert network_of(host) == network


@pytest.mark.parametrize(
    ("given", "target", "options", "sources"),
    [
        ((), "tcp://10.0.0.1:443", {}, ("",)),
        (("route",), "tcp://10.0.0.1:443", {}, ("",)),
        (("10.9.0.1", "10.9.0.2"), "tcp://10.0.0.1:443", {}, ("10.9.0.1", "10.9.0.2")),
        (("10.9.0.1", "fd00::1"), "tcp://10.0.0.1:443", {}, ("10.9.0.1",)),
        (("10.9.0.1", "fd00::1"), "tcp://[2001:db8::1]:443", {}, ("fd00::1",)),
        (("10.9.0.1",), "tcp://[2001:db8::1]:443", {}, ("",)),
        (("10.9.0.1",), "tcp://a.example:443", {}, ("10.9.0.1",)),
        (("10.9.0.1",), "tcp://10.0.0.1:443", {"source": "10.9.0.7"}, ("10.9.0.7",)),
        (("10.9.0.1", "fd00::1"), "tcp://a.example:443", {"via": "socks5://[2001:db8::9]:1080"}, ("fd00::1",)),
        (
            ("10.9.0.1", "fd00::1"),
            "tcp://a.example:443",
            {"via": "https://bob:x@10.0.0.9:3128?ca=/etc/p.pem,socks5://[2001:db8::9]:1080"},
            ("10.9.0.1",),
        ),
        (
            ("10.9.0.1", "fd00::1"),
            "tcp://10.0.0.1:443",
            {"via": "https://[2001:db8::9]:3128/?sni=a.example"},
            ("fd00::1",),
        ),
        (("10.9.0.1", "fd00::1"), "http://10.0.0.1:80?a=/b", {}, ("10.9.0.1",)),
        (("10.9.0.1", "fd00::1"), "tcp://10.0.0.1:443", {"via": "no proxy"}, ("10.9.0.1", "fd00::1")),
        (("auto",), "no url", {}, ("",)),
    ],
)
def test_attempts_leave_from_the_addresses_of_their_family(
    given: tuple[str, ...], target: str, options: dict[str, str], sources: tuple[str, ...]
) -> None:
    assert Sources(given).of(line("l", target, **options)) == sources


def test_half_of_all_direct_connects_leave_from_a_port_that_is_chosen_at_bind() -> None:
    plan = line("l", "tcp://10.0.0.1:443")
    leaving = Leaving(("10.9.0.1", "10.9.0.2"))

    jobs = jobs_of(plan, plan.probes[0], endpoint_of(plan), leaving, token=7)
    echoes = jobs_of(plan, probe(Kind.ICMP), endpoint_of(plan), leaving, token=7)
    proxied = line("l", "tcp://10.0.0.1:443", via="socks5://10.0.0.9:1080")
    hops = jobs_of(proxied, proxied.probes[0], endpoint_of(proxied), leaving, token=7)

    assert [(job.source, job.port) for job in jobs] == [
        ("10.9.0.1", 0),
        ("10.9.0.2", 0),
        ("10.9.0.1", EARLY),
        ("10.9.0.2", EARLY),
    ]
    assert [(job.source, job.port) for job in echoes] == [("10.9.0.1", 0), ("10.9.0.2", 0)]
    assert {job.port for job in hops} == {0}


def outflow(close: Close, share: float, target: str = "tcp://10.0.0.1:443") -> tuple[Outflow, Leaving]:
    """All lines to one target together hold `share` of the ports toward it."""
    plan = line("l", target, probe(burst=1, every=1_000))
    plan_rate = 1_000 / plan.probes[0].suspect_interval_ms
    found = Outflow(close)
    for _ in range(round(share * budget.ports().rate / plan_rate)):
        found.add(plan)
    return found, found.leaving(plan, ("",))


@pytest.mark.parametrize(
    ("close", "share", "leaving"),
    [
        (Close.AUTO, 0.5, Leaving()),
        (Close.AUTO, 0.7, Leaving(reset=True)),
        (Close.FIN, 0.9, Leaving()),
        (Close.FIN, 1.1, Leaving(full=True)),
        (Close.RST, 0.0, Leaving(reset=True)),
    ],
)
def test_connections_are_closed_by_rst_where_fin_would_use_up_the_ports(
    close: Close, share: float, leaving: Leaving
) -> None:
    assert outflow(close, share)[1] == leaving


def test_two_addresses_have_twice_the_ports() -> None:
    found, alone = outflow(Close.AUTO, 0.7)

    assert alone.reset
    assert not found.leaving(line("l", "tcp://10.0.0.1:443"), ("10.9.0.1", "10.9.0.2")).reset


def test_what_goes_elsewhere_does_not_count_and_what_needs_no_port_neither() -> None:
    found, _ = outflow(Close.AUTO, 0.7)

    assert not found.leaving(line("m", "tcp://10.0.0.2:443"), ("",)).reset
    echoes = Outflow(Close.AUTO)
    for _ in range(100_000):
        echoes.add(line("l", "icmp://10.0.0.1", probe(Kind.ICMP)))
    assert not echoes.leaving(line("l", "icmp://10.0.0.1", probe(Kind.ICMP)), ("",)).reset


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://10.0.0.1/a", "tcp://10.0.0.1:443"),
        ("http://10.0.0.1", "tcp://10.0.0.1:80"),
        ("https://[fd00::1]/", "tls://[fd00::1]:443"),
        ("http://10.0.0.1?a=/b", "tcp://10.0.0.1:80"),
    ],
)
def test_kinds_that_connect_to_one_port_share_its_budget(one: str, other: str) -> None:
    assert outflow(Close.AUTO, 0.7, one)[0].leaving(line("m", other), ("",)).reset


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://10.0.0.9:3128?ca=/etc/p.pem", "tcp://10.0.0.9:3128"),
        ("https://bob:x@[2001:db8::9]:3128?verify=no", "tcp://[2001:db8::9]:3128"),
        ("socks5://10.0.0.9:1080,socks5://10.0.0.8:1080", "tcp://10.0.0.9:1080"),
    ],
)
def test_connects_to_a_proxy_share_the_ports_toward_it_with_all_that_goes_there(one: str, other: str) -> None:
    direct, proxied = line("l", other), line("m", "tcp://10.0.0.1:443", via=one)

    found, _ = outflow(Close.AUTO, 0.7, other)

    assert found.leaving(direct, ("",)).reset
    assert found.leaving(proxied, ("",)).reset


def test_a_round_takes_from_its_targets_network_and_from_each_address_its_share() -> None:
    plan = line("l", "tcp://10.0.0.1:443", probe(burst=5))
    leaving = Leaving(("10.9.0.1", "10.9.0.2"))
    job = jobs_of(plan, plan.probes[0], endpoint_of(plan), leaving, token=1)[0]

    claims = claims_of(job, plan.probes[0], leaving, LIMITS)

    assert [tuple(claim) for claim in claims] == [
        ("network 10.0.0.0/24", 1_000, 5),
        ("source 10.9.0.1", 5_000, 2.5),
        ("source 10.9.0.2", 5_000, 2.5),
    ]


@pytest.mark.parametrize(
    ("target", "via", "address", "keys"),
    [
        ("tcp://a.example:443", "direct", "", ["network a.example", "source of the route"]),
        ("tcp://a.example:443", "direct", "192.0.2.7", ["network 192.0.2.0/24", "source of the route"]),
        ("tcp://10.0.0.1:443", "socks5://10.5.0.9:1080", "", ["network 10.5.0.0/24", "source of the route"]),
        ("tcp://127.0.0.1:443", "direct", "", []),
    ],
    ids=["a name", "a name that is known", "the first proxy", "loopback"],
)
def test_the_network_is_that_of_whom_packets_go_to(target: str, via: str, address: str, keys: list[str]) -> None:
    plan = line("l", target, via=via)
    job = jobs_of(plan, plan.probes[0], endpoint_of(plan), Leaving(), token=1)[0]

    assert [claim.key for claim in claims_of(job, plan.probes[0], Leaving(), LIMITS, address=address)] == keys
