"""Peers that behave as badly as peers do, each with what a probe must make of it."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import trustme
from tests.net.conftest import Peer, saying

from reachline.model import Failure

__all__ = ["CASES", "Case", "certificates"]

GARBAGE: Final = random.Random(5).randbytes(300_000)
MEGABYTES: Final = b"x" * (2 << 20)
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CONNECTED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Case(NamedTuple):
    """One bad peer: how it is probed, and how that ends."""

    peer: Peer
    target: str
    failure: Failure | None
    note: str = ""
    """What the failure's words hold."""
    options: Mapping[str, str | bool] = {}
    via: str = ""
    """A proxy's URL; then the bad peer is the proxy, and nothing listens at the target."""
    certificate: str = ""
    """Under which one it speaks TLS: `expired` or `other`."""


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts, reads, never answers."""
    while await reader.read(65_536):
        pass


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A header that never ends, a byte at a time."""
    await reader.read(4096)
    for byte in OK[:17] + b"X-Slow: " + b"y" * 10_000:
        writer.write(bytes((byte,)))
        await writer.drain()
        await asyncio.sleep(0.02)


def answering(*answers: bytes) -> Peer:
    """Says one answer to each piece that comes, then nothing more, and stays."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            if not await reader.read(4096):
                return
            writer.write(answer)
            await writer.drain()
        await silent(reader, writer)

    return peer


HTTP = "http://127.0.0.1:{port}/"
HTTPS = "https://127.0.0.1:{port}/"
BEHIND = "http://192.0.2.1/"
"""TEST-NET: nobody is there, and nobody is asked but the proxy."""
PROXY = "http://127.0.0.1:{port}"
SOCKS = "socks5h://127.0.0.1:{port}"

CASES: Final[Mapping[str, Case]] = {
    "accepts and never answers": Case(silent, HTTP, Failure.TIMEOUT, "no answer within the time"),
    "closes without a word": Case(saying(b""), HTTP, Failure.RESET),
    "closes mid-header": Case(saying(b"HTTP/1.1 200 OK\r\nConte"), HTTP, Failure.PROTOCOL, "closed within the header"),
    "closes mid-body": Case(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), HTTP, Failure.PROTOCOL, "within the body"),
    "resets mid-header": Case(saying(b"HTTP/1.1 200 OK\r\nConte", reset=True), HTTP, Failure.RESET),
    "a header without an end": Case(saying(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000), HTTP, Failure.PROTOCOL, "header of more than"),
    "a drip": Case(drip, HTTP, Failure.TIMEOUT),
    "megabytes": Case(saying(b"HTTP/1.1 200 OK\r\n\r\n" + MEGABYTES), HTTP, None),
    "garbage": Case(saying(GARBAGE), HTTP, Failure.PROTOCOL, "not HTTP"),
    "garbage for TLS": Case(saying(GARBAGE), HTTPS, Failure.TLS, "TLS: ", {"verify": False}),
    "silence for TLS": Case(silent, HTTPS, Failure.TIMEOUT, "", {"verify": False}),
    "an expired certificate": Case(saying(OK), HTTPS, Failure.TLS, "certificate has expired", certificate="expired"),
    "another's certificate": Case(saying(OK), HTTPS, Failure.TLS, "wanted.test", {"sni": "wanted.test"}, certificate="other"),
    "garbage for Redis": Case(saying(GARBAGE), "redis://127.0.0.1:{port}", Failure.PROTOCOL, "Redis"),
    "garbage for HTTP/2": Case(saying(GARBAGE), HTTP, Failure.PROTOCOL, "HTTP/2", {"version": "2"}),
    "garbage for gRPC": Case(saying(GARBAGE), "grpc://127.0.0.1:{port}", Failure.PROTOCOL, "HTTP/2"),
    "a banner that never comes": Case(silent, "tcp://127.0.0.1:{port}", Failure.TIMEOUT, "", {"expect": "220"}),
    "a proxy that stalls at CONNECT": Case(silent, BEHIND, Failure.TIMEOUT, "does not say whether it reaches", via=PROXY),
    "a proxy that stalls after its yes": Case(answering(CONNECTED), BEHIND, Failure.TIMEOUT, "no answer", via=PROXY),
    "a proxy that closes at CONNECT": Case(saying(b""), BEHIND, Failure.PROXY, "proxy", via=PROXY),
    "a proxy of garbage": Case(saying(GARBAGE), BEHIND, Failure.PROXY, "proxy", via=PROXY),
    "a proxy of megabytes": Case(saying(b"HTTP/1.1 200 OK\r\nX: " + MEGABYTES), BEHIND, Failure.PROXY, "proxy", via=PROXY),
    "a SOCKS proxy that is silent": Case(silent, BEHIND, Failure.PROXY, "accepts and does not answer", via=SOCKS),
    "a SOCKS proxy that closes": Case(saying(b"\x05"), BEHIND, Failure.PROXY, "proxy", via=SOCKS),
    "a SOCKS proxy of garbage": Case(saying(GARBAGE), BEHIND, Failure.PROXY, "not SOCKS5", via=SOCKS),
}  # fmt: skip


def certificates(directory: Path) -> tuple[Path, dict[str, ssl.SSLContext]]:
    """The CA's file, and servers' contexts by the certificate they show."""
    ca = trustme.CA()
    trusted = directory / "ca.pem"
    ca.cert_pem.write_to_path(str(trusted))
    now = dt.datetime.now(dt.UTC)
    shown = {
        "expired": ca.issue_cert(
            "127.0.0.1", not_before=now - dt.timedelta(days=60), not_after=now - dt.timedelta(days=2)
        ),
        "other": ca.issue_cert("other.test", "127.0.0.1"),
    }
    contexts = {}
    for name, certificate in shown.items():
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(contexts[name])
    return trusted, contexts
