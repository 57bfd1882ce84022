from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.talk.literal import MOST, literal


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("", b""),
        (r"PING\r\n", b"PING\r\n"),
        (r"a\tb\0\\n\x7fz", b"a\tb\0\\n\x7fz"),
        ("grüße", "grüße".encode()),
        ("hex:50 49\n4e47", b"PING"),
        ("hex:", b""),
    ],
)
def test_bytes_are_written_as_text_or_hex(text, raw):
    assert literal(text) == raw


@pytest.mark.parametrize("text", [r"\q", "\\", r"\x1", r"\xzz", "hex:1", "hex:zz"])
def test_what_is_neither_is_refused_with_the_rule(text):
    with pytest.raises(ValueError, match=r"must be text, with .* or hex: and hexadecimal digits"):
        literal(text)


def test_more_bytes_than_a_request_has_are_refused():
    assert len(literal("x" * MOST)) == MOST
    with pytest.raises(ValueError, match="at most 4096 bytes"):
        literal("x" * (MOST + 1))


@given(st.binary(max_size=200))
def test_any_bytes_can_be_written_both_ways(raw):
    assert literal("hex:" + raw.hex()) == raw
    assert literal("".join(f"\\x{byte:02x}" for byte in raw)) == raw
