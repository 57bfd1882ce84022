"""A look at a proxy's answer confirms only what the hop's whole talk would call a yes; what is said is what the talk would say."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reachline.doors.outbounds import hops
from reachline.talk.passing import Exchange, exchanges

PLACE = ("line.test", 443)
VIAS = (
    "socks5h://a.test:1080",
    "socks5h://me:secret@a.test:1080",
    "http://a.test:3128",
    "http://me:secret@a.test:3128",
)
SOCKS_YES = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x04\x38"
HTTP_YES = b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n"


def made(via: str) -> tuple[Exchange, ...]:
    found = exchanges(hops(via), [PLACE] * via.count("://"))
    assert found is not None
    return found


def answers() -> st.SearchStrategy[bytes]:
    """Those that proxies give, with some bytes of them others, more or less."""
    heads = st.sampled_from(
        [SOCKS_YES, HTTP_YES, b"\x05\x00\x00\x03\x04line\x00\x50", b"\x05\x00\x00\x04" + b"\0" * 18]
    )
    near = st.builds(
        lambda head, at, byte, tail, end: (head[:at] + byte + head[at + len(byte) :] + tail)[: len(head) + end],
        heads, st.integers(0, 30), st.binary(max_size=2), st.binary(max_size=3), st.integers(-4, 3),
    )  # fmt: skip
    return heads | near | st.binary(max_size=40)


@pytest.mark.parametrize("via", VIAS)
def test_what_is_said_is_what_the_talk_says(via: str) -> None:
    (hop,) = hops(via)
    talk = hop.talk(*PLACE)

    found = made(via)

    assert found[0].request == talk.begin()
    for one, following in pairwise(found):
        assert one.is_yes(one.answer)
        assert talk.received(one.answer) == following.request
    assert talk.asked


@given(st.sampled_from(VIAS), answers())
@example(VIAS[0], SOCKS_YES)
@example(VIAS[0], SOCKS_YES + b"x")
@example(VIAS[0], SOCKS_YES[:3] + b"\x09" + SOCKS_YES[4:])
@example(VIAS[2], HTTP_YES)
@example(VIAS[2], HTTP_YES + b"x")
@example(VIAS[2], b"HTTP/1.1 199 OK\r\n\r\n")
@example(VIAS[2], b"HTTP/1.1 300 OK\r\n\r\n")
def test_a_yes_at_first_sight_is_one_to_the_whole_talk(via: str, data: bytes) -> None:
    (hop,) = hops(via)
    *before, last = made(via)
    if not last.is_yes(data):
        return
    talk = hop.talk(*PLACE)
    talk.begin()
    for each in before:
        talk.received(each.answer)

    assert talk.received(data) is None
    assert (talk.closed(), talk.rest) == (None, b"")


@pytest.mark.parametrize("via", VIAS)
def test_the_plain_yes_is_seen(via: str) -> None:
    assert made(via)[-1].is_yes(HTTP_YES if via.startswith("http") else SOCKS_YES)


def test_each_hop_is_asked_for_its_own_place_in_turn() -> None:
    found = exchanges(hops("socks5h://a.test:1080,http://b.test:3128"), [("b.test", 3128), PLACE])

    assert found is not None
    assert [each.hop for each in found] == [0, 0, 1]
    assert b"b.test" in found[1].request
    assert found[2].request.startswith(b"CONNECT line.test:443 ")


@pytest.mark.parametrize("via", ["https://a.test:3128", "socks5h://b.test:1080,https://a.test:3128"])
def test_a_proxy_inside_tls_is_left_to_the_whole_talk(via: str) -> None:
    assert exchanges(hops(via), [PLACE] * via.count("://")) is None


def test_a_name_that_socks_cannot_say_is_left_to_the_whole_talk() -> None:
    assert exchanges(hops(VIAS[0]), [("x" * 300, 80)]) is None
