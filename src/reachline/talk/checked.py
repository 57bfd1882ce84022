"""Kinds of active checks, by the name of their field in Envoy's `health_check`. One literal `TABLE`; a kind is one module.

Probes (`talk.TABLE`) measure lines for the center and close after each attempt; checks decide in one process whether an endpoint
gets traffic, by Envoy's rules, and may keep their connection.
"""

from __future__ import annotations

from typing import Final

from reachline.talk.asking import Asked
from reachline.talk.check_grpc import GrpcCheck
from reachline.talk.check_http import HttpCheck
from reachline.talk.check_redis import RedisCheck
from reachline.talk.check_tcp import TcpCheck

__all__ = ["TABLE", "GrpcCheck", "HttpCheck", "RedisCheck", "TcpCheck"]

TABLE: Final[dict[str, type[Asked]]] = {
    "http_health_check": HttpCheck,
    "tcp_health_check": TcpCheck,
    "grpc_health_check": GrpcCheck,
    "redis_health_check": RedisCheck,
}
