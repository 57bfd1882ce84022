"""Names, targets, proxies and listen addresses: what is taken, what is refused and with which hint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from reachline.doors.addresses import (
    Bind,
    Name,
    derived_names,
    is_public,
    masked,
    parse_target,
)
from reachline.model import Endpoint

NAME = TypeAdapter(Name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://10.0.0.1:443", Endpoint(scheme="tcp", host="10.0.0.1", port=443, family=4)),
        ("tcp://[2001:db8::1]:443", Endpoint(scheme="tcp", host="2001:db8::1", port=443, family=6)),
        ("https://a.example/healthz", Endpoint(scheme="https", host="a.example", port=443, path="/healthz")),
        ("http://A.Example:8080", Endpoint(scheme="http", host="a.example", port=8080)),
        ("http://a.example/?q=1", Endpoint(scheme="http", host="a.example", port=80, path="/?q=1")),
        ("http://a.example?q=1", Endpoint(scheme="http", host="a.example", port=80, path="/?q=1")),
        ("tls://a.example", Endpoint(scheme="tls", host="a.example", port=443)),
        (
            "dns://10.0.0.53/pay.example",
            Endpoint(scheme="dns", host="10.0.0.53", port=53, path="/pay.example", family=4),
        ),
        ("icmp://a_b.example", Endpoint(scheme="icmp", host="a_b.example", port=0)),
        ("tcp://10.0.0.1:443/", Endpoint(scheme="tcp", host="10.0.0.1", port=443, family=4)),
        ("grpc://h:50051/shop.v1.Orders", Endpoint(scheme="grpc", host="h", port=50051, path="/shop.v1.Orders")),
        ("grpcs://h", Endpoint(scheme="grpcs", host="h", port=443)),
        ("redis://h/2", Endpoint(scheme="redis", host="h", port=6379, path="/2")),
        ("rediss://[::1]", Endpoint(scheme="rediss", host="::1", port=6379, family=6)),
        ("udp://h:7", Endpoint(scheme="udp", host="h", port=7)),
    ],
)
def test_a_target_is_a_url(text: str, expected: Endpoint) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize(
    "text", ["tcp://10.0.0.1:443", "tcp://[::1]:1", "https://a.example/x", "icmp://a", "dns://1.1.1.1/a.b"]
)
def test_an_endpoint_as_text_is_the_same_target_again(text: str) -> None:
    endpoint = parse_target(text)

    assert parse_target(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    ("text", "rule", "hint"),
    [
        ("10.0.0.1:443", "must be a URL", "tcp://10.0.0.1:443"),
        ("gopher://h:70", "must begin with one of tcp://", "any TCP service"),
        ("ping://h", "must begin with one of tcp://", "did you mean icmp://?"),
        ("tcp://h", "needs a port", "did you mean tcp://h:443?"),
        ("tcp://h:0", "must have a port of 1…65535", "reaches nothing"),
        ("tcp://h:70000", "must have a port of 1…65535", ""),
        ("grpc://h", "needs a port", "did you mean grpc://h:50051?"),
        ("udp://h", "needs a port", "did you mean udp://h:7?"),
        ("redis://u@h", "names a user without a password", "redis://user:password@host"),
        ("redis://${env:PW}", "must name a host", ""),
        ("udp://h:7/x", "takes no path", "http://"),
        ("icmp://h:7", "takes no port", "did you mean icmp://h?"),
        ("tcp://h:1/x", "takes no path", "http://"),
        ("http://u:p@h/", "takes no user", "headers"),
        ("http://h/#x", "takes no user, password or fragment", ""),
        ("http://h h/", "must be ASCII without spaces", ""),
        ("http://[::1/", "is no URL", ""),
        ("http://1.2.3/", "must name a host", ""),
        ("http://1.2.3.400/", "must name a host", ""),
        ("http://-a/", "must name a host", ""),
        ("tcp://2001:db8::1:443", "must", ""),
        ("http:///x", "must be a URL with a scheme and a host", ""),
        ("", "must be a URL", ""),
    ],
)
def test_a_broken_target_is_told_which_part_is_wrong(text: str, rule: str, hint: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        parse_target(text)

    assert caught.value.context is not None
    assert rule in caught.value.context["rule"]
    assert hint in caught.value.context["hint"]


@given(st.text(max_size=60))
def test_any_text_is_a_target_or_is_refused_in_words(text: str) -> None:
    try:
        endpoint = parse_target(text)
    except PydanticCustomError:
        return

    assert endpoint.host


@pytest.mark.parametrize(
    "text",
    [
        "socks5://bob:geheim@h:1",
        "bob:geheim@h:1",
        "socks5://bob:ge@he/im:geheim@h",
        "http://:geheim@h",
        "redis://bob:ge heim geheim@h",
        "redis://geheim@h",
        "redis://bob:x\n@ geheim@h",
    ],
)
def test_a_password_is_masked_in_broken_urls_too(text: str) -> None:
    assert "geheim" not in masked(text)
    assert masked(text).endswith(text.rpartition("@")[2])


@pytest.mark.parametrize("text", ["dns://a.test@10.0.0.2:5353", "tcp://10.0.0.1:443", "socks5://bob@h:1"])
def test_what_is_no_password_is_shown(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    ("bind", "expected"),
    [
        ("127.0.0.1:1", False),
        ("127.9.9.9:1", False),
        ("[::1]:1", False),
        ("localhost:1", False),
        ("unix:/run/x.sock", False),
        ("0.0.0.0:1", True),
        ("[::]:1", True),
        ("10.0.0.1:1", True),
        ("center.example:1", True),
    ],
)
def test_an_address_is_public_unless_it_is_surely_not(bind: str, expected: bool) -> None:
    assert TypeAdapter(Bind).validate_python(bind) == bind
    assert is_public(bind) is expected


@pytest.mark.parametrize("text", ["", "7680", "127.0.0.1", "h:99999", "http://h:1", "unix:", "h:1/x", "u@h:1"])
def test_a_broken_listen_address_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Bind).validate_python(text)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["https://a.example", "https://b.example"], ("a.example", "b.example")),
        (["http://h:1", "http://h:2", "http://h:3"], ("h", "h-2", "h-3")),
        (["http://h/a", "http://h/b", "http://h/c"], ("h", "h-2", "h-3")),
        (["http://127.0.0.1:7701", "http://127.0.0.1:7702"], ("127.0.0.1", "127.0.0.1-7702")),
        (["tcp://h:1", "tcp://h-2:9", "tcp://h:2"], ("h", "h-2", "h-3")),
        (["tcp://[2001:db8::1]:1", "icmp://[::1]"], ("2001-db8-1", "1")),
        (["nonsense", ""], ("line", "line-2")),
    ],
)
def test_lines_of_a_list_are_named_after_their_hosts(targets: list[str], expected: tuple[str, ...]) -> None:
    assert derived_names(targets) == expected


@given(
    st.lists(
        st.builds(
            "tcp://{}{}:{}".format, st.sampled_from("abc"), st.sampled_from(["", "-2", "-3", "-4"]), st.integers(1, 4)
        ),
        max_size=12,
    )
)
def test_derived_names_differ_and_stay_when_a_line_is_appended(targets: list[str]) -> None:
    names = derived_names(targets)

    assert len(set(names)) == len(targets)
    assert all(NAME.validate_python(name) for name in names)
    assert derived_names([*targets, "tcp://a:1"])[: len(names)] == names
