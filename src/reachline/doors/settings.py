"""The document people write, as frozen settings: one definition gives validation, JSON Schema and the reference page.

A block may stand at the top (for every cluster) and in a cluster. What a cluster obeys in the end is `effective`'s answer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr, model_validator

from reachline.doors.addresses import (
    Bind,
    Name,
    OptionalIp,
    Target,
    derived_names,
    parse_target,
)
from reachline.doors.agents import AgentSettings, LocalitySettings, MeshSettings
from reachline.doors.limits import Limits, Window
from reachline.doors.origin import Origin
from reachline.doors.outbounds import Outbound
from reachline.doors.probe import Settings
from reachline.doors.probing import Probes
from reachline.doors.units import Duration, Share, Size, refuse
from reachline.errors import Problem
from reachline.model import Endpoint

__all__ = [
    "AgentSettings",
    "Center",
    "CircuitBreaker",
    "Cluster",
    "Document",
    "Faults",
    "HalfOpen",
    "Judge",
    "LineSettings",
    "LocalBreaker",
    "LocalitySettings",
    "MeshSettings",
    "Patience",
    "PolicyName",
    "Recovery",
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


class Judge(Settings):
    """The pace of judging, and who counts in a vote."""

    tick: Annotated[Duration, Field(ge=0.5, le=600)] = Field(10.0, description="Judged this often: once a heartbeat.")
    heartbeat: Annotated[Duration, Field(ge=0.5, le=600)] = Field(
        10.0, description="Agents report this often (and at once on a change): the source document's pace."
    )
    vote_share: Share = Field(
        0.5, ge=0.5, lt=1, description="A zone needs strictly more than this share of the vantages heard."
    )
    fresh: float = Field(
        2.5, ge=1, le=100, description="Heartbeats for which a vote counts: one may be lost, one late."
    )
    blind: Annotated[Duration, Field(ge=1, le=86_400)] = Field(
        60.0, description="Unheard this long, a line is blind: held, not judged."
    )


class Patience(Settings):
    """How many ticks in a row it takes to believe."""

    degraded: int = Field(2, ge=1, le=1_000, description="Ticks to degraded: one may be chance.")
    failed: int = Field(3, ge=1, le=1_000, description="Failed ticks to open the breaker: the source document's three.")
    recover: int = Field(3, ge=1, le=1_000, description="Good ticks back to healthy: as many as it took to leave.")
    lone_failed: int = Field(
        6, ge=1, le=1_000, description="Failed ticks where only one vantage is configured: nobody can second it."
    )


class Faults(Settings):
    """What a bad tick costs a line's weight: base · exp(-lambda · faults)."""

    decay: float = Field(
        0.15, gt=0, le=5, alias="lambda", description="The source document's decay: 86 % is left after one fault."
    )
    half_life: Annotated[Duration, Field(ge=0.1, le=86_400)] = Field(
        30.0, description="Good time in which half the faults fade."
    )


class HalfOpen(Settings):
    """The trial after the cooldown; keys and defaults of the source document."""

    traffic_ratio: Share = Field(
        0.05,
        gt=0,
        lt=1,
        description="Share of its weight a line gets on trial: enough to learn from, too little to hurt.",
    )
    min_window_seconds: float = Field(30.0, ge=1, le=86_400, description="Shortest trial.")
    min_success_requests: int = Field(200, ge=1, le=10_000_000, description="Successes a trial needs besides.")
    max_success_requests: int = Field(1_000, ge=1, le=10_000_000, description="Counting stops here: evidence enough.")
    fail_threshold: int = Field(3, ge=1, le=10_000, description="Failures that end the trial at once.")
    cooldown_multiplier: float = Field(
        2.0, ge=1, le=100, description="Each failed trial lengthens the cooldown by this factor."
    )


class Recovery(Settings):
    """The way back to full weight."""

    step_ratios: Annotated[
        tuple[Annotated[Share, Field(gt=0, le=1)], ...], Field(strict=False, min_length=1, max_length=50)
    ] = Field(
        (0.05, 0.1, 0.2, 0.4, 0.6, 1.0),
        description="Shares of the base weight after the trial (those above `traffic_ratio`): connections warm up on the way.",
    )
    step_interval_seconds: float = Field(30.0, ge=1, le=86_400, description="Shortest time at each step.")


class CircuitBreaker(Settings):
    """Trip, wait, trial, ramp: the source document's block, key by key, and the few numbers it leaves open."""

    cooldown_seconds: float = Field(60.0, ge=1, le=86_400, description="Open this long before the first trial.")
    max_cooldown_seconds: float = Field(
        960.0,
        ge=1,
        le=604_800,
        description="Ceiling of the growing cooldown: four doublings. Unset beside a changed `cooldown_seconds`: 16 times that.",
    )
    cooldown_jitter: float = Field(
        0.1, ge=0, le=0.5, description="Cooldowns vary by this share, so that lines do not return together."
    )
    reset_seconds: float = Field(
        600.0, ge=1, le=604_800, description="Closed this long with traffic, reopenings are forgiven."
    )
    half_open: HalfOpen = Field(HalfOpen(), description="The trial.")
    cooldown_multiplier: float | None = Field(
        None,
        ge=1,
        le=100,
        description="Read here too (the source document's indentation is lost); both places are an error.",
    )
    recovery: Recovery = Field(Recovery(), description="The ramp.")


class LocalBreaker(Settings):
    """The breaker inside each client, sent to it as data."""

    failures: int = Field(
        2, ge=1, le=1_000, description="Failed calls in a row that open it: the source document's two."
    )
    open: Annotated[Duration, Field(ge=0.1, le=3_600)] = Field(5.0, description="First time open; doubles.")
    open_cap: Annotated[Duration, Field(ge=0.1, le=86_400)] = Field(60.0, description="Longest time open.")
    max_open: Share = Field(
        0.5, gt=0, le=1, description="At most this share of a cluster's lines, and never the last one."
    )


def _long_haul(value: str) -> str:
    if value == "long_haul":
        hint = "write rpc or bulk, or limits of your own: limits: {p95: {degraded: 400ms, failed: 800ms}}"
        raise refuse("long_haul is not built yet: its limits are multiples of a baseline, which nobody learns", hint)
    return value


_Class = Annotated[Literal["rpc", "bulk", "long_haul"], AfterValidator(_long_haul)]


class Tunable(Settings):
    """What may be said for all clusters at the top of the document, and again in a cluster, which wins."""

    preset: Literal["quick_recovery", "default", "high_stability"] = Field(
        "default",
        description="A consistent set of judge, patience, faults and circuit_breaker numbers; explicit keys win over it.",
    )
    service_class: _Class | None = Field(
        None,
        alias="class",
        description="Whose idea of slow: rpc means P95 100/300 ms, bulk ignores round trip and jitter. Explicit limits win "
        "over it. long_haul (limits by a learned baseline) is not built yet and refused.",
    )
    policy: Annotated[tuple[PolicyName, ...], _LOOSE, _FROM_ONE] = Field(
        ("weighted",), min_length=1, description="How lines share traffic; stacked as a list, outermost first."
    )
    enforce: bool = Field(True, description="False: judge and record, but publish the base weights.")
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
    local_breaker: LocalBreaker = Field(LocalBreaker(), description="The breaker inside each client.")


class Cluster(Tunable):
    """A named set of interchangeable lines."""

    lines: _Lines = Field(description="A list of URLs, or a mapping of names to lines.")
    priority: int = Field(
        0, ge=0, le=1_000, description="Business priority, higher first. Kept and shown; 0 until it is given."
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
    tls: Tls | None = Field(None, description="Certificates; without them a public address is refused.")
    insecure: bool = Field(
        False, description="True: a public address without TLS and tokens is wanted (a trusted network)."
    )


def _fast(value: str) -> str:
    if value == "fast":
        raise refuse("fast is not built yet", "write literal (or leave the key out)")
    return value


class Document(Tunable):
    """The whole document of the reach door."""

    schema_version: Literal[1] = Field(1, description="Of this document's form; older ones are upgraded when read.")
    mode: Annotated[Literal["literal", "fast"], AfterValidator(_fast)] = Field(
        "literal",
        description="literal: the source document's rules. fast (a pooled CUSUM) is not built yet and refused.",
    )
    seed: int = Field(
        0, ge=0, description="Of every chance in a decision (cooldown jitter): the same seed replays the same."
    )
    clusters: Annotated[dict[Name, Cluster], Field(min_length=1)] = Field(description="What is watched, by name.")
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

    def read_from(self, origin: Origin) -> Document:
        """The same settings that know where they come from."""
        copy = self.model_copy()
        copy._origin = origin  # noqa: SLF001  (its own)
        return copy
