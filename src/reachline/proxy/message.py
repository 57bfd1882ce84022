"""A request and an answer as they come in, piece by piece. Parsers write them, an exchange reads them."""

from __future__ import annotations

from typing import Final

__all__ = ["Answer", "Headers", "Request", "first", "joined"]

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, in the order sent."""

_CHUNKED: Final = -1


class Request:
    """One request of a connection. `chunks` is what of its body is yet to be taken."""

    __slots__ = (
        "authority", "began", "chunks", "expects", "headers", "is_complete", "keeps", "length", "method", "path", "scheme", "size",
        "target", "trailers", "upgrade", "version",
    )  # fmt: skip

    def __init__(self, began: float) -> None:
        self.began = began
        self.method = b""
        self.target = b""
        """As it was sent."""
        self.path = b""
        """In origin form, with its query."""
        self.authority = b""
        self.scheme = b""
        """As the client said it; empty: by HTTP/1 it does not."""
        self.version = "1.1"
        self.headers: Headers = []
        self.trailers: Headers = []
        self.length: int | None = None
        """Of the body; None: there is none, -1: it is chunked."""
        self.upgrade = b""
        self.expects = False
        """Whether the client waits for 100 Continue."""
        self.keeps = True
        """Whether another request may follow on its connection."""
        self.chunks: list[bytes] = []
        self.size = 0
        """Bytes of the body so far."""
        self.is_complete = False

    @property
    def is_chunked(self) -> bool:
        return self.length == _CHUNKED


class Answer:
    """One answer of an endpoint. `chunks` is what of its body is yet to be taken."""

    __slots__ = ("chunks", "headers", "is_begun", "is_complete", "keeps", "length", "status", "trailers")

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = []
        self.trailers: Headers = []
        self.length: int | None = None
        """Of the body as announced; None: it ends with the connection, -1: it is chunked."""
        self.chunks: list[bytes] = []
        self.is_begun = False
        """Whether its head is here whole."""
        self.is_complete = False
        self.keeps = True
        """Whether the connection may be used again."""

    @property
    def is_chunked(self) -> bool:
        return self.length == _CHUNKED


def first(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header, None where there is none."""
    for each, value in headers:
        if each == name:
            return value
    return None


def joined(headers: Headers, name: bytes) -> bytes | None:
    """All values of a header in one, as Envoy has them; None where there is none."""
    found: bytes | None = None
    for each, value in headers:
        if each == name:
            found = value if found is None else b"%b,%b" % (found, value)
    return found
