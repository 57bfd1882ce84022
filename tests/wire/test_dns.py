from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import LocalProtocolError, RemoteProtocolError
from reachline.wire import dns

_HEADER = 12
QUERY, QUESTION = dns.query(7, "a.test", "A")


def message(*records: bytes, flags: int = 0x8180, question: bytes = QUESTION, count: int | None = None) -> bytes:
    header = struct.pack("!HHHHHH", 7, flags, 1 if question else 0, len(records) if count is None else count, 0, 0)
    return header + question + b"".join(records)


def record(kind: int, data: bytes, name: bytes = b"\xc0\x0c") -> bytes:
    return name + struct.pack("!HHIH", kind, 1, 60, len(data)) + data


def test_a_query_is_what_the_rfc_says():
    assert QUERY == b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01"
    assert QUERY.endswith(QUESTION)
    assert dns.query(7, "a.test", "A", recurse=False)[0][2] == 0


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (1, bytes([10, 0, 0, 1]), "10.0.0.1"),
        (28, ipaddress.IPv6Address("2001:db8::1").packed, "2001:db8::1"),
        (5, b"\x03WWW\xc0\x0c", "www.a.test"),
        (2, b"\x02ns\x00", "ns"),
        (15, b"\x00\x0a\x02mx\xc0\x0c", "10 mx.a.test"),
        (33, b"\x00\x01\x00\x02\x1f\x90\x01s\x00", "1 2 8080 s"),
        (16, b"\x03abc\x02de", "abcde"),
        (99, b"\x01\x02", "0102"),
    ],
)
def test_records_are_text_as_zone_files_write_them(kind, data, text):
    answers = dns.decode(message(record(kind, data))).answers

    assert [answer.data for answer in answers] == [text]
    assert answers[0].name == "a.test"


def test_the_question_comes_back_as_it_was_sent():
    found = dns.decode(message(record(1, b"\x0a\0\0\1"), flags=0x8183))

    assert (found.number, found.rcode, found.truncated, found.question) == (7, 3, False, QUESTION)
    assert dns.rcode_name(found.rcode) == "NXDOMAIN"
    assert dns.rcode_name(99) == "RCODE99"


def test_a_truncated_message_has_no_answers():
    found = dns.decode(message(record(1, b"\x0a\0\0\1"), flags=0x8380))

    assert found.truncated
    assert found.answers == ()


def chained(count: int) -> bytes:
    """A message with a name that goes back over so many pointers, one after the other."""
    begin = len(message(record(99, b"")))
    places = [_HEADER, *range(begin, begin + 2 * count, 2)]
    *pointers, last = ((0xC000 | place).to_bytes(2, "big") for place in places[:count])
    return message(record(99, b"".join(pointers)), record(1, b"\x0a\0\0\1", name=last))


def test_a_name_of_some_pointers_is_read_and_one_of_thousands_is_not_followed():
    assert [answer.name for answer in dns.decode(chained(32)).answers] == ["a.test", "a.test"]
    for count in (33, 8_000):
        with pytest.raises(RemoteProtocolError, match="name of more than 32 pointers"):
            dns.decode(chained(count))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"short", "header cut short"),
        (QUERY, "query where a response belongs"),
        (message(record(1, b"\x0a\0\0")), "address of 3 bytes"),
        (message(b"\xc0\x0c\x00\x01"), "record cut short"),
        (message(record(1, b"\x0a\0\0\1")[:-1]), "record data cut short"),
        (message(record(5, b"\xc0\xff")), "points forward"),
        (message(record(15, b"\x00")), "record data cut short"),
        (message(record(16, b"\x09ab")), "text cut short"),
        (message(b"\x80abc"), "malformed"),
        (message(count=1), "name cut short"),
        (b"\0\7\x81\x80\0\2\0\0\0\0\0\0", "more than one question"),
        (message(question=QUESTION[:-3]), "question cut short"),
    ],
)
def test_broken_messages_are_named(data, says):
    with pytest.raises(RemoteProtocolError, match=says):
        dns.decode(data)


def test_a_name_of_pointers_to_itself_ends():
    looped = message(b"\xc0\x1a" + struct.pack("!HHIH", 1, 1, 60, 0))

    with pytest.raises(RemoteProtocolError):
        dns.decode(looped)


@pytest.mark.parametrize("name", ["a" * 64 + ".test", "a..test", ".".join(["abcdefgh"] * 30)])
def test_names_that_cannot_be_are_our_own_mistake(name):
    with pytest.raises(LocalProtocolError):
        dns.name_to_wire(name)


def test_the_root_and_international_names_are_names():
    assert dns.name_to_wire(".") == b"\0"
    assert dns.name_to_wire("bücher.test.") == b"\x0dxn--bcher-kva\x04test\0"


@given(st.binary(max_size=300))
def test_garbage_is_refused_never_more(blob):
    try:
        dns.decode(blob)
    except RemoteProtocolError:
        return


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=8))
def test_an_answer_with_wrong_bytes_is_read_or_refused(changes):
    blob = bytearray(message(record(5, b"\x03www\xc0\x0c"), record(1, b"\x0a\0\0\1"), record(16, b"\x02hi")))
    for at, byte in changes:
        blob[at % len(blob)] = byte
    try:
        found = dns.decode(bytes(blob))
    except RemoteProtocolError:
        return
    assert len(found.answers) <= 256
