"""How a target of `watch` is reached: `?via=…&source=…&interface=…` behind its URL, taken off before the URL is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from reachline.doors import outbounds
from reachline.doors.units import refuse
from reachline.talk.secure import is_address

__all__ = ["WayOut", "parted", "shown"]

_KEYS: Final = ("via", "source", "interface")
_LONGEST: Final = 15
"""Bytes of an interface's name (IFNAMSIZ without its end)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """How connections to one target leave."""

    via: str = outbounds.DIRECT
    source: str = ""
    interface: str = ""


def parted(text: str) -> tuple[str, WayOut]:
    """The URL without what is said of the way, and the way; PydanticCustomError tells which part is wrong.

    A parameter of the page's own that has one of these names is left alone when a letter of it is percent-encoded.
    """
    url, said = _taken(text)
    vias = said.get("via", [])
    for key in ("source", "interface"):
        if len(said.get(key, [])) > 1:
            raise refuse(f"says {key} twice", "one connection leaves by one")
    via = ",".join(vias) or outbounds.DIRECT
    if vias:
        outbounds.hops(via)
    source, interface = ("".join(said.get(key, [])) for key in ("source", "interface"))
    if source and not is_address(source):
        raise refuse(
            "must have an IP address of this machine as its source",
            "an interface's name belongs under interface; a page's own parameter is written %73ource",
        )
    if not interface.isprintable() or len(interface.encode()) > _LONGEST or {"/", " "} & set(interface):
        raise refuse("must have the name of an interface of this machine", "e.g. interface=eth0")
    return url, WayOut(via=via, source=source, interface=interface)


def shown(text: str) -> str:
    """The text as it may be shown: as it was typed, but for passwords."""
    url, mark, query = text.partition("?")
    return url + mark + "&".join(map(_shown, query.split("&")))


def _shown(part: str) -> str:
    key, _, value = part.partition("=")
    via = _plain(value)
    if key != "via" or (public := outbounds.without_password(via)) == via:
        return part
    return f"via={public}"


def _plain(value: str) -> str:
    """A URL as it is keeps its own encoding; all else, a URL that is encoded whole too, is decoded."""
    return value if "://" in value else unquote(value)


def _taken(text: str) -> tuple[str, Mapping[str, list[str]]]:
    url, _, query = text.partition("?")
    said: dict[str, list[str]] = {}
    rest = []
    for part in query.split("&") if query else ():
        key, _, value = part.partition("=")
        if key not in _KEYS:
            rest.append(part)
        elif not value:
            raise refuse(f"says {key} without a value", f"drop it, or write {key}=…")
        else:
            said.setdefault(key, []).append(_plain(value))
    return f"{url}?{'&'.join(rest)}" if rest else url, said
