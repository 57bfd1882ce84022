from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.errors import RemoteProtocolError
from reachline.wire import icmp

KINDS = {4: 0, 6: 129}


def answer(family: int, request: bytes) -> bytes:
    return bytes([KINDS[family]]) + request[1:]


@pytest.mark.parametrize("family", [4, 6])
@given(token=st.integers(0, 2**64 - 1), size=st.integers(0, 100), sequence=st.integers(0, 2**20))
def test_a_reply_brings_the_token_back(family, token, size, sequence):
    sent = icmp.request(family, ident=0x12345, sequence=sequence, token=token, size=size)

    assert len(sent) == 8 + max(size, icmp.MIN_PAYLOAD)
    assert icmp.reply(family, answer(family, sent)) == (0x2345, sequence & 0xFFFF, token)
    assert icmp.reply(family, sent) is None
    assert icmp.token_of(family, sent) == token


@given(st.binary(max_size=101))
def test_a_message_with_its_checksum_sums_to_zero(blob):
    even = blob if len(blob) % 2 == 0 else blob + b"\0"
    sum_of = icmp.checksum(even)

    assert icmp.checksum(even + struct.pack("!H", sum_of)) == 0


def test_the_checksum_is_the_rfcs():
    assert icmp.checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0x220D


@pytest.mark.parametrize("packet", [b"", b"\0", b"\0\0\0\0\0\0\0", b"\0\0\0\0\0\0\0\0short"])
def test_a_reply_cut_short_is_named(packet):
    with pytest.raises(RemoteProtocolError):
        icmp.reply(4, packet)


@pytest.mark.parametrize("packet", [b"", b"\x45" + bytes(10), b"\x41" + bytes(30)])
def test_an_ip_header_cut_short_is_named(packet):
    with pytest.raises(RemoteProtocolError):
        icmp.without_ip(packet)


def test_an_ip_header_with_options_is_skipped_whole():
    assert icmp.without_ip(b"\x46" + bytes(23) + b"rest") == b"rest"


@given(st.binary(max_size=64), st.sampled_from([4, 6]))
def test_garbage_is_refused_or_foreign_never_more(blob, family):
    assert icmp.token_of(family, blob) is None or len(blob) >= 16
    try:
        icmp.reply(family, icmp.without_ip(blob))
    except RemoteProtocolError:
        return
