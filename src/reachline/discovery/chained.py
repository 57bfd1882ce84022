"""Listeners, routes and clusters as a control plane sends them, for `wire.ads.Client`: message to plain values to the envoy door's own.

Each is taken or refused for itself; what is refused goes back with every reason, as one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from reachline.doors.envoy.resources import CDS, LDS, RDS, read_one
from reachline.errors import ConfigError, RemoteProtocolError, one_line
from reachline.wire.ads import Parcel, Parsed

if TYPE_CHECKING:
    from reachline.doors.envoy.securing import Secret

__all__ = ["parsers"]


def parsers(secrets: Mapping[str, Secret] | None = None) -> dict[str, Callable[[Parcel], Parsed]]:
    """By type URL. `secrets` are those of the bootstrap, by name. ImportError says what to install.

    Values are a `Listener`, a `RouteConfig`, or a `Cluster` with its `Upstream`.
    """
    from reachline.wire.plain import plain  # noqa: PLC0415  (protobuf, and only xDS needs it)

    def parse(parcel: Parcel) -> Parsed:
        try:
            document = plain(parcel.type_url, parcel.body)
        except RemoteProtocolError as error:
            return Parsed(parcel.name, error=one_line(str(error)))
        name = document.get("name")
        named = name if isinstance(name, str) else ""
        if not named:
            return Parsed(parcel.name, error="name: is needed")
        try:
            value, _ = read_one(document, secrets=secrets or {})
        except ConfigError as error:
            return Parsed(named, error="; ".join(_said(each.path, each.rule, each.value) for each in error.problems))
        return Parsed(named, value)

    return dict.fromkeys((LDS, RDS, CDS), parse)


def _said(path: str, rule: str, value: str) -> str:
    return one_line(f"{path}: {rule}{f' (got {value})' if value else ''}")
