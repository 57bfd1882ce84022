"""The document people write, as frozen settings: one definition gives validation, JSON Schema and the reference page.

A block may stand at the top (for every cluster) and in a cluster. What a cluster obeys in the end is `effective`'s answer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, SecretStr, model_validator

from reachline.doors.addresses import (
    Bind,
    Name,
    OptionalIp,
    OptionalName,
    Target,
    derived_names,
    parse_target,
)
from reachline.doors.agents import AgentSettings, LocalitySettings, MeshSettings
from reachline.doors.judging import (
    Business,
    CircuitBreaker,
    Enforce,
    Faults,
    Guard,
    HalfOpen,
    Judge,
    LocalBreaker,
    Patience,
    Recovery,
    enforced,
)
from reachline.doors.limits import Limits, Window
from reachline.doors.listening import Listens, Xds
from reachline.doors.origin import Origin
from reachline.doors.outbounds import Outbound
from reachline.doors.probe import Settings
from reachline.doors.probing import Probes
from reachline.doors.units import Duration, Size, refuse
from reachline.errors import Problem
from reachline.model import Endpoint

__all__ = [
    "AgentSettings",
    "Business",
    "Center",
    "CircuitBreaker",
    "Cluster",
    "Document",
    "Enforce",
    "Faults",
    "Guard",
    "HalfOpen",
    "Judge",
    "LineSettings",
    "LocalBreaker",
    "LocalitySettings",
    "MeshSettings",
    "Patience",
    "PolicyName",
    "Recovery",
    "RegionSettings",
    "RoleName",
    "Tls",
    "Tunable",
]

PolicyName = Literal["weighted", "primary_backup", "ab_groups"]
RoleName = Literal["primary", "backup", "traffic", "reserve"]
_Label = Annotated[str, Field(min_length=1, max_length=63)]
_ALIASES: Final = {"A": "traffic", "B": "reserve", "ab": "ab_groups"}


def _as_list(value: object) -> object:
    """One item for a list of one; `A` and `B` for traffic and reserve, `ab` for ab_groups."""
    if isinstance(value, str):
        value = [value]
    return (
        [_ALIASES.get(item, item) if isinstance(item, str) else item for item in value]
        if isinstance(value, list)
        else value
    )


_FROM_ONE: Final = BeforeValidator(_as_list, json_schema_input_type=str | list[str])
"""A list that may be written as its only item."""
_LOOSE: Final = Field(strict=False)
"""YAML has lists, settings have tuples."""


class LineSettings(Settings):
    """One way to reach the other side. A URL alone stands for `{to: URL}`."""

    to: Target = Field(
        repr=False,
        description="tcp://host:port, http(s)://host/path, tls://host:port, grpc(s)://host:port/service, redis(s)://host, "
        "udp://host:port, dns://server/name or icmp://host.",
    )
    via: Outbound = Field(
        "direct",
        description="How connections leave: direct, socks5:// (names resolved here), socks5h:// (by the proxy), http:// or https:// (CONNECT), with user:password@host:port; a list is a chain, the first hop first.",
    )
    source: OptionalIp = Field("", description="Source address to bind. Empty: the agent's own choice.")
    interface: str = Field(
        "", max_length=15, pattern=r"^[!-.0-~]*$", description="Interface to leave by. Empty: as routed."
    )
    family: Literal[4, 6] | None = Field(
        None,
        description="IPv4 or IPv6 where the host is a name: it never falls back to the other, and both are two lines. Unset: "
        "whichever the name has.",
    )
    role: Annotated[tuple[RoleName, ...], _LOOSE, _FROM_ONE] = Field(
        (), description="Place in the policy: primary or backup, traffic or reserve (A and B are read as such)."
    )
    weight: int = Field(
        100, ge=1, le=1_000_000, description="Share in health against the other lines: 100 reads as percent."
    )
    provider: str = Field(
        "", max_length=63, description="Who runs the line: lines of one provider tend to fail together."
    )
    groups: Annotated[tuple[_Label, ...], _LOOSE, _FROM_ONE] = Field(
        (), description="What else the line shares with others (a fibre, a building)."
    )
    mark: int | None = Field(
        None,
        ge=1,
        le=2**32 - 1,
        description="SO_MARK by which `probes.passive` with `match: mark` knows the line's connections, wherever they go.",
    )
    capacity: int | None = Field(None, ge=1, description="Requests per second it carries, where known. Kept and shown.")
    origins: Annotated[tuple[Name, ...], _LOOSE, _FROM_ONE] = Field(
        (),
        alias="from",
        description="Zones it is seen from, each a line of its own (@zone). Unset: every agent sees the same line.",
    )
    region: OptionalName = Field(
        "", description="Where the other side stands. Lines that name one take part in the plan across regions."
    )
    drained: bool = Field(False, description="True: probed and judged, but given no traffic.")

    @cached_property
    def endpoint(self) -> Endpoint:
        """What `to` names, in the family it says."""
        found = parse_target(self.to)
        return found if self.family is None else replace(found, family=self.family)

    @model_validator(mode="after")
    def _of_one_family(self) -> Self:
        own = parse_target(self.to).family
        if self.family is not None and own not in {0, self.family}:
            raise refuse(f"says family {self.family} of an IPv{own} address", "drop family, or name the other address")
        return self


def _line(value: object) -> object:
    if value is None:
        raise refuse("is empty", "write a URL such as tcp://10.0.0.1:443")
    return value if isinstance(value, dict) else {"to": value}


def _lines(value: object) -> object:
    """A list of lines by derived name."""
    if not isinstance(value, list):
        return value
    targets = [item.get("to", "") if isinstance(item, dict) else item for item in value]
    return dict(zip(derived_names([str(target) for target in targets]), value, strict=True))


_Line = Annotated[LineSettings, BeforeValidator(_line, json_schema_input_type=LineSettings | str)]
_Lines = Annotated[
    dict[Name, _Line],
    BeforeValidator(_lines, json_schema_input_type=dict[str, LineSettings | str] | list[LineSettings | str]),
    Field(min_length=1),
]


class Tunable(Settings):
    """What may be said for all clusters at the top of the document, and again in a cluster, which wins."""

    mode: Literal["literal", "fast"] = Field(
        "literal",
        description="literal: readings held against `limits`, as the source document has it. fast: what all vantages and calls "
        "saw since the last tick adds up, judged every 2 s.",
    )
    preset: Literal["quick_recovery", "default", "high_stability"] = Field(
        "default",
        description="A consistent set of judge, patience, faults and circuit_breaker numbers; explicit keys win over it.",
    )
    service_class: Literal["rpc", "bulk", "long_haul"] | None = Field(
        None,
        alias="class",
        description="Whose idea of slow: rpc means P95 100/300 ms, bulk ignores round trip and jitter, long_haul lets a line be "
        "2.5 (degraded) and 5 times (failed) its own usual round trip where that is above `limits`. Explicit limits win over "
        "rpc and bulk.",
    )
    policy: Annotated[tuple[PolicyName, ...], _LOOSE, _FROM_ONE] = Field(
        ("weighted",), min_length=1, description="How lines share traffic; stacked as a list, outermost first."
    )
    enforce: Annotated[Enforce, BeforeValidator(enforced, json_schema_input_type=Enforce | bool)] = Field(
        Enforce(), description="false: judge and record, publish the base weights. A block says it for single rules."
    )
    limits: Limits = Field(Limits(), description="Where metrics turn degraded and failed.")
    probes: Probes = Field(Probes(), description="What is sent, how often.")
    window: Window = Field(Window(), description="What an agent keeps to judge by.")
    judge: Judge = Field(Judge(), description="Pace and vote.")
    patience: Patience = Field(Patience(), description="How many ticks it takes to believe.")
    faults: Faults = Field(Faults.model_construct(), description="What bad ticks cost.")
    circuit_breaker: CircuitBreaker = Field(CircuitBreaker(), description="Trip, wait, trial, ramp.")
    recovery: Recovery | None = Field(
        None, description="Read here too, one level above circuit_breaker; both places are an error."
    )
    guard: Guard = Field(Guard(), description="How far automation may go.")
    business: Business = Field(Business(), description="What the business's own calls have to say.")
    local_breaker: LocalBreaker = Field(LocalBreaker(), description="The breaker inside each client.")
    xds: Xds = Field(Xds(), description="How Envoys and gRPC clients connect to lines.")


class Cluster(Tunable):
    """A named set of interchangeable lines."""

    lines: _Lines = Field(description="A list of URLs, or a mapping of names to lines.")
    priority: int = Field(
        0,
        ge=0,
        le=1_000,
        description="Business priority, higher first: who is carried when regions do not carry everything. 0 until it is given.",
    )
    listen: Listens = Field(
        (), description="Where Envoys that follow this center take calls for the cluster, each `host:port` or a block."
    )


class RegionSettings(Settings):
    """One region that lines stand in: what it carries is shared among clusters by their priority."""

    capacity: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="Calls a second it carries in all, whatever its lines could. Unset: the sum of its lines' capacities.",
    )


class Tls(Settings):
    """Certificates of the center's doors."""

    certificate: str = Field(min_length=1, description="PEM file, the server's chain.")
    key: str = Field(min_length=1, description="PEM file, its key.")
    client_ca: str = Field(
        "", description="PEM file: agents must show a certificate it signed. Empty: none is asked for."
    )


class Center(Settings):
    """Where the center listens and what it keeps. All of it needs a restart to change."""

    grpc: Bind = Field("127.0.0.1:7600", description="Agents come in here. Loopback: nothing is public by accident.")
    http: Bind = Field("127.0.0.1:7680", description="Console, API, clients. Loopback for the same reason.")
    journal: str = Field(
        "./journal", min_length=1, description="Directory of evidence and decisions: a restart goes on from it."
    )
    journal_keep: Annotated[Duration, Field(ge=3_600, le=315_360_000)] = Field(
        604_800.0, description="Segments older than this go: a week reaches back past the last incident review."
    )
    journal_size: Annotated[Size, Field(ge=10_000_000)] = Field(
        2_000_000_000, description="Oldest segments go beyond this: room that a small disk has."
    )
    token: SecretStr | None = Field(
        None, description="Clients must show it on the HTTP door. Write ${env:X} or ${file:/…}."
    )
    access: str = Field(
        "",
        description="File of people and tokens (`reachline access`): who looks, tells, operates, administers. In place of `token`.",
    )
    tls: Tls | None = Field(None, description="Certificates; without them a public address is refused.")
    ca: str = Field(
        "",
        description="Directory of a small authority (`reachline ca init`): agents join by token, and each reports as itself alone. "
        "It certifies this center too, where `tls` does not.",
    )
    names: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9.:-]{1,253}$")], ...] = Field(
        (), description="Names and addresses that its own certificate says, beside this machine's and loopback."
    )
    insecure: bool = Field(
        False, description="True: a public address without TLS and tokens is wanted (a trusted network)."
    )


class Document(Tunable):
    """The whole document of the reach door."""

    schema_version: Literal[1] = Field(1, description="Of this document's form; older ones are upgraded when read.")
    seed: int = Field(
        0, ge=0, description="Of every chance in a decision (cooldown jitter): the same seed replays the same."
    )
    clusters: Annotated[dict[Name, Cluster], Field(min_length=1)] = Field(description="What is watched, by name.")
    regions: dict[Name, RegionSettings] = Field(
        default_factory=dict, description="What regions carry in all, by the names that lines say."
    )
    agents: dict[Name, AgentSettings] = Field(
        default_factory=dict, description="The vantages that are expected. Without them whoever joins counts."
    )
    mesh: MeshSettings = Field(MeshSettings(), description="How agents measure the ways between each other.")
    center: Center = Field(Center(), description="The center's addresses and journal.")

    _origin: Origin = PrivateAttr(default_factory=Origin)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What `read` found odd but not wrong."""
        return self._origin.warnings

    def place(self, path: tuple[str | int, ...]) -> str:
        """`file:line:column` of a key, or of the nearest block above it that stands in the file."""
        return self._origin.place(path)

    def revealed(self, text: str) -> str:
        """A URL with its secrets filled in. Never to be shown."""
        return self._origin.revealed(text)

    @property
    def origin(self) -> Origin:
        """Where it comes from."""
        return self._origin

    def read_from(self, origin: Origin) -> Document:
        """The same settings that know where they come from."""
        copy = self.model_copy()
        copy._origin = origin  # noqa: SLF001  (its own)
        return copy
