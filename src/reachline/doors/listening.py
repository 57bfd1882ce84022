"""What the document says to data planes: where an Envoy listens for a cluster, and how it connects to lines."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from reachline.doors.addresses import Bind
from reachline.doors.outbounds import DIRECT
from reachline.doors.probe import Settings
from reachline.doors.units import Duration, refuse
from reachline.members import Address, is_numeric
from reachline.model import Endpoint

__all__ = [
    "SECURED",
    "Clash",
    "Listen",
    "Listens",
    "Named",
    "Retries",
    "Xds",
    "address_of",
    "clashes",
    "is_http",
    "is_http2",
    "why_apart",
]

_HOST: Final = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
Retriable = Literal[
    "reset", "gateway-error", "5xx", "retriable-4xx", "unavailable", "resource-exhausted", "cancelled", "deadline-exceeded", "internal",
]  # fmt: skip
_PREFIX: Final = re.compile(r"/[!-~]*")
_V6: Final = 6
_HTTP: Final = frozenset({"http", "https", "grpc", "grpcs"})
_HTTP2: Final = frozenset({"grpc", "grpcs"})
_APART: Final = {
    "icmp": "answers echo requests, not connections",
    "udp": "takes datagrams, not connections",
    "dns": "is a name server",
}
SECURED: Final = frozenset({"https", "tls", "grpcs", "rediss"})
"""Schemes of lines to which TLS is spoken."""


def _at(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not is_numeric(host.strip("[]")):
        raise refuse("must be an address of the proxy's machine", "127.0.0.1:9000, or 0.0.0.0:9000 for all of them")
    if not int(port):
        raise refuse("must have a port of 1…65535: callers must know where to go", "127.0.0.1:9000")
    # One address is one text, or clusters that share it would be told as two listeners.
    ip = ipaddress.ip_address(host.strip("[]"))
    return f"[{ip}]:{int(port)}" if ip.version == _V6 else f"{ip}:{int(port)}"


def _host(text: str) -> str:
    low = text.lower()
    if not _HOST.fullmatch(low):
        raise refuse("must be a host name without a port, or *.example for all below it", "pay.example")
    return low


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text) or "?" in text or "#" in text:
        raise refuse("must begin with / and be a path without ? and #", "/pay")
    return text.rstrip("/") or "/"


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str | dict | int) else value


def _as_block(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        raise refuse(
            "must name an address beside the port", f"127.0.0.1:{value}, or 0.0.0.0:{value} for all of the machine's"
        )
    return {"at": value} if isinstance(value, str) else value


def _as_hosts(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_retries(value: object) -> object:
    if value is False or value == "off":
        return {"most": 0}
    if isinstance(value, bool) or not isinstance(value, int | dict | Retries):
        raise refuse("must be off, a number of 1…5, or a block", "{also: [reset]}")
    return {"most": value} if isinstance(value, int) else value


class Retries(Settings):
    """When a call is tried again, on another line. A number stands for `{most: NUMBER}`, `off` for `{most: 0}`."""

    most: int = Field(
        1,
        ge=0,
        le=5,
        description="Tries beyond a call's first. One: of the lines that the center gives weight, two are rarely dead at once. All within "
        "the call's `timeout`, and of all calls at most a fifth, or 50, at the same time.",
    )
    also: Annotated[
        tuple[Retriable, ...],
        Field(strict=False, max_length=9),
        BeforeValidator(_as_hosts, json_schema_input_type=Retriable | list[Retriable]),
    ] = Field(
        (),
        description="What else is tried again, in Envoy's words (the last five: gRPC's statuses), for services that may be asked the same "
        "twice. Always: calls that never reached a service, whatever their method: no connection, a stream refused, a reset before "
        "the request was sent.",
    )


class Listen(Settings):
    """One address at which an Envoy takes calls for the cluster. An address alone stands for `{at: ADDRESS}`."""

    at: Annotated[Bind, AfterValidator(_at)] = Field(
        description="host:port on the Envoy's machine. Clusters that name the same one share it, by `hosts` and `prefix`."
    )
    hosts: Annotated[
        tuple[Annotated[str, AfterValidator(_host)], ...],
        Field(strict=False, max_length=100),
        BeforeValidator(_as_hosts, json_schema_input_type=str | list[str]),
    ] = Field((), description="Host names that callers ask for; *.example is all below it. Unset: any.")
    prefix: Annotated[str, AfterValidator(_prefix)] = Field(
        "/",
        description="Paths: /pay takes /pay and /pay/now, not /payday; the longest that fits counts. A host without a fitting path "
        "falls back to those without hosts.",
    )
    protocol: Literal["http", "tcp"] | None = Field(
        None,
        description="Unset: http where all lines speak it (http, https, grpc, grpcs), else tcp: bytes as they come.",
    )
    timeout: Annotated[Duration, Field(ge=0, le=86_400)] | None = Field(
        None,
        description="Of a whole call; 0s: none. Unset: 15 s as in every Envoy, for gRPC lines and with `websocket` none, as they last.",
    )
    retries: Annotated[Retries, BeforeValidator(_as_retries, json_schema_input_type=Retries | int | Literal["off"])] = (
        Field(default_factory=Retries, description="Tries after one that failed: off, how many, or a block.")
    )
    rewrite_host: bool = Field(
        False, description="True: the Host header names the line's own host, for lines that are sites of their own."
    )
    websocket: bool = Field(
        False, description="True: calls that ask to become a WebSocket may, instead of being refused."
    )


class Xds(Settings):
    """How data planes that speak xDS (Envoy, gRPC) connect to lines."""

    connect_timeout: Annotated[Duration, Field(ge=0.01, le=60)] = Field(
        1.0, description="Who has not connected by then has failed: the first SYN retransmission, as for probes."
    )
    ca: str = Field(
        "/etc/ssl/certs/ca-certificates.crt",
        min_length=1,
        max_length=1_000,
        description="PEM file of trusted roots on the Envoy's machine, for lines of https, tls, grpcs and rediss: where Debian, Alpine "
        "and Envoy's images have it. gRPC clients use their channel's own credentials.",
    )
    verify: bool = Field(True, description="Whether a line's certificate must be good and name its host.")


Listens = Annotated[
    tuple[
        Annotated[Listen, BeforeValidator(_as_block, json_schema_input_type=Listen | str)],
        ...,
    ],
    Field(strict=False, max_length=20),
    BeforeValidator(_as_list, json_schema_input_type=Listen | str | list[Listen | str]),
]
"""One, or several."""


def address_of(at: str) -> Address:
    """Where it listens."""
    host, _, port = at.rpartition(":")
    return Address(host.strip("[]"), int(port))


def is_http(schemes: frozenset[str], said: str | None = None) -> bool:
    """Whether calls are taken as HTTP: as was said, or as all lines speak it."""
    return said == "http" if said is not None else schemes <= _HTTP


def is_http2(schemes: frozenset[str]) -> bool:
    """Whether lines of these schemes are spoken to by HTTP/2."""
    return schemes <= _HTTP2


def why_apart(endpoint: Endpoint, outbound: str) -> str:
    """Why neither an Envoy nor a gRPC client can use a line, in words; empty where they can."""
    if outbound == DIRECT:
        return _APART.get(endpoint.scheme, "")
    way, _, binding = outbound.partition("?")
    if way != DIRECT:
        return "goes by way of a proxy, which neither Envoy nor gRPC does"
    if any(part.startswith(("source=", "interface=")) for part in binding.split("&")):
        return "leaves by an address or interface of its own, which is the agent's"
    return _APART.get(endpoint.scheme, "")


class Named(NamedTuple):
    """One entry with the cluster it belongs to and its place in that cluster's list."""

    cluster: str
    place: int
    listen: Listen
    is_http: bool


class Clash(NamedTuple):
    """What cannot be about an entry."""

    cluster: str
    place: int
    key: str
    rule: str
    hint: str


def clashes(entries: list[Named]) -> Iterator[Clash]:
    """Everything about these entries, of all clusters, that cannot be."""
    taken: dict[tuple[str, str, str], Named] = {}
    kinds: dict[str, Named] = {}
    for entry in entries:
        cluster, place, listen, is_http = entry
        first = kinds.setdefault(listen.at, entry)
        if not is_http:
            written = listen.model_fields_set & {"hosts", "prefix", "timeout", "retries", "rewrite_host", "websocket"}
            for key in sorted(written):
                yield Clash(
                    cluster, place, key, "says nothing where bytes are passed on as they come", "protocol: http"
                )
        if first is not entry and not (is_http and first.is_http):
            rule = f"is an address of {first.cluster} too, and tcp cannot tell callers apart"
            yield Clash(cluster, place, "at", rule, "give each its own address")
            continue
        for host in listen.hosts or ("*",):
            other = taken.setdefault((listen.at, host, listen.prefix), entry)
            if other is not entry:
                whose = "another entry" if other.cluster == cluster else other.cluster
                rule = f"takes what {whose} takes at {listen.at} already: host {host}, prefix {listen.prefix}"
                yield Clash(cluster, place, "at", rule, "tell them apart by hosts or prefix")
