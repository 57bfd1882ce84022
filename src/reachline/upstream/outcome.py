"""How a call ended: from an exception, a status or a word of the caller's to the one column it is counted in.

Libraries are recognised by the names of their exception classes, so that none of them is imported here.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, Literal

from reachline.model import Failure, Seconds

__all__ = [
    "PACES",
    "Column",
    "FailureName",
    "code_of",
    "column_of",
    "column_of_status",
    "column_of_word",
    "failure_of",
    "pace_of",
    "status_of",
]

FailureName = Literal[
    "timeout", "refused", "reset", "unreachable", "resolve", "tls", "proxy", "protocol", "status", "agent"
]
"""The names of `model.Failure` in lower case."""


class Column(IntEnum):
    """The columns of `model.Outcome`, and one for calls that prove nothing about their line."""

    OK = 0
    FAILED = 1
    LATE = 2
    ERRORS = 3
    NONE = 4


PACES: Final = 3
"""Beside how a call ended, how fast it was if it went well: timed at all, slow, and crawling."""

_COLUMNS: Final = {Failure.TIMEOUT: Column.LATE, Failure.STATUS: Column.ERRORS, Failure.AGENT: Column.NONE}

_ERRNOS: Final = {
    errno.ETIMEDOUT: Failure.TIMEOUT,
    errno.ECONNREFUSED: Failure.REFUSED,
    errno.ECONNRESET: Failure.RESET,
    errno.ECONNABORTED: Failure.RESET,
    errno.EPIPE: Failure.RESET,
    errno.ESHUTDOWN: Failure.RESET,
    errno.ENOTCONN: Failure.RESET,
    errno.EHOSTUNREACH: Failure.UNREACHABLE,
    errno.EHOSTDOWN: Failure.UNREACHABLE,
    errno.ENETUNREACH: Failure.UNREACHABLE,
    errno.ENETDOWN: Failure.UNREACHABLE,
    errno.ENETRESET: Failure.RESET,
}
"""What the network does to a call. Any other number (no file, no descriptor left, no free port) is this machine's fault."""

_NAMES: Final[dict[str, Failure]] = {
    "gaierror": Failure.RESOLVE,
    "herror": Failure.RESOLVE,
    "NameResolutionError": Failure.RESOLVE,
    "ClientConnectorDNSError": Failure.RESOLVE,
    "SSLError": Failure.TLS,
    "ClientSSLError": Failure.TLS,
    "CertificateError": Failure.TLS,
    "TimeoutException": Failure.TIMEOUT,
    "TimeoutError": Failure.TIMEOUT,
    "Timeout": Failure.TIMEOUT,
    "TooSlowError": Failure.TIMEOUT,
    "ConnectTimeoutError": Failure.TIMEOUT,
    "ReadTimeoutError": Failure.TIMEOUT,
    "ProxyError": Failure.PROXY,
    "ClientProxyConnectionError": Failure.PROXY,
    "ConnectError": Failure.REFUSED,
    "NewConnectionError": Failure.REFUSED,
    "ClientConnectorError": Failure.REFUSED,
    "RemoteProtocolError": Failure.PROTOCOL,
    "IncompleteRead": Failure.PROTOCOL,
    "BadStatusLine": Failure.PROTOCOL,
    "ChunkedEncodingError": Failure.PROTOCOL,
    "ClientPayloadError": Failure.PROTOCOL,
    "BrokenResourceError": Failure.RESET,
    "ReadError": Failure.RESET,
    "WriteError": Failure.RESET,
    "ServerDisconnectedError": Failure.RESET,
    "ClientConnectionError": Failure.RESET,
    "TransportError": Failure.RESET,
    "ConnectionError": Failure.RESET,
}
"""Exception classes by name, most telling first: the standard library, httpx and its kin, requests, urllib3, aiohttp, anyio, trio.

Looked up along the class's own ancestry, so a subclass of `Timeout` is a timeout. Our own exceptions are never meant.
"""

_DEPTH: Final = 8
"""Causes of causes looked at: libraries wrap two or three deep."""


def pace_of(elapsed: Seconds, slow: Seconds | None, crawl: Seconds | None) -> int:
    """How fast a call was, by its line's limits: 0 nobody asks, 1 fast enough, 2 slow, 3 crawling."""
    if slow is None and crawl is None:
        return 0
    if crawl is not None and elapsed > crawl:
        return PACES
    return 2 if slow is not None and elapsed > slow else 1


def column_of(failure: Failure | None) -> Column:
    """Where a call that ended so is counted; None is success."""
    return Column.OK if failure is None else _COLUMNS.get(failure, Column.FAILED)


def column_of_status(status: object) -> Column | None:
    """Where a call that was answered with this HTTP status is counted; None where it is no whole number."""
    if not isinstance(status, int) or isinstance(status, bool):
        return None
    return column_of(_failure_of_status(status))


def column_of_word(word: object) -> Column | None:
    """Where a call that failed so, in its caller's words, is counted; None where it is no word at all.

    A name that we do not know counts as a transport failure.
    """
    if isinstance(word, Failure):
        return column_of(word)
    if isinstance(word, str):
        return column_of(Failure.__members__.get(word.upper(), Failure.PROTOCOL))
    return None


def failure_of(error: BaseException) -> Failure | None:
    """What an exception that left a call says of its line: None it works, AGENT nothing (a bug, a cancellation).

    A status below 500 that a library raised was answered: a 404 is the caller's affair, and the line carried it.
    """
    for each in _chain(error):
        if (status := _status(each)) is not None:
            return _failure_of_status(status)
        if (found := _recognised(each)) is not None:
            return found
    return Failure.AGENT


def code_of(error: BaseException) -> int | None:
    """The HTTP status that an exception which left a call stands for; None where it stands for none."""
    return next((code for each in _chain(error) if (code := _status(each)) is not None), None)


def _failure_of_status(status: int) -> Failure | None:
    """A server error is the line's or its server's; anything else was answered."""
    return Failure.STATUS if status >= 500 else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, what it was raised from or while handling, and the first of a group; only what `Exception` covers."""
    each: BaseException | None = error
    for _ in range(_DEPTH):
        if not isinstance(each, Exception):
            return
        yield each
        if isinstance(each, ExceptionGroup):
            each = each.exceptions[0]
        else:
            each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _recognised(error: BaseException) -> Failure | None:
    if isinstance(error, TimeoutError):
        return Failure.TIMEOUT
    if isinstance(error, OSError) and error.errno in _ERRNOS:
        return _ERRNOS[error.errno]
    return next((_NAMES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _NAMES), None)


def status_of(answer: object) -> int | None:
    """The HTTP status of an answer of httpx, requests, aiohttp, urllib3 or the standard library; None of anything else."""
    for name in ("status_code", "status"):
        status = getattr(answer, name, None)
        if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
            return status
    return None


def _status(error: BaseException) -> int | None:
    """The HTTP status an exception stands for, as httpx, requests, urllib and aiohttp keep it."""
    response = getattr(error, "response", None)
    for holder, name in ((response, "status_code"), (error, "status"), (error, "code")):
        status = getattr(holder, name, None)
        if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
            return status
    return None
