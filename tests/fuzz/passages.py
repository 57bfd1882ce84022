"""What the clients of an Xray document's inbounds say."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.target import (
    HTTP_TOKENS,
    LONGEST_NOTE,
    Target,
)

from reachline.errors import RemoteProtocolError
from reachline.wire import (
    entering,
    geodata,
    socks5,
)

__all__ = ["passages_targets"]


def _entered(data: bytes) -> None:
    """However it is cut, the same request or a refusal both times; and nothing in it that could steer a proxy behind us."""
    for accounts in ({}, {"u": "p"}):
        whole, cut = (entering.Entering(accounts, takes_udp=True) for _ in range(2))
        sent = whole.received(data)
        pieces_sent = b""
        for at in range(0, len(data), 7):
            if cut.asked is None and not cut.refusal:
                pieces_sent += cut.received(data[at : at + 7])
        assert sent == pieces_sent
        assert (whole.asked is None, bool(whole.refusal)) == (cut.asked is None, bool(cut.refusal))
        assert len(sent) <= LONGEST_NOTE
        assert whole.refusal.isprintable()
        if whole.asked is not None and whole.asked.form is not entering.Form.ASSOCIATE:
            assert whole.asked.host.isprintable()
            assert not set(whole.asked.host) & set(" /@\\\"'")
            assert 0 < whole.asked.port <= 65_535


def _listed(data: bytes) -> None:
    for code in geodata.codes(data)[:4]:
        for site in geodata.sites(data, code) or ():
            assert isinstance(site.value, str)
        found = geodata.networks(data, code)
        assert found is not None
        assert all(0 <= prefix <= 32 for _, prefix in found.four)


def _unwrapped(data: bytes) -> None:
    found = socks5.unwrapped(data)
    if found is not None and entering.is_target(*found[:2]):
        assert socks5.unwrapped(socks5.wrapping(*found[:2]) + data[found[2] :]) is not None


def passages_targets() -> Iterator[Target]:
    said = (
        b"\x05\x01\x00\x05\x01\x00\x03\x09a.example\x01\xbb",
        b"\x05\x01\x02\x01\x01u\x01p\x05\x03\x00\x04" + bytes(18),
        b"\x04\x01\x01\xbb\x00\x00\x00\x01u\x00a.example\x00hi",
        b"CONNECT [::1]:443 HTTP/1.1\r\nProxy-Authorization: Basic dTpw\r\n\r\n",
        b"POST http://a:81/b HTTP/1.1\r\nContent-Length: 2\r\nConnection: x\r\nX: 1\r\n\r\nabcd",
    )
    lists = (
        bytes.fromhex("0a140a03414453120d0802120361647a1a040a02636e"),
        bytes.fromhex("0a100a02434e12080a040a00000010081800"),
    )
    yield Target(name="passage.entering", run=_entered, errors=(), seeds=said, tokens=HTTP_TOKENS)
    datagrams = (b"\0\0\0\x01\x7f\0\0\x01\0\x35x", b"\0\0\0\x03\x01a\0\x35x", b"\0\0\0\x04" + bytes(18))
    yield Target(name="passage.datagrams", run=_unwrapped, errors=(), seeds=datagrams)
    yield Target(name="geodata", run=_listed, errors=(RemoteProtocolError,), seeds=lists)
