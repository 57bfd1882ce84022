"""Where a cluster's endpoints come from: each kind a `watch()` of changes (`abc.Discovery`).

One literal `TABLE`; a kind is one module. What only one of them needs (gRPC, protobuf, YAML) is imported when that one is used.
"""

from __future__ import annotations

from typing import Final

from reachline.abc import Discovery
from reachline.discovery.eds import Eds
from reachline.discovery.file import File
from reachline.discovery.logical_dns import LogicalDns
from reachline.discovery.naming import DnsSettings, Family
from reachline.discovery.static import Static
from reachline.discovery.strict_dns import StrictDns

__all__ = ["TABLE", "DnsSettings", "Eds", "Family", "File", "LogicalDns", "Static", "StrictDns"]

TABLE: Final[dict[str, type[Discovery]]] = {
    "static": Static,
    "strict_dns": StrictDns,
    "logical_dns": LogicalDns,
    "file": File,
    "eds": Eds,
}
"""Kinds by name, as documents write them."""
