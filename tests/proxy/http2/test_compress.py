"""Header tables: what the hpack library writes is read, what is written the library reads, and what is broken is refused."""

from __future__ import annotations

import hpack
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.errors import LocalProtocolError
from reachline.proxy.http2.compress import Decoder, Encoder
from reachline.proxy.http2.events import Field
from reachline.proxy.http2.frames import BrokenError
from reachline.proxy.http2.huffman import HuffmanError, decoded

NAMES = st.sampled_from(
    [b":path", b":status", b"accept", b"x-a", b"x-request-id", b"cookie", b"date", b"content-length", b"x" * 200]
)
VALUES = st.sampled_from([b"", b"/", b"200", b"a", b"v" * 300, b"w" * 1_500]) | st.binary(max_size=40).filter(
    lambda value: not set(value) & set(b"\0\r\n")
)
LISTS = st.lists(st.lists(st.tuples(NAMES, VALUES), max_size=8), max_size=12)


def read(decoder: Decoder, raw: bytes) -> list[Field]:
    return decoder.decode(raw, most=1 << 20, count=1_000).fields


@given(LISTS, st.lists(st.sampled_from([0, 40, 100, 4_096]), max_size=12), st.booleans())
def test_what_the_library_writes_is_read(lists: list[list[Field]], sizes: list[int], huffman: bool) -> None:
    theirs, ours = hpack.Encoder(), Decoder(4_096)

    for at, fields in enumerate(lists):
        if at < len(sizes):
            theirs.header_table_size = sizes[at]
        assert read(ours, theirs.encode(fields, huffman=huffman)) == fields


@given(LISTS, st.lists(st.sampled_from([0, 40, 100, 4_096, 9_999]), max_size=12), st.sampled_from([0, 100, 4_096]))
def test_what_is_written_the_library_reads(lists: list[list[Field]], sizes: list[int], table: int) -> None:
    ours, theirs = Encoder(table), hpack.Decoder(max_header_list_size=1 << 20)

    for at, fields in enumerate(lists):
        if at < len(sizes):
            ours.resize(sizes[at])
        assert list(theirs.decode(ours.encode(fields), raw=True)) == fields
        assert theirs.header_table_size <= max(table, 0)


@given(st.binary(max_size=60))
def test_huffman_text_is_read_as_the_library_writes_it(text: bytes) -> None:
    coded = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text)

    assert decoded(coded) == text


@pytest.mark.parametrize("coded", [b"\x00", b"\x1f\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfc"])
def test_huffman_text_ends_by_up_to_seven_ones_and_nothing_else(coded: bytes) -> None:
    with pytest.raises(HuffmanError):
        decoded(coded)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80", b"\xbe", b"\xff\x80\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f", b"\x00\x05ab", b"\x40\x01a", b"\x00\x01a\x81\x00",
        b"\x3f\xe2\x1f", b"\x82\x20", b"\x40", b"\x7f", b"\x00\x01a\x7f\xff\xff\xff\x0f",
    ],
)  # fmt: skip
def test_a_broken_block_is_refused(raw: bytes) -> None:
    with pytest.raises(BrokenError):
        read(Decoder(4_096), raw)


def test_a_list_over_the_limit_is_read_to_its_end_and_not_kept() -> None:
    theirs, ours = hpack.Encoder(), Decoder(4_096)
    long = [(b"x-a", b"v" * 100)] * 50

    heard = ours.decode(theirs.encode(long), most=1_000, count=100)
    after = read(ours, theirs.encode(long[:1]))

    assert (heard.number, heard.size, len(heard.fields)) == (50, 50 * 103, 9)
    assert after == long[:1]


def test_what_is_said_again_is_said_in_a_byte() -> None:
    ours = Encoder(4_096)
    fields = [(b":status", b"200"), (b"server", b"envoy"), (b"x-a", b"b")]
    ours.encode(fields)

    assert len(ours.encode(fields)) == len(fields)


@pytest.mark.parametrize("name", [b"authorization", b"set-cookie", b"cookie", b"proxy-authorization"])
def test_a_secret_is_kept_in_no_table(name: bytes) -> None:
    ours, theirs = Encoder(4_096), hpack.Decoder()

    for _ in range(2):
        (found,) = theirs.decode(ours.encode([(name, b"hush")]), raw=True)
        assert found == (name, b"hush")
        assert not found.indexable


def test_what_only_one_connection_means_is_left_out_and_names_are_lower_case() -> None:
    ours, theirs = Encoder(4_096), hpack.Decoder()
    fields = [(b"X-A", b"1"), (b"Connection", b"close"), (b"keep-alive", b"1"), (b"b", b"2")]

    assert list(theirs.decode(ours.encode(fields), raw=True)) == [(b"x-a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize("field", [(b"a b", b"1"), (b"", b"1"), (b"a", b"1\r\n2"), (b"a", b"\0"), (b"server", b"x\ny")])
def test_what_cannot_be_said_is_refused_and_spoils_nothing(field: Field) -> None:
    ours, theirs = Encoder(4_096), hpack.Decoder()
    ours.encode([(b"server", b"a")])  # the name is known by now
    theirs.decode(Encoder(4_096).encode([(b"server", b"a")]), raw=True)

    with pytest.raises(LocalProtocolError):
        ours.encode([(b"x-new", b"1"), field])

    assert list(theirs.decode(ours.encode([(b"server", b"a"), (b"x-b", b"2")]), raw=True)) == [
        (b"server", b"a"),
        (b"x-b", b"2"),
    ]


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=3).map(lambda text: b"n" + text.hex().encode()), st.just(b"v" * 60)),
        max_size=400,
    )
)
def test_tables_stay_within_their_size(fields: list[Field]) -> None:
    ours, decoder = Encoder(4_096), Decoder(4_096)

    assert read(decoder, ours.encode(fields)) == fields

    for table in (ours, decoder):
        kept = sum(32 + len(name) + len(value) for name, value in table._entries)
        assert kept == table._size <= 4_096
    assert len(ours._by_field) == len(ours._entries)
