"""Bytes of endpoints to answers: what breaks the protocol is not believed, and a connection is used again only after whole answers."""

from __future__ import annotations

import pytest

from reachline.proxy.answers import AnswerReader

OK = b"HTTP/1.1 200 OK\r\n"


def read(*pieces: bytes, head_only: bool = False) -> AnswerReader:
    reader = AnswerReader(most_headers=10, most_bytes=1_000)
    reader.expect(head_only=head_only)
    for piece in pieces:
        if not reader.broken:
            reader.feed(piece)
    return reader


@pytest.mark.parametrize(
    ("sent", "head_only", "length", "body", "keeps"),
    [
        (OK + b"content-length: 2\r\n\r\nhi", False, 2, b"hi", True),
        (OK + b"content-length: 2\r\n\r\n", True, 2, b"", True),
        (OK + b"transfer-encoding: chunked\r\n\r\n", True, -1, b"", True),
        (OK + b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", False, -1, b"hi", True),
        (OK + b"connection: close\r\ncontent-length: 2\r\n\r\nhi", False, 2, b"hi", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", False, 2, b"hi", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", False, None, b"", True),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", False, 9, b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nx: y\r\n\r\n" + OK + b"content-length: 0\r\n\r\n", False, 0, b"", True),
    ],
)  # fmt: skip
def test_an_answer_ends_where_its_head_says(
    sent: bytes, head_only: bool, length: int | None, body: bytes, keeps: bool
) -> None:
    for pieces in ([sent], [bytes((byte,)) for byte in sent]):
        reader = read(*pieces, head_only=head_only)
        answer = reader.answer
        assert answer is not None
        assert not reader.broken
        assert (answer.is_complete, answer.length, b"".join(answer.chunks), answer.keeps) == (True, length, body, keeps)
        assert (b"x", b"y") not in answer.headers


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    reader = read(OK + b"\r\nsome", b" more")
    answer = reader.answer
    assert answer is not None
    assert not answer.is_complete

    assert reader.ended()
    assert (b"".join(answer.chunks), answer.is_complete, answer.keeps) == (b"some more", True, False)


def test_a_connection_that_ends_early_ends_no_answer() -> None:
    assert not read(OK + b"content-length: 5\r\n\r\nabc").ended()
    assert not read(OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n").ended()
    assert not read(OK + b"content-le").ended()


@pytest.mark.parametrize(
    "sent",
    [
        b"garbage\r\n\r\n",
        OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nhi",
        OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\nhi",
        OK + b"transfer-encoding: gzip\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\nx\r\n",
        OK + b"X: a\r\n b\r\n\r\n",
        OK + b"X : a\r\n\r\n",
        OK + b"X: a\x00\r\n\r\n",
        OK + b"X: " + b"a" * 2_000 + b"\r\n\r\n",
        OK + b"X: " + b"a" * 2_500,
        OK + b"X: a\r\n" * 11 + b"\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 099 Low\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
)
def test_what_breaks_the_protocol_is_not_believed(sent: bytes) -> None:
    assert read(sent).broken


def test_what_is_no_body_between_chunks_is_bounded() -> None:
    assert read(OK + b"transfer-encoding: chunked\r\n\r\n0\r\nX: ", *[b"a" * 100] * 30).broken
    assert not read(OK + b"transfer-encoding: chunked\r\n\r\n", *[b"64\r\n" + b"a" * 100 + b"\r\n"] * 30).broken


@pytest.mark.parametrize(
    ("sent", "head_only"),
    [
        (OK + b"content-length: 2\r\n\r\nhi" + OK + b"content-length: 4\r\n\r\nevil", False),
        (OK + b"content-length: 2\r\n\r\nhiX", False),
        (OK + b"content-length: 2\r\n\r\nhi", True),
        (b"HTTP/1.1 204 No Content\r\n\r\nhi", False),
    ],
)
def test_what_follows_a_whole_answer_is_nobodys(sent: bytes, head_only: bool) -> None:
    reader = read(sent, head_only=head_only)

    assert reader.broken
    assert reader.answer is not None
    assert b"evil" not in b"".join(reader.answer.chunks)


def test_bytes_without_a_request_are_not_believed() -> None:
    reader = AnswerReader(most_headers=10, most_bytes=1_000)
    reader.feed(OK + b"content-length: 0\r\n\r\n")

    assert reader.broken


def test_after_101_bytes_are_another_protocols() -> None:
    reader = read(b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x02hi")

    assert reader.answer is not None
    assert (reader.answer.status, reader.answer.headers, reader.rest) == (
        101,
        [(b"upgrade", b"websocket")],
        b"\x81\x02hi",
    )
