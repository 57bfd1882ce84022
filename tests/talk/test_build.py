from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from reachline import talk
from reachline.doors.addresses import SCHEMES, parse_target
from reachline.errors import ConfigError
from reachline.model import Kind
from reachline.talk import glance
from reachline.talk.dns import DnsProbe
from reachline.talk.http import HttpProbe
from reachline.talk.icmp import IcmpProbe


def built(kind: str, target: str, **options):
    return talk.build(Kind(kind), parse_target(target), options)


def problems(kind: str, target: str, **options) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        built(kind, target, **options)
    return [str(problem) for problem in caught.value.problems]


def test_every_kind_that_sends_has_its_probe():
    assert set(talk.TABLE) <= set(Kind) - {Kind.PASSIVE}


@pytest.mark.parametrize("kind", list(talk.TABLE))
def test_every_kind_builds_for_an_https_line_without_options(kind):
    probe = talk.build(kind, parse_target("https://a.example/healthz"), {})

    assert probe.where(parse_target("https://a.example/healthz")) is not None


@pytest.mark.parametrize("kind", list(talk.TABLE))
def test_an_unknown_option_is_refused_with_what_was_meant(kind):
    assert "is not an option of this probe" in problems(kind.value, "https://a.example/", nonsense=1)[0]


def test_all_mistakes_are_told_at_once():
    told = problems("http", "https://a.example/", pth="/x", expect="600", limit=-1, verify="maybe", method="GE T")

    assert len(told) == 5
    assert any("pth" in line and "did you mean path?" in line for line in told)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"expect": "abc"}, "statuses or ranges"),
        ({"expect": "300-200"}, "ranges that go up"),
        ({"expect": ""}, "at least one status"),
        ({"path": "healthz"}, "begins with /"),
        ({"path": "/a b"}, "without spaces"),
        ({"host": "a b"}, "host name"),
        ({"headers": "no colon"}, "lines of `Name: value`"),
        ({"headers": "Host: x"}, "must not set Host"),
        ({"headers": "X: a\rb"}, "lines of `Name: value`"),
        ({"method": "CONNECT"}, "HTTP method"),
        ({"tls": "yes"}, "true or false"),
        ({"body": True}, "must be a text"),
        ({"limit": 1.5}, "whole number"),
    ],
)
def test_http_options_have_rules(options, rule):
    assert any(rule in line for line in problems("http", "http://a.example/", **options))


@pytest.mark.parametrize(
    ("target", "options", "secure", "host"),
    [
        ("http://a.example/", {}, False, "a.example"),
        ("http://a.example:8080/", {}, False, "a.example:8080"),
        ("https://a.example/", {}, True, "a.example"),
        ("https://a.example:8443/", {}, True, "a.example:8443"),
        ("tcp://10.0.0.1:443", {}, True, "10.0.0.1"),
        ("tcp://10.0.0.1:80", {}, False, "10.0.0.1"),
        ("tcp://10.0.0.1:443", {"tls": False}, False, "10.0.0.1:443"),
        ("tcp://[2001:db8::1]:8080", {}, False, "[2001:db8::1]:8080"),
    ],
)
def test_http_speaks_tls_where_scheme_port_or_option_say_so(target, options, secure, host):
    probe = built("http", target, **options)

    assert isinstance(probe, HttpProbe)
    assert (probe.secure is not None) == secure
    assert f"\r\nHost: {host}\r\n".encode() in probe.request


def test_a_port_is_needed_to_connect():
    assert "names no port" in problems("tcp", "icmp://10.0.0.1")[0]


def test_tls_options_make_a_profile():
    probe = built("tls", "tls://a.example", sni="b.example", alpn="h2, http/1.1", verify=False)

    assert probe.secure.server_name == "b.example"
    assert probe.secure.alpn == ("h2", "http/1.1")
    assert probe.secure.verify is False


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"sni": "a\0b"}, "must be a DNS name or an address"),
        ({"sni": ".a.example"}, "must be a DNS name or an address"),
        ({"sni": "a..example"}, "must be a DNS name or an address"),
        ({"sni": "a" * 64}, "must be a DNS name or an address"),
        ({"ca": "/etc/a\0.pem"}, "must be the path of a file"),
        ({"ca": "/" + "a" * 1_000}, "must be the path of a file"),
    ],
)
def test_what_a_handshake_cannot_take_is_refused_before_it(options, rule):
    assert rule in problems("tls", "tls://a.example", **options)[0]


@pytest.mark.parametrize(
    ("target", "options"),
    [("tls://a.example.", {}), ("tls://10.0.0.1", {"sni": "a.example."}), ("tls://b.example", {"sni": "a.example"})],
)
def test_the_dot_of_a_full_name_is_not_said_in_a_handshake(target, options):
    assert built("tls", target, **options).secure.server_name == "a.example"


@pytest.mark.parametrize(
    ("target", "options", "server", "name", "kind"),
    [
        ("dns://10.0.0.2/a.example", {}, "dns://10.0.0.2:53/a.example", "a.example", "A"),
        ("dns://10.0.0.2//[:]a.example?type=ns", {}, "dns://10.0.0.2:53//[:]a.example?type=ns", "[:]a.example", "NS"),
        (
            "dns://[2001:db8::1]:5353/a.example?type=mx",
            {},
            "dns://[2001:db8::1]:5353/a.example?type=mx",
            "a.example",
            "MX",
        ),
        ("https://a.example/", {}, "dns://:53", "a.example", "A"),
        ("https://a.example/", {"server": "10.0.0.2"}, "dns://10.0.0.2:53", "a.example", "A"),
        ("https://a.example/", {"server": "2001:db8::2"}, "dns://[2001:db8::2]:53", "a.example", "A"),
        ("tcp://10.0.0.1:1", {"name": "x.example", "type": "aaaa"}, "dns://:53", "x.example", "AAAA"),
    ],
)
def test_dns_knows_whom_it_asks_for_what(target, options, server, name, kind):
    probe = built("dns", target, **options)

    assert isinstance(probe, DnsProbe)
    assert str(probe.where(parse_target(target))) == server
    assert (probe.name, probe.type) == (name, kind)


@pytest.mark.parametrize(
    ("target", "options", "rule"),
    [
        ("dns://10.0.0.2", {}, "is needed: what to ask for"),
        ("tcp://10.0.0.1:1", {}, "is needed: what to ask for"),
        ("dns://10.0.0.2/a.example", {"type": "BOGUS"}, "must be one of A, NS"),
        ("dns://10.0.0.2/a.example?type=bogus", {}, "must be one of A, NS"),
        ("dns://10.0.0.2/a.example", {"rcode": "FINE"}, "must be one of NOERROR"),
        ("https://a.example/", {"server": "http://x"}, "name server's address"),
        ("https://a.example/", {"server": "10.0.0.1:99999"}, "name server's address"),
        ("https://a.example/", {"name": "a" * 70}, "must be a DNS name"),
        ("dns://10.0.0.2/" + "a" * 70, {}, "must be a DNS name"),
        ("dns://10.0.0.2/a..b", {}, "must be a DNS name"),
        ("dns://10.0.0.2/a.example", {"min_ttl": 2**31}, "whole number from 0 to 2147483647"),
        ("dns://10.0.0.2/a.example", {"min_ttl": 60, "max_ttl": 59}, "must not be above max_ttl"),
    ],
)
def test_dns_options_have_rules(target, options, rule):
    assert any(rule in line for line in problems("dns", target, **options))


def test_dns_expects_addresses_however_they_are_written():
    assert built("dns", "dns://h/a", expect="2001:DB8:0::1, A.Example., 10.0.0.1").expect == (
        "2001:db8::1",
        "a.example",
        "10.0.0.1",
    )


def test_icmp_has_a_size():
    probe = built("icmp", "icmp://10.0.0.1", size=1_000)

    assert isinstance(probe, IcmpProbe)
    assert probe.size == 1_000
    assert "whole number from 8 to 65000" in problems("icmp", "icmp://10.0.0.1", size=7)[0]


@given(
    scheme=st.sampled_from(sorted(SCHEMES)),
    rest=st.text(st.sampled_from("ab.1:/?&=[]%@#,-_~{}\"'$ü"), max_size=30) | st.just("a" * 70),
    host=st.sampled_from(["", "h", "10.0.0.1", "[::1]", "a.b:7", "10.0.0.1:53"]),
)
def test_whatever_target_is_taken_can_be_asked(scheme, rest, host):
    """An agent's engine begins what it is given: a talk that cannot would take other lines' attempts with it."""
    for kind in SCHEMES[scheme].kinds:
        try:
            endpoint = parse_target(f"{scheme}://{host}/{rest}" if host else f"{scheme}://{rest}")
            probe = talk.build(kind, endpoint, {})
        except (PydanticCustomError, ConfigError):
            continue
        glance.of(probe, endpoint)
        if (conversation := probe.talk(endpoint, 1 << 63)) is not None:
            assert isinstance(conversation.begin(), bytes)
