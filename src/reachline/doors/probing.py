"""Settings of what is observed: one class for each probe kind, and where its questions fit. Every default carries its reason."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from reachline.doors.probe import (
    Burst,
    Bytes,
    Every,
    Handshake,
    Headers,
    ProbeSettings,
    Secured,
    Settings,
    Timeout,
    Word,
    as_text,
    every_or_off,
    joined,
)
from reachline.doors.units import Duration, refuse
from reachline.model import Endpoint, Kind
from reachline.talk.http import ranges
from reachline.talk.secure import is_address

__all__ = [
    "DnsProbe",
    "GrpcProbe",
    "HttpProbe",
    "IcmpProbe",
    "PassiveProbe",
    "Probes",
    "RedisProbe",
    "TcpProbe",
    "TlsProbe",
    "UdpProbe",
]

_STREAMS: Final = frozenset({"tcp", "tls", "http", "https", "grpc", "grpcs", "redis", "rediss"})
"""Schemes of lines that take TCP connections."""


class TcpProbe(Secured):
    """Connects and closes. The round trip is the kernel's own (TCP_INFO)."""

    fits: ClassVar[frozenset[str]] = _STREAMS | {"dns"}
    lacks: ClassVar[str] = "has no port to connect to"
    secure: ClassVar[frozenset[str]] = frozenset()

    every: Every = Field(5.0, description="The source document's interval: cheap enough for every line.")
    burst: Burst = Field(
        5, description="Connects a round, each from a new port: 5 give a window its minimum of samples in 25 s."
    )
    send: Bytes = Field(
        "",
        description="Bytes sent once connected: text with \\r \\n \\xHH, or hex:…. Unset, with nothing expected: connecting is all.",
    )
    expect: Bytes = Field("", description="Bytes that must come back. Empty, with something sent: any answer is ok.")
    limit: int = Field(4_096, ge=1, le=1 << 20, description="Bytes of the answer among which they must be: a greeting.")
    tls: bool | None = Field(None, description="Whether to speak TLS before. Unset: no.")


def _status(value: object) -> object:
    """Statuses, classes and ranges, in one text or a list, as the talk reads them: `200`, `2xx`, `200-299,404`."""
    items = value if isinstance(value, list) else [value]
    try:
        if any(isinstance(item, bool) or not isinstance(item, int | str) for item in items):
            raise ValueError
        spans = ranges(",".join(map(str, items)).lower())
    except ValueError:
        raise refuse("must be HTTP statuses of 100…599", "write 200, 2xx, 200-399 or a list of them") from None
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


class HttpProbe(Secured):
    """Asks for a page on a new connection and looks at the status."""

    fits: ClassVar[frozenset[str]] = frozenset({"tcp", "tls", "http", "https"})
    lacks: ClassVar[str] = "speaks no HTTP"
    secure: ClassVar[frozenset[str]] = frozenset({"https", "tls"})

    every: Every = Field(30.0, description="The source document's interval: it costs the other side work.")
    burst: Burst = Field(1, description="Requests a round: one, for the same reason as the interval.")
    version: Annotated[Literal["1.1", "2"], BeforeValidator(as_text, json_schema_input_type=float | str)] = Field(
        "1.1",
        description="1.1, which every server answers, or 2: agreed on by ALPN, or spoken at once where there is no TLS.",
    )
    path: str = Field(
        "", pattern=r"^(/[!-~]*)?$", max_length=2_000, description="Empty: the path of the line's URL, or `/`."
    )
    method: Literal["GET", "HEAD", "OPTIONS", "POST"] = Field("GET", description="What every server answers.")
    expect: Annotated[str, BeforeValidator(_status, json_schema_input_type=int | str | list[int | str])] = Field(
        "200-399",
        description="Statuses that are ok: 200, 2xx, 200-399 or a list. Redirects are answers and are not followed.",
    )
    host: Word = Field("", description="Host header. Empty: the host of the URL.")
    headers: Headers = Field(
        default_factory=dict,
        description="Further request headers. Values are secrets: never shown; `${env:X}` is filled in.",
    )
    data: Bytes = Field("", description="Body of the request: text with \\r \\n \\xHH, or hex:….")
    body: str = Field("", max_length=1_000, description="What the page must contain. Empty: anything.")
    limit: int = Field(
        65_536, ge=0, le=16 << 20, description="Bytes of the page that are read: a health page has fewer."
    )
    tls: bool | None = Field(
        None, description="Whether to speak TLS. Unset: by scheme, and on port 443 of a tcp:// line."
    )

    def speaks_tls(self, endpoint: Endpoint) -> bool:
        if self.tls is None and endpoint.scheme == "tcp":
            return endpoint.port == 443
        return super().speaks_tls(endpoint)


class TlsProbe(Handshake):
    """Times the handshake and reads the certificate. Advisory: collected and shown, never judged alone."""

    fits: ClassVar[frozenset[str]] = frozenset({"tcp", "tls", "https", "grpcs", "rediss"})
    lacks: ClassVar[str] = "speaks no TLS"
    calm: ClassVar[bool] = True

    every: Every = Field(30.0, description="With HTTP; a handshake is what a probe costs most.")
    burst: Burst = Field(1, description="One handshake tells all.")
    alpn: Annotated[str, BeforeValidator(joined, json_schema_input_type=str | list[str])] = Field(
        "", max_length=1_000, description="Protocols to offer, one or a list. Empty: `expect_alpn`, or none."
    )
    expect_alpn: Word = Field("", description="The protocol that must be agreed on. Empty: any or none.")


class DnsProbe(ProbeSettings):
    """Asks a name server. Advisory, except on dns:// lines, where it is what the line is judged by."""

    calm: ClassVar[bool] = True

    every: Every = Field(60.0, description="The source document's interval: names change slowly.")
    burst: Burst = Field(1, description="A name server is shared: one query a round.")
    server: Word = Field("", description="Empty: the dns:// line itself, else the agent's own resolver.")
    name: Word = Field(
        "", description="What to ask for. Empty: the path of a dns:// line, else the host of the line's URL."
    )
    type: str = Field("", max_length=10, description="A, AAAA, TXT … Empty: A (AAAA for an IPv6 line).")
    expect: Annotated[str, BeforeValidator(joined, json_schema_input_type=str | list[str])] = Field(
        "", description="Record data that must be among the answers, one or a list. Empty: any answer is ok."
    )
    rcode: str = Field("NOERROR", max_length=20, description="The answer's code that is ok.")
    recurse: bool = Field(True, description="Whether the server is to ask others. false: what it knows itself.")
    min_ttl: int = Field(
        0, ge=0, le=2**31 - 1, description="Seconds that every answer must be good for. 0: any time at all."
    )
    max_ttl: int = Field(
        2**31 - 1, ge=0, le=2**31 - 1, description="Seconds that no answer may exceed: a name that must move soon."
    )

    def misfit(self, endpoint: Endpoint) -> str:
        if endpoint.scheme != "dns" and is_address(endpoint.host) and not self.name:
            return f"{endpoint} has no name to resolve; say probes.dns.name"
        return ""


class IcmpProbe(ProbeSettings):
    """Echo requests. Never decides where TCP or HTTP is probed; if all three fail, degraded becomes failed."""

    every: Every = Field(5.0, description="As TCP.")
    burst: Burst = Field(5, description="As TCP.")
    size: int = Field(56, ge=16, le=65_000, description="Bytes of payload: what ping sends.")

    def misfit(self, endpoint: Endpoint) -> str:
        del endpoint
        return ""


class GrpcProbe(Secured):
    """Asks the standard health service (grpc.health.v1) whether a service is SERVING."""

    fits: ClassVar[frozenset[str]] = frozenset({"grpc", "grpcs"})
    lacks: ClassVar[str] = "is no grpc:// line"
    secure: ClassVar[frozenset[str]] = frozenset({"grpcs"})

    every: Every = Field(30.0, description="As HTTP: it costs the other side work.")
    burst: Burst = Field(1, description="As HTTP.")
    service: Word = Field("", description="Empty: the path of a grpc:// line's URL, else the server as a whole.")
    authority: Word = Field("", description="The server's name in the call. Empty: the host of the URL.")
    headers: Headers = Field(
        default_factory=dict,
        description="Metadata of the call. Values are secrets: never shown; `${env:X}` is filled in.",
    )


class RedisProbe(Secured):
    """Asks for PONG, or whether a key exists, on a new connection."""

    fits: ClassVar[frozenset[str]] = frozenset({"redis", "rediss"})
    lacks: ClassVar[str] = "is no redis:// line"
    secure: ClassVar[frozenset[str]] = frozenset({"rediss"})

    every: Every = Field(
        15.0, description="A connection and a PING cost Redis tens of microseconds of its only thread."
    )
    burst: Burst = Field(1, description="As HTTP.")
    exists: str = Field("", max_length=512, description="A key that must exist. Empty: PING.")
    db: int | None = Field(None, ge=0, le=16_383, description="Number of the database. Unset: the URL's path, or 0.")
    user: str = Field("", max_length=512, description="User of the ACL. Empty: the default user.")
    password: SecretStr | None = Field(
        None, description="Never shown; `${env:X}` or `${file:/…}` is filled in. Unset: no AUTH is sent."
    )


class UdpProbe(ProbeSettings):
    """Sends a random datagram to an echo service and waits for the same; or other bytes, for what they bring."""

    fits: ClassVar[frozenset[str]] = frozenset({"udp"})
    lacks: ClassVar[str] = "is no udp:// line"

    every: Every = Field(5.0, description="As TCP, whose place it takes.")
    burst: Burst = Field(5, description="As TCP.")
    size: int = Field(64, ge=8, le=65_000, description="Bytes of the random payload: about a voice packet.")
    send: Bytes = Field(
        "", description="Bytes sent in its place: text with \\r \\n \\xHH, or hex:…. Then `expect` is needed."
    )
    expect: Bytes = Field("", description="Bytes that must be in the answer. Empty: the same payload, whole.")


_NO_TCP: Final = frozenset({"dns", "icmp", "udp"})
"""Schemes of lines to which no TCP connection goes."""


class PassiveProbe(ProbeSettings):
    """Sends nothing: watches the TCP connections that other programs of the agent's machine have over the line. Linux only."""

    every: Every = Field(
        1.0, description="One look at the kernel's table costs some milliseconds, for all lines together."
    )
    burst: Annotated[int, Field(ge=1, le=1)] = Field(1, description="Nothing is sent: a look is a look.")
    timeout: Timeout = Field(
        1.0, description="A connection that waits this long for an answer, and sends again, is late."
    )
    tail: Annotated[Duration, Field(ge=0, le=0)] = Field(0.0, description="Nothing is waited for.")
    match: Literal["destination", "mark", "process"] = Field(
        "destination",
        description="Which connections are the line's: those to its address and port; those that carry its mark; or those to its "
        "address and port that `process` has.",
    )
    mark: int | None = Field(
        None,
        ge=1,
        le=2**32 - 1,
        description="SO_MARK of the cluster's connections, where they go to the line's address too; a line's own `mark` says it alone.",
    )
    process: str = Field(
        "",
        max_length=15,
        pattern=r"^[!-~]*$",
        description="A program's name as `ps -o comm` shows it, or its process number.",
    )

    def misfit(self, endpoint: Endpoint) -> str:
        if endpoint.scheme in _NO_TCP:
            return f"no TCP connections go to {endpoint}"
        return ""

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        if self.match == "process" and not self.process:
            raise refuse("matches by process but names none", "say process: NAME")
        if self.match == "destination" and (self.mark or self.process):
            raise refuse("names a mark or process that nothing is matched by", "say match: mark or match: process")
        return self


class Probes(Settings):
    """What is sent, how often. A line gets the kinds of its scheme; a kind named here is added where it fits."""

    suspect: Every = Field(
        2.0, description="Every judged kind's interval while its line is not healthy: recovery is seen soon."
    )
    tcp: Annotated[TcpProbe, BeforeValidator(every_or_off, json_schema_input_type=TcpProbe | str)] = Field(
        default_factory=TcpProbe,
        description="Every line that takes TCP connections has it, dns:// ones where it is named.",
    )
    http: Annotated[HttpProbe, BeforeValidator(every_or_off, json_schema_input_type=HttpProbe | str)] = Field(
        default_factory=HttpProbe, description="http:// and https:// lines have it."
    )
    tls: Annotated[TlsProbe, BeforeValidator(every_or_off, json_schema_input_type=TlsProbe | str)] = Field(
        default_factory=TlsProbe, description="https://, tls://, grpcs:// and rediss:// lines have it."
    )
    dns: Annotated[DnsProbe, BeforeValidator(every_or_off, json_schema_input_type=DnsProbe | str)] = Field(
        default_factory=DnsProbe, description="dns:// lines have it, at the pace of tcp."
    )
    icmp: Annotated[IcmpProbe, BeforeValidator(every_or_off, json_schema_input_type=IcmpProbe | str)] = Field(
        default_factory=IcmpProbe, description="icmp:// lines have it, at the pace of tcp."
    )
    grpc: Annotated[GrpcProbe, BeforeValidator(every_or_off, json_schema_input_type=GrpcProbe | str)] = Field(
        default_factory=GrpcProbe, description="grpc:// and grpcs:// lines have it."
    )
    redis: Annotated[RedisProbe, BeforeValidator(every_or_off, json_schema_input_type=RedisProbe | str)] = Field(
        default_factory=RedisProbe, description="redis:// and rediss:// lines have it."
    )
    udp: Annotated[UdpProbe, BeforeValidator(every_or_off, json_schema_input_type=UdpProbe | str)] = Field(
        default_factory=UdpProbe, description="udp:// lines have it, at the pace of tcp."
    )
    passive: Annotated[PassiveProbe, BeforeValidator(every_or_off, json_schema_input_type=PassiveProbe | str)] = Field(
        default_factory=PassiveProbe, description="Lines with TCP connections have it where it is named: `passive: 1s`."
    )

    def of(self, kind: Kind) -> ProbeSettings:
        """The block of a kind."""
        found: ProbeSettings = getattr(self, kind.value)
        return found
