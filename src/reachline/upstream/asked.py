"""Active checks in our own words: `checks: {"http": {"path": "/healthz"}, "interval": 5}`, read by the envoy door's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from reachline.doors.envoy.checks import check as envoy_check
from reachline.doors.envoy.fields import Block
from reachline.doors.envoy.values import CheckSettings
from reachline.doors.findings import Findings
from reachline.doors.origin import Path
from reachline.talk.checked import GrpcCheck, HttpCheck, RedisCheck, TcpCheck
from reachline.talk.secure import Secure
from reachline.upstream.durations import in_words

__all__ = ["check"]

_DEFAULTS: Final = {"timeout": "1s", "interval": "5s", "unhealthy_threshold": 3, "healthy_threshold": 2}
"""Envoy has none: an endpoint that died is out within 20 s, one lost answer is forgiven, and 0.2 checks a second are no load."""
_DURATIONS: Final = (
    "timeout", "interval", "initial_jitter", "interval_jitter", "no_traffic_interval", "no_traffic_healthy_interval",
    "unhealthy_interval", "unhealthy_edge_interval", "healthy_edge_interval",
)  # fmt: skip
_SHORT: Final = {"http": "http_health_check", "tcp": "tcp_health_check", "grpc": "grpc_health_check"}
_REDIS: Final = "type.googleapis.com/envoy.extensions.health_checkers.redis.v3.Redis"
_OWN: Final = ("count_all", "tls", "redis")


def check(block: Block) -> CheckSettings | None:
    """The check of a cluster, None where there is none; what is wrong is left in the block's findings, where it stands."""
    value = block.raw("checks")
    if value is None:
        return None
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    several: list[Mapping[str, object]] = []
    for each in value if isinstance(value, Sequence) and is_list else [value]:
        if not isinstance(each, Mapping):
            block.refuse("checks", "must be a block, for example {'http': {'path': '/healthz'}}, or a list of one")
            return None
        several.append(each)
    found = Findings()
    read = envoy_check(Block({"health_checks": [_as_envoy(each) for each in several]}, block.path, found), http2=True)
    at = len(block.path)
    for each in found:
        block.found.append(each._replace(path=_back(each.path, at, block.at("checks"), is_list=is_list)))
    if read is None or not several:
        return None
    return _with_own(
        several[0],
        Block(dict(several[0]), (*block.at("checks"), 0) if is_list else block.at("checks"), block.found),
        read,
    )


def _as_envoy(own: Mapping[str, object]) -> dict[str, object]:
    """The same check as Envoy writes it."""
    told: dict[str, object] = dict(_DEFAULTS)
    for key, value in own.items():
        name = _SHORT.get(key, key)
        if key == "redis":
            config = {"@type": _REDIS, **value} if isinstance(value, Mapping) else value
            told["custom_health_check"] = {"name": "envoy.health_checkers.redis", "typed_config": config}
        elif name in _DURATIONS:
            told[name] = in_words(value)
        elif name == "http_health_check" and isinstance(value, Mapping):
            told[name] = _http(value)
        elif name not in _OWN:
            told[name] = value
    # Envoy checks a cluster that nobody calls once a minute; whoever names it here means to call it.
    if isinstance(told["interval"], str):
        told.setdefault("no_traffic_interval", told["interval"])
    return told


def _http(own: Mapping[str, object]) -> dict[str, object]:
    """With statuses as numbers and headers by name as Envoy's ranges and lists."""
    told = dict(own)
    for name in ("expected_statuses", "retriable_statuses"):
        statuses = own.get(name)
        if isinstance(statuses, Sequence) and not isinstance(statuses, str):
            told[name] = [{"start": each, "end": each + 1} if type(each) is int else each for each in statuses]
    headers = told.pop("headers", None)
    if isinstance(headers, Mapping):
        told["request_headers_to_add"] = [
            {"header": {"key": str(key), "value": value}} for key, value in headers.items()
        ]
    elif headers is not None:
        told["headers"] = headers
    return told


def _back(path: Path, at: int, checks: Path, *, is_list: bool) -> Path:
    """Where it stands in the document that was given."""
    rest = list(path[at + 1 :])
    if not is_list and rest:
        rest = rest[1:]
    names = {long: short for short, long in _SHORT.items()}
    place = 1 if is_list else 0
    if len(rest) > place:
        if rest[place] == "custom_health_check":
            rest[place : place + 2] = ["redis"]
        else:
            rest[place] = names.get(str(rest[place]), rest[place])
    return (*checks, *rest)


def _with_own(own: Mapping[str, object], block: Block, read: CheckSettings) -> CheckSettings:
    """With what Envoy's fields do not say."""
    counts_all = block.flag("count_all")
    secure = _secure(own.get("tls"), block)
    read = replace(read, rules=read.rules._replace(count_all=counts_all))
    asked = read.asked
    if secure is None:
        return read
    assert isinstance(asked, HttpCheck | TcpCheck | GrpcCheck | RedisCheck)
    alpn = ("h2",) if isinstance(asked, GrpcCheck) or (isinstance(asked, HttpCheck) and asked.version == "2") else ()
    return replace(read, asked=replace(asked, secure=replace(secure, alpn=alpn)))


def _secure(value: object, block: Block) -> Secure | None:
    """`tls: true`, or a block; None: plain text."""
    if value is None or value is False:
        return None
    own = Block({} if value is True else value, block.at("tls"), block.found)
    found = Secure(name="", sni=own.text("server_name"), ca=own.text("ca"), verify=own.flag("verify", default=True))
    own.done()
    return found
