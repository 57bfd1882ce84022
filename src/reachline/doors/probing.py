"""Settings of what is observed: one class for each probe kind, and where its questions fit. Every default carries its reason."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from reachline.doors.units import Duration, refuse
from reachline.model import Endpoint, Kind
from reachline.talk.secure import is_address

__all__ = [
    "DnsProbe",
    "HttpProbe",
    "IcmpProbe",
    "PassiveProbe",
    "Probe",
    "Probes",
    "Settings",
    "TcpProbe",
    "TlsProbe",
]


class Settings(BaseModel):
    """What every block of a document has in common: frozen, no unknown keys, nothing converted by guessing."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=False)


def _every_or_off(value: object) -> object:
    """`tcp: 5s` for `tcp: {every: 5s}`, `tcp: off` for `tcp: {enabled: false}`."""
    if value is None:
        raise refuse("is empty", "write 5s, a block, or off")
    if value == "off" or value is False:
        return {"enabled": False}
    return value if isinstance(value, dict) else {"every": value}


_Every = Annotated[Duration, Field(ge=0.1, le=86_400)]
_Timeout = Annotated[Duration, Field(ge=0.01, le=60)]
_Burst = Annotated[int, Field(ge=1, le=100)]
_ENABLED: Final = "`off` in place of the block switches this kind off for the cluster."
_TIMEOUT: Final = (
    "From here on an answer counts as late; 1 s is the first SYN retransmission, so a lost SYN is late too."
)
_TAIL: Final = (
    "Waited beyond the timeout: the second SYN retransmission falls into it, so the tail is seen as late, not as lost."
)
_SNI: Final = "Name sent in the handshake. Empty: the host of the URL."
_CA: Final = "PEM file of trusted roots, at the agent. Empty: the system's."
_Word = Annotated[str, Field(pattern=r"^[!-~]*$", max_length=255)]
_TLS: Final = frozenset({"sni", "ca", "verify"})
_VERIFY: Final = "Whether a certificate that does not verify fails the probe; its expiry is read either way."


class Probe(Settings):
    """What every kind's block has in common: how often, how many, and how long an answer is waited for."""

    calm: ClassVar[bool] = False
    """Keeps its pace while a line is suspect: advisory, and what costs the other side most."""

    enabled: bool = Field(True, description=_ENABLED)
    every: _Every
    burst: _Burst
    timeout: _Timeout = Field(1.0, description=_TIMEOUT)
    tail: _Timeout = Field(3.0, description=_TAIL)

    def misfit(self, endpoint: Endpoint) -> str:
        """Why this kind cannot be asked of a line, in words; empty where it can."""
        return "" if endpoint.port else f"{endpoint} has no port to connect to"

    def idle(self, endpoint: Endpoint) -> frozenset[str]:
        """Options that say nothing on this line: those of TLS where none is spoken."""
        del endpoint
        return frozenset()


class TcpProbe(Probe):
    """Connects and closes. The round trip is the kernel's own (TCP_INFO)."""

    every: _Every = Field(5.0, description="The source document's interval: cheap enough for every line.")
    burst: _Burst = Field(
        5, description="Connects a round, each from a new port: 5 give a window its minimum of samples in 25 s."
    )


def _status(value: object) -> object:
    """One status, a class or a range, alone or as a list, as one text: `200`, `2xx`, `200-299`."""
    items = value if isinstance(value, list) else [value]
    return ",".join(map(_status_item, items))


def _status_item(value: object) -> str:
    text = str(value).strip().lower()
    low, dash, high = text.partition("-")
    if text.endswith("xx") and text[:1] in "12345" and len(text) == 3:
        low, dash, high = f"{text[0]}00", "-", f"{text[0]}99"
    ends = (low, high) if dash else (low, low)
    if (
        isinstance(value, bool)
        or not all(end.isdigit() and 100 <= int(end) <= 599 for end in ends)
        or ends[0] > ends[1]
    ):
        raise refuse("must be HTTP statuses of 100…599", "write 200, 2xx, 200-399 or a list of them")
    return f"{low}-{high}" if dash else low


class HttpProbe(Probe):
    """Asks for a page on a new connection and looks at the status."""

    every: _Every = Field(30.0, description="The source document's interval: it costs the other side work.")
    path: str = Field(
        "", pattern=r"^(/[!-~]*)?$", max_length=2_000, description="Empty: the path of the line's URL, or `/`."
    )
    method: Literal["GET", "HEAD", "OPTIONS", "POST"] = Field("GET", description="What every server answers.")
    expect: Annotated[str, BeforeValidator(_status, json_schema_input_type=int | str | list[int | str])] = Field(
        "200-399",
        description="Statuses that are ok: 200, 2xx, 200-399 or a list. Redirects are answers and are not followed.",
    )
    host: _Word = Field("", description="Host header. Empty: the host of the URL.")
    headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")], SecretStr] = Field(
        default_factory=dict,
        description="Further request headers. Values are secrets: never shown; `${env:X}` is filled in.",
    )
    body: str = Field("", max_length=1_000, description="What the page must contain. Empty: anything.")
    tls: bool | None = Field(
        None, description="Whether to speak TLS. Unset: by scheme, and on port 443 of a tcp:// line."
    )
    sni: _Word = Field("", description=_SNI)
    ca: str = Field("", max_length=1_000, description=_CA)
    verify: bool = Field(True, description=_VERIFY)
    burst: _Burst = Field(1, description="Requests a round: one, for the same reason as the interval.")

    def misfit(self, endpoint: Endpoint) -> str:
        return f"{endpoint} is a name server" if endpoint.scheme == "dns" else super().misfit(endpoint)

    def idle(self, endpoint: Endpoint) -> frozenset[str]:
        by_default = endpoint.scheme in {"https", "tls"} or (endpoint.scheme == "tcp" and endpoint.port == 443)
        speaks = by_default if self.tls is None else self.tls
        return frozenset() if speaks else _TLS


class TlsProbe(Probe):
    """Times the handshake and reads the certificate. Advisory: collected and shown, never judged alone."""

    every: _Every = Field(30.0, description="With HTTP; a handshake is what a probe costs most.")
    sni: _Word = Field("", description=_SNI)
    ca: str = Field("", max_length=1_000, description=_CA)
    verify: bool = Field(True, description=_VERIFY)
    burst: _Burst = Field(1, description="One handshake tells all.")

    calm: ClassVar[bool] = True

    def misfit(self, endpoint: Endpoint) -> str:
        if endpoint.scheme == "dns":
            return f"{endpoint} is a name server"
        return f"{endpoint} speaks no TLS" if endpoint.scheme == "http" else super().misfit(endpoint)


def _joined(value: object) -> object:
    """A list of texts as one, comma-separated."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


class DnsProbe(Probe):
    """Asks a name server. Advisory, except on dns:// lines, where it is what the line is judged by."""

    every: _Every = Field(60.0, description="The source document's interval: names change slowly.")
    server: _Word = Field("", description="Empty: the dns:// line itself, else the agent's own resolver.")
    name: _Word = Field(
        "", description="What to ask for. Empty: the path of a dns:// line, else the host of the line's URL."
    )
    type: str = Field("", max_length=10, description="A, AAAA, TXT … Empty: A (AAAA for an IPv6 line).")
    expect: Annotated[str, BeforeValidator(_joined, json_schema_input_type=str | list[str])] = Field(
        "", description="Record data that must be among the answers, one or a list. Empty: any answer is ok."
    )
    rcode: str = Field("NOERROR", max_length=20, description="The answer's code that is ok.")
    burst: _Burst = Field(1, description="A name server is shared: one query a round.")

    calm: ClassVar[bool] = True

    def misfit(self, endpoint: Endpoint) -> str:
        if endpoint.scheme != "dns" and is_address(endpoint.host) and not self.name:
            return f"{endpoint} has no name to resolve; say probes.dns.name"
        return ""


class IcmpProbe(Probe):
    """Echo requests. Never decides where TCP or HTTP is probed; if all three fail, degraded becomes failed."""

    every: _Every = Field(5.0, description="As TCP.")
    size: int = Field(56, ge=16, le=65_000, description="Bytes of payload: what ping sends.")
    burst: _Burst = Field(5, description="As TCP.")

    def misfit(self, endpoint: Endpoint) -> str:
        del endpoint
        return ""


_NO_TCP: Final = frozenset({"dns", "icmp", "udp"})
"""Schemes of lines to which no TCP connection goes."""


class PassiveProbe(Probe):
    """Sends nothing: watches the TCP connections that other programs of the agent's machine have over the line. Linux only."""

    every: _Every = Field(
        1.0, description="One look at the kernel's table costs it a millisecond or two, for all lines."
    )
    burst: Annotated[int, Field(ge=1, le=1)] = Field(1, description="Nothing is sent: a look is a look.")
    timeout: _Timeout = Field(
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

    suspect: _Every = Field(
        2.0, description="Every judged kind's interval while its line is not healthy: recovery is seen soon."
    )
    tcp: Annotated[TcpProbe, BeforeValidator(_every_or_off, json_schema_input_type=TcpProbe | str)] = Field(
        default_factory=TcpProbe, description="tcp://, http://, https:// and tls:// lines have it."
    )
    http: Annotated[HttpProbe, BeforeValidator(_every_or_off, json_schema_input_type=HttpProbe | str)] = Field(
        default_factory=HttpProbe, description="http:// and https:// lines have it."
    )
    tls: Annotated[TlsProbe, BeforeValidator(_every_or_off, json_schema_input_type=TlsProbe | str)] = Field(
        default_factory=TlsProbe, description="https:// and tls:// lines have it."
    )
    dns: Annotated[DnsProbe, BeforeValidator(_every_or_off, json_schema_input_type=DnsProbe | str)] = Field(
        default_factory=DnsProbe, description="dns:// lines have it, at the pace of tcp."
    )
    icmp: Annotated[IcmpProbe, BeforeValidator(_every_or_off, json_schema_input_type=IcmpProbe | str)] = Field(
        default_factory=IcmpProbe, description="icmp:// lines have it, at the pace of tcp."
    )
    passive: Annotated[PassiveProbe, BeforeValidator(_every_or_off, json_schema_input_type=PassiveProbe | str)] = Field(
        default_factory=PassiveProbe, description="Lines with TCP connections have it where it is named: `passive: 1s`."
    )

    def of(self, kind: Kind) -> Probe:
        """The block of a kind."""
        found: Probe = getattr(self, kind.value)
        return found
