from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline import talk
from reachline.doors.addresses import parse_target
from reachline.model import Failure, Kind

PLAIN = "http://a.example/healthz"


def http_talk(**options):
    endpoint = parse_target(PLAIN)
    return talk.build(Kind.HTTP, endpoint, options).talk(endpoint, 1)


def dns_talk(**options):
    endpoint = parse_target("dns://10.0.0.2/a.example")
    return talk.build(Kind.DNS, endpoint, options).talk(endpoint, 0x12345678)


def heard(conversation, *pieces: bytes):
    """The verdict after these pieces, then the peer closes."""
    for piece in pieces:
        if conversation.received(piece) is None:
            break
    return conversation.closed()


def test_http_is_over_as_soon_as_the_response_is_whole():
    conversation = http_talk()

    assert conversation.begin().startswith(b"GET /healthz HTTP/1.1\r\nHost: a.example\r\n")
    assert conversation.received(b"HTTP/1.1 200 OK\r\nContent-Len") == b""
    assert conversation.received(b"gth: 2\r\n\r\no") == b""
    assert conversation.received(b"k") is None
    assert (conversation.closed(), conversation.status, conversation.note) == (None, 200, "")


@given(st.integers(0, 40))
def test_a_needle_is_found_wherever_the_body_is_cut(cut):
    body = b"x" * 15 + b"needle" + b"y" * 19
    conversation = http_talk(body="needle")

    verdict = heard(conversation, b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n", body[:cut], body[cut:])

    assert verdict is None


def test_a_talk_does_not_read_beyond_its_limit():
    conversation = http_talk(limit=10)

    assert conversation.received(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 9) == b""
    assert conversation.received(b"x") is None
    assert conversation.closed() is None


@given(st.lists(st.binary(max_size=120), max_size=10), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n"]))
def test_http_survives_anything(pieces, prefix):
    conversation = http_talk(body="x", limit=64)

    verdict = heard(conversation, prefix, *pieces)

    assert verdict is None or verdict in {Failure.PROTOCOL, Failure.STATUS, Failure.RESET}
    assert (verdict is None) == (conversation.note == "")


def dns_reply(query: bytes, *, flags: int = 0x8180) -> bytes:
    return (
        query[:2] + struct.pack("!HHHHH", flags, 1, 1, 0, 0) + query[12:] + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x0a\0\0\1"
    )


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"min_ttl": 60, "max_ttl": 60}, ""),
        ({"min_ttl": 61}, "TTL 60, at least 61 is expected"),
        ({"max_ttl": 59}, "TTL 60, at most 59 is expected"),
    ],
)
def test_dns_answers_are_good_for_as_long_as_is_expected(options, note):
    conversation = dns_talk(**options)

    assert conversation.received(dns_reply(conversation.begin())) is None
    assert (conversation.closed(), conversation.note) == (Failure.STATUS if note else None, note)


def test_dns_takes_only_the_answer_to_its_own_question():
    conversation = dns_talk(expect="10.0.0.1")
    query = conversation.begin()
    assert query[:2] == b"\x56\x78"
    good = dns_reply(query)

    assert conversation.received(b"\0\0" + good[2:]) == b""
    assert conversation.received(good.replace(b"example", b"exbmple")) == b""
    assert conversation.received(good) is None
    assert conversation.closed() is None


def test_dns_that_sends_the_query_back_broke_protocol():
    conversation = dns_talk()

    assert conversation.received(conversation.begin()) is None
    assert (conversation.closed(), conversation.note) == (Failure.PROTOCOL, "DNS query where a response belongs")


def test_dns_letters_may_change_their_case():
    conversation = dns_talk(expect="10.0.0.1")
    conversation.begin()

    assert conversation.received(dns_reply(conversation.begin()).replace(b"example", b"EXAMPLE")) is None
    assert conversation.closed() is None


def test_dns_over_a_stream_is_cut_anywhere():
    inner = dns_talk(expect="10.0.0.1")
    reply = dns_reply(inner.begin())
    framed = len(reply).to_bytes(2, "big") + reply
    for cut in range(len(framed)):
        conversation = inner.over_stream()
        assert conversation.begin() == len(inner.begin()).to_bytes(2, "big") + inner.begin()
        assert conversation.received(framed[:cut]) == b""
        assert conversation.received(framed[cut:]) is None
        assert (conversation.closed(), conversation.status) == (None, 0)


def test_dns_over_a_stream_that_never_answers_is_not_heard_for_ever():
    conversation = dns_talk().over_stream()

    assert conversation.received(b"\0\0" * 16) == b""
    assert conversation.received(b"\0\0") is None
    assert conversation.closed() is Failure.PROTOCOL
    assert conversation.note == "more than 16 messages, none of them the answer"


def test_dns_that_is_closed_before_an_answer_broke_protocol():
    conversation = dns_talk().over_stream()

    assert conversation.closed() is Failure.PROTOCOL
    assert conversation.note == "closed without an answer"


@given(st.lists(st.binary(max_size=80), max_size=8), st.booleans())
def test_dns_survives_anything(pieces, stream):
    conversation = dns_talk()
    conversation = conversation.over_stream() if stream else conversation

    verdict = heard(conversation, *pieces, *(b"\x56\x78" + piece for piece in pieces))

    assert verdict is None or verdict in {Failure.PROTOCOL, Failure.STATUS}


@pytest.mark.parametrize("kind", [Kind.TCP, Kind.TLS, Kind.ICMP])
def test_some_kinds_have_nothing_to_say(kind):
    endpoint = parse_target("tls://a.example")

    assert talk.build(kind, endpoint, {}).talk(endpoint, 1) is None
