"""Each real part carries, or answers, one real request."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from reachline.testing import parts, proxies

pytestmark = pytest.mark.real

Start = Callable[[Path], AbstractContextManager[parts.Running]]


@pytest.fixture
def web(tmp_path: Path):
    directory = tmp_path / "web"
    directory.mkdir()
    with parts.nginx(directory, server="location / { return 200 'behind'; }") as running:
        yield running


def said(sock: socket.socket, request: bytes) -> bytes:
    """The whole answer of a server that closes after it."""
    sock.sendall(request)
    return b"".join(iter(lambda: sock.recv(4096), b""))


GET = b"GET / HTTP/1.0\r\n\r\n"


@pytest.mark.parametrize("start", [proxies.microsocks, proxies.dante], ids=["microsocks", "dante"])
def test_a_socks5_proxy_carries_a_request(web: parts.Running, tmp_path: Path, start: Start) -> None:
    with start(tmp_path) as proxy, socket.create_connection((proxy.host, proxy.port), timeout=30) as sock:
        sock.sendall(b"\x05\x01\x00")
        assert sock.recv(2) == b"\x05\x00"
        sock.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(web.host) + struct.pack("!H", web.port))
        assert sock.recv(10)[:2] == b"\x05\x00"

        assert said(sock, GET).endswith(b"behind")


def test_microsocks_asks_for_the_password_it_was_given(tmp_path: Path) -> None:
    with (
        proxies.microsocks(tmp_path, user="eve", password="s3cret") as proxy,
        socket.create_connection((proxy.host, proxy.port), timeout=30) as sock,
    ):
        sock.sendall(b"\x05\x01\x00")

        assert sock.recv(2) == b"\x05\xff"


@pytest.mark.parametrize("start", [proxies.tinyproxy, proxies.squid], ids=["tinyproxy", "squid"])
def test_an_http_proxy_connects_and_carries_a_request(web: parts.Running, tmp_path: Path, start: Start) -> None:
    with start(tmp_path) as proxy, socket.create_connection((proxy.host, proxy.port), timeout=30) as sock:
        sock.sendall(f"CONNECT {web.host}:{web.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(1)
        assert head.split(b" ", 2)[1] == b"200"

        assert said(sock, GET).endswith(b"behind")


def test_tinyproxy_asks_for_the_password_it_was_given(tmp_path: Path) -> None:
    with (
        proxies.tinyproxy(tmp_path, user="eve", password="s3cret") as proxy,
        socket.create_connection((proxy.host, proxy.port), timeout=30) as sock,
    ):
        assert said(sock, b"CONNECT 127.0.0.1:9 HTTP/1.0\r\n\r\n").split(b" ", 2)[1] == b"407"


@pytest.mark.parametrize(
    ("name", "code", "end"), [("a.test", 0, bytes([127, 0, 0, 9])), ("no.test", 3, b"")], ids=["known", "unknown"]
)
def test_unbound_answers_the_records_of_the_test(tmp_path: Path, name: str, code: int, end: bytes) -> None:
    question = (
        b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0" + struct.pack("!2H", 1, 1)
    )
    with (
        proxies.unbound(tmp_path, records={"a.test": "127.0.0.9"}) as running,
        socket.socket(type=socket.SOCK_DGRAM) as ask,
    ):
        ask.settimeout(10.0)
        ask.sendto(struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + question, (running.host, running.port))
        answer = ask.recv(512)

    assert answer[3] & 0x0F == code
    assert answer.endswith(end)
