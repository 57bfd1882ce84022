from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from reachline.doors.outbounds import Outbound, hops, without_password
from reachline.talk.hop import Scheme


def refusal(text: str) -> str:
    with pytest.raises(PydanticCustomError) as caught:
        hops(text)
    assert caught.value.context is not None
    return f"{caught.value.context['rule']}; {caught.value.context['hint']}"


def test_direct_has_no_hops() -> None:
    assert hops("direct") == ()


def test_a_hop_is_what_its_url_says() -> None:
    [hop] = hops("socks5h://bob:p%40ss%2C@proxy.example:1080")

    assert (hop.scheme, hop.endpoint.host, hop.endpoint.port, hop.endpoint.family) == (
        Scheme.SOCKS5H,
        "proxy.example",
        1080,
        0,
    )
    assert (hop.user, hop.password) == ("bob", "p@ss,")
    assert hop.secure is None
    assert str(hop) == "socks5h://proxy.example:1080"
    assert "p@ss" not in repr(hop)


def test_a_chain_goes_first_hop_first() -> None:
    chain = hops("socks5://10.0.0.1:1, http://b.example:2,https://[2001:db8::1]:3")

    assert [str(hop) for hop in chain] == ["socks5://10.0.0.1:1", "http://b.example:2", "https://[2001:db8::1]:3"]
    assert [hop.endpoint.family for hop in chain] == [4, 0, 6]
    assert [hop.resolves_here for hop in chain] == [True, False, False]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ("proxy", "proxy", True, "")),
        ("?verify=no", ("proxy", "proxy", False, "")),
        ("?ca=/etc/proxy.pem&sni=front.example", ("proxy", "front.example", True, "/etc/proxy.pem")),
        ("?ca=/etc/a+b%20c.pem", ("proxy", "proxy", True, "/etc/a+b c.pem")),
    ],
)
def test_tls_to_a_proxy_verifies_unless_told_otherwise(query: str, expected: tuple[object, ...]) -> None:
    secure = hops(f"https://proxy:3128{query}")[0].secure

    assert secure is not None
    assert (secure.name, secure.server_name, secure.verify, secure.ca) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must be a URL"),
        ("socks5://h", "needs the proxy's port; did you mean socks5://h:1080?"),
        ("http://u:geheim@h", "did you mean http://u@h:3128?"),
        ("socks4://h:1", "SOCKS4 is not spoken"),
        ("socks://h:1", "socks5h:// hands names to the proxy"),
        ("ftp://h:1", "must be direct, or begin with one of socks5://, socks5h://, http://, https://"),
        ("h:1080", "must be a URL with a scheme and a host"),
        ("http://h:1/path", "takes no path"),
        ("http://h:1?verify=no", "takes no query; sni, ca and verify belong to https:// proxies"),
        ("https://h:1?verifi=no", "unknown option 'verifi'; known here: sni, ca, verify"),
        ("https://h:1?verify=maybe", "verify=yes or verify=no"),
        ("https://h:1?verify=no&verify=yes", "says an option twice"),
        ("https://h:1?sni=.a", "must be a DNS name or an address"),
        ("https://h:1?ca=a%00b", "must be the path of a file"),
        ("socks5://u:geheim@h geheim@h:1", "must be ASCII without spaces"),
        ("socks5://h:99999", "must have a port of 1…65535"),
        ("socks5://u:geheim@h:0", "must have a port of 1…65535; port 0 in socks5://***@h:0 reaches nothing"),
        ("socks5://:geheim@h:1", "has a password without a user"),
        ("http://a%3Ab:geheim@h:1", "has a user with a colon"),
        ("http://a%0d:geheim@h:1", "characters that cannot be sent"),
        ("socks5://u:" + "x" * 256 + "@h:1", "more than 255 bytes"),
        ("socks5://a:1,direct", "names direct in a chain"),
        ("socks5://a:1,,http://b:1", "must be a URL"),
        (",".join(["socks5://a:1"] * 9), "goes through 9 proxies, at most 8"),
    ],
)
def test_what_is_no_way_out_is_told_in_words_and_without_its_password(text: str, told: str) -> None:
    assert told in refusal(text)
    assert "geheim" not in refusal(text)


@given(st.text(max_size=60))
def test_any_text_is_a_way_out_or_is_refused_in_words(text: str) -> None:
    try:
        chain = hops(text)
    except PydanticCustomError:
        return

    assert text == "direct" or all(hop.endpoint.host and hop.endpoint.port for hop in chain)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("direct", "direct"),
        ("socks5://10.0.0.9:1080", "socks5://10.0.0.9:1080"),
        ("http://proxy:3128", "http://proxy:3128"),
        ("socks5://u:${env:PW}@p:1", "socks5://u:${env:PW}@p:1"),
        ("socks5://u:${file:/run/a,b}@p:1", "socks5://u:${file:/run/a,b}@p:1"),
        (["socks5://a:1", "http://b:2"], "socks5://a:1,http://b:2"),
    ],
)
def test_a_document_has_one_url_or_a_list_with_references_in_it(written: object, text: str) -> None:
    assert TypeAdapter(Outbound).validate_python(written) == text


@pytest.mark.parametrize("written", [[], [1], ["socks5://a:1", None], 5, {"a": 1}, "socks5://h"])
def test_what_is_no_way_out_is_refused_in_a_document(written: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Outbound).validate_python(written)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("direct", "direct"),
        ("socks5://10.0.0.9:1080", "socks5://10.0.0.9:1080"),
        ("socks5://bob:geheim@10.0.0.9:1080", "socks5://bob@10.0.0.9:1080"),
        ("socks5://${env:U}:${env:P}@10.0.0.9:1080", "socks5://10.0.0.9:1080"),
        ("socks5://bob:geheim@a:1,http://eve:geheim@b:2", "socks5://bob@a:1,http://eve@b:2"),
        ("socks5://u:${file:/run/geheim,1}@a:1,http://b:2", "socks5://a:1,http://b:2"),
        ("https://bob:geheim@p:3128?ca=/etc/ca.pem", "https://bob@p:3128"),
        ("socks5://bob:ge[heim@a:1", "***"),
        ("bob:geheim@a:1", "***@a:1"),
        ("socks5://bob:gehe,im@a:1", "socks5://***@a:1"),
        ("socks5://bob:geh@e/im@a:1", "socks5://***@a:1"),
        ("socks5://a:1,eve:geheim@b:2", "socks5://***@b:2"),
        ("socks5://bob:geh@ geheim@a:1", "socks5://***@a:1"),
        ("socks5://bob:geheim,socks5://x@a:1", "***,socks5://x@a:1"),
    ],
)
def test_a_way_out_is_shown_without_its_passwords(text: str, expected: str) -> None:
    assert without_password(text) == expected
