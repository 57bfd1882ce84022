"""What is said to proxies on a connection, and the answers that may be taken for a yes at first sight, each whole in one piece.

A look only ever confirms what the hop's whole talk would call a yes; whatever it does not know is left to the talk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from reachline.errors import LocalProtocolError
from reachline.talk.hop import Hop, Scheme
from reachline.wire import http1, socks5

__all__ = ["Exchange", "exchanges"]

_TO_SOCKS: Final = (b"\x05\x00",)
"""Answers on the way to SOCKS5's reply: no sign-in…"""
_TO_SIGNED_IN: Final = (b"\x05\x02", b"\x01\x00")
"""…or by user and password, which are right."""


class Exchange(NamedTuple):
    """One question to a proxy."""

    hop: int
    """Which of the hops is asked, from 0."""
    request: bytes
    is_yes: Callable[[bytes], bool]
    """Whether a first piece is the whole answer, with nothing behind it, and what follows may be said."""
    answer: bytes = b""
    """The yes, where there is but one and the same proxy is asked on; empty: it is the proxy's last."""


def exchanges(hops: Sequence[Hop], places: Sequence[tuple[str, int]]) -> tuple[Exchange, ...] | None:
    """All of them, in turn; `places` says what each hop is asked to connect to. None: a hop's are not of this kind, or cannot be made."""
    found: list[Exchange] = []
    for number, (hop, (host, port)) in enumerate(zip(hops, places, strict=True)):
        if hop.secure is not None:
            return None
        try:
            talk = hop.talk(host, port)
        except LocalProtocolError:
            return None
        request: bytes | None = talk.begin()
        is_socks = hop.scheme in {Scheme.SOCKS5, Scheme.SOCKS5H}
        between = () if not is_socks else _TO_SIGNED_IN if hop.user else _TO_SOCKS
        for answer in between:
            assert request is not None
            found.append(Exchange(number, request, answer.__eq__, answer))
            request = talk.received(answer)
        assert request is not None
        found.append(Exchange(number, request, socks5.is_success if is_socks else _is_tunnel))
    return tuple(found)


def _is_tunnel(data: bytes) -> bool:
    """A yes to CONNECT has no body, whatever its headers say."""
    return 200 <= http1.whole(data, to_head=True) < 300 and data.find(b"\r\n\r\n") == len(data) - 4
