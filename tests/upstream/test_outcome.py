from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import ssl
import urllib.error
from email.message import Message
from http import HTTPStatus

import httpx2
import pytest

from reachline.model import Failure
from reachline.upstream.outcome import Column, column_of, column_of_status, column_of_word, failure_of


def raised(kind: type[Exception], cause: BaseException) -> Exception:
    try:
        raise kind("wrapped") from cause
    except Exception as error:  # noqa: BLE001
        return error


def while_handling(kind: type[Exception], first: Exception) -> Exception:
    try:
        try:
            raise first
        except Exception:  # noqa: BLE001
            raise kind("second")  # noqa: B904
    except Exception as error:  # noqa: BLE001
        return error


def status_error(status: int) -> httpx2.HTTPStatusError:
    request = httpx2.Request("GET", "http://a.test")
    return httpx2.HTTPStatusError("no", request=request, response=httpx2.Response(status, request=request))


class RequestException(IOError):  # noqa: N818
    """As requests builds its own."""


class RequestsTimeout(RequestException):
    pass


RequestsTimeout.__name__ = "Timeout"


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (TimeoutError(), Failure.TIMEOUT),
        (socket.timeout(), Failure.TIMEOUT),  # noqa: UP041
        (OSError(errno.ETIMEDOUT, "timed out"), Failure.TIMEOUT),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Failure.REFUSED),
        (ConnectionResetError(), Failure.RESET),
        (BrokenPipeError(errno.EPIPE, "pipe"), Failure.RESET),
        (OSError(errno.EHOSTUNREACH, "no route"), Failure.UNREACHABLE),
        (OSError(errno.ENETUNREACH, "no net"), Failure.UNREACHABLE),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), Failure.RESOLVE),
        (ssl.SSLError(1, "bad record"), Failure.TLS),
        (ssl.SSLCertVerificationError(1, "expired"), Failure.TLS),
        (http.client.RemoteDisconnected("gone"), Failure.RESET),
        (http.client.IncompleteRead(b""), Failure.PROTOCOL),
        (urllib.error.URLError(ConnectionRefusedError(111, "refused")), Failure.AGENT),
        (while_handling(urllib.error.URLError, ConnectionRefusedError(errno.ECONNREFUSED, "no")), Failure.REFUSED),
        (urllib.error.HTTPError("http://a", 503, "busy", Message(), None), Failure.STATUS),
        (urllib.error.HTTPError("http://a", 404, "none", Message(), None), None),
        (httpx2.ConnectError("refused"), Failure.REFUSED),
        (httpx2.ConnectTimeout("slow"), Failure.TIMEOUT),
        (httpx2.ReadTimeout("slow"), Failure.TIMEOUT),
        (httpx2.ReadError("reset"), Failure.RESET),
        (httpx2.RemoteProtocolError("nonsense"), Failure.PROTOCOL),
        (httpx2.ProxyError("proxy"), Failure.PROXY),
        (status_error(500), Failure.STATUS),
        (status_error(429), None),
        (RequestsTimeout("slow"), Failure.TIMEOUT),
        (raised(RuntimeError, ConnectionResetError()), Failure.RESET),
        (raised(ValueError, raised(RuntimeError, TimeoutError())), Failure.TIMEOUT),
        (ExceptionGroup("tasks", [ConnectionResetError()]), Failure.RESET),
        (ValueError("a bug"), Failure.AGENT),
        (KeyError("a bug"), Failure.AGENT),
        (FileNotFoundError(errno.ENOENT, "no file"), Failure.AGENT),
        (OSError(errno.EMFILE, "too many files"), Failure.AGENT),
        (OSError(errno.EADDRNOTAVAIL, "no port left"), Failure.AGENT),
        (KeyboardInterrupt(), Failure.AGENT),
        (SystemExit(503), Failure.AGENT),
        (GeneratorExit(), Failure.AGENT),
        (asyncio.CancelledError(), Failure.AGENT),
    ],
    ids=lambda each: repr(each)[:60],
)
def test_an_exception_says_how_the_call_ended(error: BaseException, failure: Failure | None) -> None:
    assert failure_of(error) is failure


def test_a_cause_that_was_suppressed_is_not_looked_at() -> None:
    mine = while_handling(ValueError, ConnectionResetError())
    assert failure_of(mine) is Failure.RESET

    mine.__suppress_context__ = True

    assert failure_of(mine) is Failure.AGENT


def test_a_ring_of_causes_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one

    assert failure_of(one) is Failure.AGENT


@pytest.mark.parametrize(
    ("failure", "column"),
    [
        (None, Column.OK),
        (Failure.TIMEOUT, Column.LATE),
        (Failure.STATUS, Column.ERRORS),
        (Failure.AGENT, Column.NONE),
        *((failure, Column.FAILED) for failure in Failure if failure.name not in ("TIMEOUT", "STATUS", "AGENT")),
    ],
)
def test_each_failure_has_its_column(failure: Failure | None, column: Column) -> None:
    assert column_of(failure) is column


@pytest.mark.parametrize(
    ("status", "column"),
    [
        (200, Column.OK),
        (404, Column.OK),
        (499, Column.OK),
        (500, Column.ERRORS),
        (HTTPStatus.BAD_GATEWAY, Column.ERRORS),
    ],
)
def test_a_server_error_begins_at_500(status: int, column: Column) -> None:
    assert column_of_status(status) is column


def test_failures_go_by_their_names() -> None:
    assert column_of_word("timeout") is Column.LATE
    assert column_of_word(Failure.STATUS) is Column.ERRORS
    assert column_of_word("bad luck") is Column.FAILED


@pytest.mark.parametrize(
    "nonsense",
    [None, 5, float("nan"), b"reset", [], {}, pytest.param(object(), id="an object"), TimeoutError()],
    ids=repr,
)
def test_what_is_neither_word_nor_status_has_no_column(nonsense: object) -> None:
    assert column_of_word(nonsense) is None
    assert isinstance(nonsense, int) or column_of_status(nonsense) is None


@pytest.mark.parametrize("nonsense", [True, "503", 503.0])
def test_a_status_is_a_whole_number(nonsense: object) -> None:
    assert column_of_status(nonsense) is None
