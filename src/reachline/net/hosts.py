"""Where names are asked: `/etc/resolv.conf` and `/etc/hosts` as values. Reads files; asks nobody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reachline.members import Address, is_numeric
from reachline.model import Seconds

__all__ = ["ResolvConf", "candidates", "in_hosts", "resolv_conf", "text_at"]

_PORT: Final = 53
_LOCAL: Final = (Address("127.0.0.1", _PORT),)
"""Where the file names no server: what resolv.conf(5) says."""
_DOTS_MOST, _WAIT_MOST, _TRIES_MOST = 15, 30, 5
"""Its own ceilings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvConf:
    """What resolv.conf(5) says, with its defaults."""

    servers: tuple[Address, ...] = _LOCAL
    search: tuple[str, ...] = ()
    dots: int = 1
    """A name with fewer is tried with the search domains first."""
    wait: Seconds = 5.0
    """For one server's answer."""
    tries: int = 2
    """Rounds over all servers."""


def resolv_conf(text: str) -> ResolvConf:
    """The file's content as values; lines that make no sense are skipped, as the C library does."""
    servers: list[Address] = []
    search: tuple[str, ...] = ()
    options: dict[str, int] = {}
    for words in _lines(text):
        match words:
            case ["nameserver", host, *_] if is_numeric(host):
                servers.append(Address(host, _PORT))
            case ["search" | "domain", *domains]:
                search = tuple(domain.rstrip(".") for domain in domains if domain.rstrip("."))
            case ["options", *said]:
                options |= {
                    name: int(value) for name, _, value in (each.partition(":") for each in said) if value.isdecimal()
                }
            case _:
                continue
    return ResolvConf(
        servers=tuple(servers) or _LOCAL,
        search=search,
        dots=min(options.get("ndots", 1), _DOTS_MOST),
        wait=float(max(1, min(options.get("timeout", 5), _WAIT_MOST))),
        tries=max(1, min(options.get("attempts", 2), _TRIES_MOST)),
    )


def in_hosts(text: str, name: str) -> tuple[str, ...]:
    """The addresses that hosts(5) gives the name, in its order."""
    wanted = name.rstrip(".").lower()
    return tuple(
        words[0] for words in _lines(text) if is_numeric(words[0]) and wanted in (word.lower() for word in words[1:])
    )


def candidates(name: str, conf: ResolvConf) -> tuple[str, ...]:
    """The names to ask for, one after the other: a name with a dot at its end is taken as it stands."""
    if name.endswith("."):
        return (name,)
    searched = tuple(f"{name}.{domain}" for domain in conf.search)
    return (name, *searched) if name.count(".") >= conf.dots else (*searched, name)


def text_at(path: Path) -> str:
    """The file's text; empty where it cannot be read: then it says nothing."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _lines(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        # A comment may follow; hosts(5) and resolv.conf(5) agree on `#`, and no address holds a `;`.
        if words := line.partition("#")[0].partition(";")[0].split():
            yield words
