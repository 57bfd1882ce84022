"""What stands behind a target of `watch`: how it is reached, and options of its probe, taken off before its URL is read.

They stand in the query: `tcp://10.0.0.1:25?expect=220&via=socks5://proxy:1080`. A page has a query of its own, so options of
HTTP stand behind a `#`, which is never sent: `https://a.example/healthz?x=1#version=2`. The way out is read at both places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import unquote

from reachline.doors import outbounds
from reachline.doors.addresses import has_login, masked
from reachline.doors.units import refuse
from reachline.talk.secure import is_address

__all__ = ["Parted", "WayOut", "parted", "shown"]

_WAYS: Final = ("via", "source", "interface", "family")
_SECRETS: Final = frozenset({"password", "headers"})
"""Options that are not shown."""
_PAGES: Final = re.compile(r"https?://|dns://[^/?#]*/")
"""Targets whose query is their own: pages, and `dns://server/name?type=AAAA`."""
_NO_PORT: Final = re.compile(r"://[^/@]*:(?![0-9]*(?:/|$))[^@\]]*$")
"""A URL that ends in what stands for a port and is none: the beginning of a password."""
_LONGEST: Final = 15
"""Bytes of an interface's name (IFNAMSIZ without its end)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """How connections to one target leave."""

    via: str = outbounds.DIRECT
    source: str = ""
    interface: str = ""
    family: int = 0


class Parted(NamedTuple):
    """A target in its parts: its URL, its way, and what else is said, as text."""

    url: str
    way: WayOut
    options: dict[str, str]


class _Piece(NamedTuple):
    """One `key=value` with the mark before it. `is_ours`: it is taken off, else it is the page's."""

    mark: str
    text: str
    is_ours: bool

    @property
    def key(self) -> str:
        return self.text.partition("=")[0]

    @property
    def is_cut(self) -> bool:
        """Whether it is the end of a user and password rather than an option."""
        return self.is_ours and "@" in self.key

    @property
    def value(self) -> str:
        """A URL as it is keeps its own encoding; all else, a URL that is encoded whole too, is decoded."""
        value = self.text.partition("=")[2]
        return value if self.key == "via" and "://" in value else unquote(value)


def parted(text: str) -> Parted:
    """The target's parts; PydanticCustomError tells which one is wrong.

    A parameter of the page's own that is named like a way is left alone when a letter of it is percent-encoded.
    """
    if _is_cut(text) or any(piece.is_cut for piece in _pieces(text)):
        raise refuse("has ?, # or & within a user or password", "percent-encode them: %3F, %23, %26")
    said: dict[str, list[str]] = {}
    url, rest = _url(text), []
    for piece in _pieces(text):
        if not piece.is_ours:
            rest.append(piece.text)
        elif not piece.value:
            raise refuse(
                f"says {piece.key or 'an option'} without a value", f"drop it, or write {piece.key or 'expect'}=…"
            )
        else:
            said.setdefault(piece.key, []).append(piece.value)
    for key, values in said.items():
        if len(values) > 1 and key != "via":
            raise refuse(f"says {key} twice", "keep one of them")
    url = f"{url}?{'&'.join(rest)}" if rest else url
    options = {key: values[0] for key, values in said.items() if key not in _WAYS}
    return Parted(url, _way(said), options)


def shown(text: str) -> str:
    """The target as it may be shown: as it was typed, but for passwords."""
    if _is_cut(text):
        return f"{text.partition('://')[0]}://***"
    opened = [_open(piece) for piece in _pieces(text)]
    # Where a way out is broken, what stands behind it may be the rest of its password.
    if any(piece.is_cut for piece in _pieces(text)) or any("via=***" in each for each in opened):
        return f"{masked(_url(text))}?***"
    return masked(_url(text)) + "".join(piece.mark + each for piece, each in zip(_pieces(text), opened, strict=True))


def _open(piece: _Piece) -> str:
    if not piece.is_ours:
        return piece.text
    if piece.key in _SECRETS:
        return f"{piece.key}=***"
    if piece.key == "via" and (public := outbounds.without_password(piece.value)) != piece.value:
        return f"via={public}"
    return piece.text


def _is_cut(text: str) -> bool:
    """Whether the login of its URL is cut short by a mark that ends a URL."""
    url = _url(text)
    rest = text[len(url) :]
    if not has_login(text) or "@" in url or "@" not in rest:
        return False
    return "@" in rest.partition("=")[0] or bool(_NO_PORT.search(url))


def _url(text: str) -> str:
    return text.partition("#")[0].partition("?")[0]


def _pieces(text: str) -> Iterator[_Piece]:
    """All that stands behind the URL."""
    head, mark, fragment = text.partition("#")
    for at, part in enumerate(head.split("?", 1)[1].split("&") if "?" in head else ()):
        is_ours = not _PAGES.match(text) or part.partition("=")[0] in _WAYS
        yield _Piece("&" if at else "?", part, is_ours)
    for at, part in enumerate(fragment.split("&") if mark else ()):
        yield _Piece("&" if at else "#", part, is_ours=True)


def _way(said: dict[str, list[str]]) -> WayOut:
    via = ",".join(said.get("via", [])) or outbounds.DIRECT
    outbounds.hops(via)
    source, interface, family = ("".join(said.get(key, [])) for key in ("source", "interface", "family"))
    if source and not is_address(source):
        raise refuse(
            "must have an IP address of this machine as its source",
            "an interface's name belongs under interface; a page's own parameter is written %73ource",
        )
    if not interface.isprintable() or len(interface.encode()) > _LONGEST or {"/", " "} & set(interface):
        raise refuse("must have the name of an interface of this machine", "e.g. interface=eth0")
    if family not in {"", "4", "6"}:
        raise refuse("must have 4 or 6 as its family", "which addresses of a name are taken")
    if family and not outbounds.resolves_here(via):
        raise refuse("cannot choose a family: the proxy resolves the name", "socks5:// hands it an address")
    return WayOut(via=via, source=source, interface=interface, family=int(family or 0))
