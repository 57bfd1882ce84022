"""Envoy's documents, and what our proxy reads of clients and endpoints."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import Final

from tests.fuzz.reshape import reshaped
from tests.fuzz.target import (
    HTTP,
    HTTP_TOKENS,
    SHAPES,
    Target,
    text_of,
)

from reachline.doors.envoy import formats
from reachline.doors.envoy.asked import Request
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.regexes import compiled
from reachline.doors.envoy.routing import decide, routes
from reachline.doors.envoy.vhosts import route_config
from reachline.doors.findings import Findings
from reachline.proxy import flags, hello
from reachline.proxy.answers import AnswerReader
from reachline.proxy.requests import Limits, RequestReader

__all__ = ["envoys_targets", "proxies_targets"]


ROUTES_SHAPE: Final = {
    "virtual_hosts": [
        {
            "name": "a",
            "domains": ["*"],
            "routes": [
                {
                    "match": {
                        "prefix": "/",
                        "headers": [{"name": "a", "string_match": {"safe_regex": {"regex": "a+"}}}],
                    },
                    "route": {
                        "weighted_clusters": {"clusters": [{"name": "c", "weight": 1}]},
                        "timeout": "1s",
                        "retry_policy": {"retry_on": "5xx"},
                        "regex_rewrite": {"pattern": {"regex": "(a)"}, "substitution": r"\1"},
                    },
                    "request_headers_to_add": [{"header": {"key": "a", "value": "%REQ(b)%"}}],
                },
            ],
        }
    ]
}


def _routes_shape(data: bytes) -> None:
    """Whatever is taken can be decided by."""
    found = Findings()
    config = route_config(Block(reshaped(ROUTES_SHAPE, data), (), found))
    if not any(each.is_error for each in found):
        decide(routes(config), Request(path="/aab?a", authority="a.example"), chance=1)


def _format(text: str) -> None:
    pieces, rule, _ = formats.parsed(text)
    assert not (pieces and rule)


def _expression(text: str) -> None:
    pattern, rule, _ = compiled(text)
    assert (pattern is None) is bool(rule)


def envoys_targets() -> Iterator[Target]:
    yield Target(name="doors.envoy.shape", run=_routes_shape, errors=(), seeds=SHAPES, is_slow=True)
    yield Target(
        name="doors.envoy.formats",
        run=text_of(_format),
        errors=(),
        seeds=(b'[%START_TIME(%s)%] "%REQ(X-A?B):10%" 100%%\n',),
        tokens=(b"%", b"%%", b"%REQ(", b")%", b":1%", b"%DURATION%"),
    )
    yield Target(
        name="doors.envoy.regexes",
        run=text_of(_expression),
        errors=(),
        seeds=(rb"^/(?i:a|b)+[[:alpha:]&&\d-]{2,3}\Qx.\E(?P<n>c)\x{41}\z$",),
        tokens=(
            b"(?",
            b"[",
            b"]",
            b"[[:",
            b":]]",
            b"{1,2}",
            b"\\",
            b"\\Q",
            b"\\E",
            b"*",
            b"+",
            b"|",
            b"(?i)",
            b"^",
            b"$",
        ),
    )


def _proxied_request(data: bytes) -> None:
    """However it is cut, the same requests, or a refusal both times; and no request whose end is doubtful."""
    readers = [RequestReader(Limits(head=2_000, headers=20, accept_http_10=True)) for _ in range(2)]
    readers[0].feed(data, 0.0)
    for at in range(0, len(data), 7):
        if readers[1].refusal is None and readers[1].rest is None:
            readers[1].feed(data[at : at + 7], 0.0)
    whole, cut = ([(each.path, b"".join(each.chunks), each.is_complete) for each in reader.inbox] for reader in readers)
    if not any(reader.rest is not None or reader.refusal is flags.TOO_LARGE for reader in readers):
        assert whole == cut
        assert (readers[0].refusal is None) is (readers[1].refusal is None)
    for reader in readers:
        for request in reader.inbox:
            names = [name for name, _ in request.headers]
            assert names.count(b"content-length") <= 1
            assert not (request.length == -1 and b"content-length" in names)
            assert b"transfer-encoding" not in names
            assert all(b"\r" not in value and b"\n" not in value and b"\0" not in value for _, value in request.headers)


def _proxied_answer(data: bytes) -> None:
    for head_only in (False, True):
        reader = AnswerReader(most_headers=20, most_bytes=2_000)
        answer = reader.expect(head_only=head_only)
        for at in range(0, len(data), 5):
            if not reader.broken and reader.rest is None:
                reader.feed(data[at : at + 5])
        reader.ended()
        if answer.length is not None and answer.length >= 0 and not reader.broken:
            assert sum(map(len, answer.chunks)) <= answer.length
        assert not (head_only and answer.chunks)


def proxies_targets() -> Iterator[Target]:
    requests = (
        b"POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /c HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: x, close\r\n\r\n3;e\r\nabc\r\n0\r\nt: v\r\n\r\n",
        b"GET http://b:8/ HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nx",
        b"GET / HTTP/1.0\r\n\r\n",
    )
    yield Target(name="proxy.requests", run=_proxied_request, errors=(), seeds=requests, tokens=HTTP_TOKENS)
    yield Target(name="proxy.answers", run=_proxied_answer, errors=(), seeds=HTTP, tokens=HTTP_TOKENS)
    yield Target(name="proxy.hello", run=hello.read, errors=(), seeds=(_client_hello(),))


def _client_hello() -> bytes:
    there = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), there, server_hostname="a.example").do_handshake()
    return there.read()
