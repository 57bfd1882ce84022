"""Which virtual host an authority belongs to: exact, then the longest `*.suffix`, then the longest `prefix.*`, then `*`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from reachline.doors.envoy.routes import RouteConfig, VirtualHost

__all__ = ["Domains", "domains", "host_for", "without_port"]

_PORT: Final = re.compile(r":[0-9]*\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domains:
    """The virtual hosts of a configuration, ready to be looked up. Ends are by their length, the longest first."""

    exact: dict[str, VirtualHost] = field(default_factory=dict)
    suffixes: dict[int, dict[str, VirtualHost]] = field(default_factory=dict)
    prefixes: dict[int, dict[str, VirtualHost]] = field(default_factory=dict)
    rest: VirtualHost | None = None
    ignore_port: bool = False


def domains(config: RouteConfig) -> Domains:
    """The table of a configuration."""
    exact: dict[str, VirtualHost] = {}
    suffixes: dict[int, dict[str, VirtualHost]] = {}
    prefixes: dict[int, dict[str, VirtualHost]] = {}
    rest: VirtualHost | None = None
    for host in config.hosts:
        for domain in host.domains:
            if domain == "*":
                rest = host
            elif domain.startswith("*"):
                suffixes.setdefault(len(domain) - 1, {})[domain[1:]] = host
            elif domain.endswith("*"):
                prefixes.setdefault(len(domain) - 1, {})[domain[:-1]] = host
            else:
                exact[domain] = host
    return Domains(
        exact=exact,
        suffixes=dict(sorted(suffixes.items(), reverse=True)),
        prefixes=dict(sorted(prefixes.items(), reverse=True)),
        rest=rest,
        ignore_port=config.ignore_port,
    )


def without_port(authority: str) -> str:
    """`[::1]:80` as `[::1]`, `a.example:80` as `a.example`."""
    if ":" not in authority:
        return authority
    bare = authority[: found.start()] if (found := _PORT.search(authority)) else authority
    # An address of IPv6 without brackets has no port.
    return authority if ":" in bare and not bare.endswith("]") else bare


def host_for(table: Domains, authority: str) -> VirtualHost | None:
    """The virtual host; None where no domain fits."""
    name = (without_port(authority) if table.ignore_port else authority).lower()
    found = table.exact.get(name)
    if found is not None:
        return found
    for length, ends in table.suffixes.items():
        # The star stands for one character at least.
        if len(name) > length and (found := ends.get(name[-length:])) is not None:
            return found
    for length, beginnings in table.prefixes.items():
        if len(name) > length and (found := beginnings.get(name[:length])) is not None:
            return found
    return table.rest
