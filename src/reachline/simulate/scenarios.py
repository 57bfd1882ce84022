"""The scenario file: incidents as data. Times in seconds from a scenario's start, rates as fractions, latencies in ms.

One definition gives validation and reference; `reading.read` says where in the file something is wrong. What each key means
stands in its description.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ALL",
    "Admin",
    "Agents",
    "Baseline",
    "Limits",
    "LineSettings",
    "Phase",
    "Scenario",
    "ScenarioFile",
    "Traffic",
    "Truth",
]

ALL: Final = "all"
"""Where a phase or a truth names a line: every one."""

Second = Annotated[float, Field(ge=0, le=10_000_000)]
Span = Annotated[float, Field(gt=0, le=10_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]
Milli = Annotated[float, Field(ge=0, le=600_000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
Count = Annotated[float, Field(ge=0)]
Admin = Literal["drain"]


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)


class Baseline(_Block):
    """A line in health."""

    rtt_median: Annotated[float, Field(gt=0, le=60_000)] = 60
    rtt_p95: Annotated[float, Field(gt=0, le=60_000)] = 110
    loss: Share = 0.004
    timeout: Share = 0.0
    http_5xx: Share = 0.001
    reset: Share = 0.0


class Agents(_Block):
    """The vantages: `a1`, `a2`… One vote each."""

    count: Annotated[int, Field(ge=0, le=100)] = 5
    tcp_interval_s: Annotated[float, Field(ge=0.1, le=3_600)] = 5
    tcp_interval_suspect_s: Annotated[float, Field(ge=0.1, le=3_600)] = 2
    burst: Annotated[int, Field(ge=1, le=100)] = 5
    http_interval_s: Annotated[float, Field(ge=0.1, le=3_600)] = 30
    dns_interval_s: Annotated[float, Field(ge=0.1, le=3_600)] = 60
    icmp_interval_s: Annotated[float, Field(ge=0.1, le=3_600)] = Field(10, description="Where a phase touches ICMP.")
    heartbeat_s: Annotated[float, Field(ge=0.1, le=600)] = Field(10, description="Of `literal`; `fast` has its own.")
    report_delay_ms: Annotated[int, Field(ge=0, le=60_000)] = 50


class LineSettings(_Block):
    """One line as people configure it."""

    base: Annotated[int, Field(ge=1, le=10_000)] = 100
    role: Literal["", "primary", "backup", "traffic", "reserve", "A", "B"] = ""
    provider: Name | None = None
    capacity_rps: Annotated[int, Field(ge=1)] | None = None


class Retry(_Block):
    """What callers do after a call that failed: at most `max` more tries, together at most this share of all calls."""

    max: Annotated[int, Field(ge=0, le=10)] = 1
    budget: Share | None = 0.2


class Traffic(_Block):
    """Who calls, and how often."""

    rps: Annotated[float, Field(ge=0, le=1_000_000)] = 900
    sdk_instances: Annotated[int, Field(ge=1, le=1_000)] = 20
    flush_s: Annotated[float, Field(ge=0.2, le=60)] = 1
    retry: Retry = Retry()
    diurnal: Annotated[list[Annotated[float, Field(ge=0, le=100)]], Field(min_length=2, max_length=2)] | None = None
    services: dict[Name, Share] = Field({}, description="Share of the instances of each service; the rest is `main`.")


class Cold(_Block):
    """New connections are slower, and not made without end."""

    extra_ms: Milli = 120
    warm_after_requests: Annotated[int, Field(ge=0)] = 20
    max_new_per_s: Annotated[int, Field(ge=1)] = 50


class Capacity(_Block):
    """What load does to a line: P95 grows from the knee on, calls fail beyond capacity."""

    knee: Annotated[float, Field(gt=0, lt=1)] = 0.85
    p95_factor_at_100pct: Annotated[float, Field(ge=1, le=1_000)] = 4
    fail_at_120pct: Share = 0.3


class Effect(_Block):
    """What replaces the baseline while a phase holds."""

    rtt_median: Annotated[float, Field(gt=0, le=60_000)] | None = None
    rtt_p95: Annotated[float, Field(gt=0, le=60_000)] | None = None
    rtt_p99: Annotated[float, Field(gt=0, le=60_000)] | None = None
    rtt_max: Annotated[float, Field(gt=0, le=600_000)] | None = None
    loss: Share | None = Field(None, description="Of round trips; with `dir` of that direction's packets.")
    timeout: Share | None = Field(None, description="Of calls and HTTP probes.")
    connect_fail: Share | None = Field(None, description="Of calls and all probes that connect.")
    http_5xx: Share | None = None
    reset: Share | None = None
    rtt_add: Milli | None = None
    drop_if_bytes_over: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Calls die after that many bytes; connects and small probes stay green."
    )


class Local(_Block):
    """What one vantage does to all that it sends and receives."""

    loss: Share = 0.0
    rtt_add: Milli = 0.0


class FlowHash(_Block):
    """Only connections whose hash falls into `bad` are touched."""

    buckets: Annotated[int, Field(ge=2, le=1_024)]
    bad: list[Annotated[int, Field(ge=0)]]
    connect_fail: Share = 1.0


class StaleDns(_Block):
    """Names resolve to an address where nobody answers."""

    stale_address: Literal["dead"] = "dead"


class Partition(_Block):
    """Who still reaches the center and who does not: agents by name, and `sdk`."""

    center_side: list[Name] = []
    other: list[Name] = []


class Phase(_Block):
    """One thing that happens: what, to whom, from when to when."""

    from_: Second = Field(alias="from")
    to: Second
    every_s: Span | None = Field(None, description="Repeated so often…")
    for_s: Span | None = Field(None, description="…for so long.")
    period_s: Span | None = Field(None, description="Of an oscillation.")
    ramp: Literal["step", "linear", "sine"] = "step"
    line: Name | None = None
    agent: Name | None = None
    agents: list[Name] | None = None
    center: Literal["down", "restart"] | None = None
    service: Name | None = None
    sdk_share: Share | None = None
    applies_to: Literal["both", "probe", "business", "icmp"] = "both"
    dir: Literal["both", "fwd", "rev"] = "both"
    set_: Effect | None = Field(None, alias="set")
    local: Local | None = None
    flow_hash: FlowHash | None = None
    dns: StaleDns | None = None
    partition: Partition | None = None
    silent: bool = Field(False, description="The named agents stop reporting.")
    agents_rolling_restart_s: Span | None = None
    clock_offset_s: float | None = None
    clock_step_s: float | None = None
    clock_ppm: float | None = None
    admin: Admin | None = None
    config: dict[str, object] | None = Field(None, description="Keys of a document that somebody pushes.")
    note: str = ""


class Truth(_Block):
    """What a line really is, for the oracle and the scoring: a contender never sees it."""

    line: Name
    from_: Second = Field(alias="from")
    to: Second
    class_: Literal["degraded", "down"] = Field(alias="class")
    direction: Literal["fwd", "rev"] | None = None
    group: Name | None = None
    note: str = ""


class OpenAfter(_Block):
    """`t_open_after_down_class`, for runs without and with calls."""

    active_only: Count | None = None
    with_passive: Count | None = None


class LiteralMeasured(_Block):
    """For information."""

    degraded_med: Count | None = None
    down_med: Count | None = None


class BShare(_Block):
    """Share of the reserve group by how many of the traffic group are down."""

    healthy: Share
    one_down: Share
    both_down: Share


Shares = Annotated[list[Share], Field(min_length=1)]


class Limits(_Block):
    """What must hold. Seconds, counts and shares are upper bounds; a truth must be so."""

    t_detect: Count | None = None
    t_drain: Count | None = None
    t_drain_25pct: Count | None = None
    t_open_after_down_class: OpenAfter | None = None
    document_claim_t_drain: Count | None = Field(None, description="Information only.")
    literal_measured: LiteralMeasured | None = Field(None, description="Information only.")
    sdk_local_avoid: Count | None = None
    t_restore_first: Count | None = None
    t_restore_full: Count | None = None
    t_detect_after_return: Count | None = None
    t_agent_quarantine: Count | None = None
    blind_flag_within: Count | None = None
    false_trips_per_h: Count | None = None
    false_degrades_per_h: Count | None = None
    decisions_per_h: Count | None = None
    opens: Count | None = None
    reopen: Count | None = None
    line_trips: Count | None = None
    false_close: Count | None = None
    flaps: Count | None = None
    bad_requests: Share | None = None
    needless_shift: Share | None = None
    overload_peak: Count | None = None
    overload_s: Count | None = None
    amplification: Count | None = None
    max_weight_dip: Share | None = None
    max_share_seen: Share | None = None
    p95_during_ramp_ms: Count | None = None
    share_healthy: Shares | None = None
    share_at_degrade: Shares | None = None
    share_down: Shares | None = None
    b_share: BShare | None = None
    traffic_to_open_line: Count | None = None
    drained_line_traffic_after_10s: Count | None = None
    votes_lost: Count | None = None
    negative_rtt: Count | None = None
    simultaneous_half_open_in_group: Count | None = None
    incidents: Count | None = None
    agent_confidence_drop: bool | None = None
    cooldown_doubles: bool | None = None
    breaker_state_kept: bool | None = None
    recovers_after_fault: bool | None = None
    panic_flag: bool | None = None
    blast_guard_holds: bool | None = None
    never_zero_total_weight: bool | None = None
    affected_callers_only: bool | None = None
    baseline_must_not_learn_fault: bool | None = None
    config_rejected_or_shadowed: bool | None = None
    weights_reset_to_equal: bool | None = None
    direction_named: Name | None = None
    group_named: Name | None = None
    cause_named: Name | None = None
    note: str = ""


Policy = Literal["weighted", "primary_backup", "ab_groups", "ab"]


class _Common(_Block):
    """What a scenario says, or the file's defaults say for all."""

    warmup_s: Second = 300
    duration_s: Span = 1_200
    rng_seeds: Annotated[list[int], Field(min_length=1)] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    rtt_model: Literal["lognormal"] = "lognormal"
    baseline: Baseline = Baseline()
    request_timeout_ms: Annotated[int, Field(ge=10, le=60_000)] = 1_000
    syn_rto_ms: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)] = [1_000, 3_000, 7_000]
    agents: Agents = Agents()
    lines: Annotated[dict[Name, LineSettings], Field(min_length=1, max_length=1_000)] = Field(
        {"L1": LineSettings(), "L2": LineSettings(), "L3": LineSettings()}
    )
    policy: Policy | list[Policy] = "weighted"
    traffic: Traffic = Traffic()
    push_delay_ms: Annotated[int, Field(ge=0, le=60_000)] = 100
    cold_connection: Cold = Cold()
    capacity_model: Capacity = Capacity()


class Defaults(_Common):
    """For all scenarios; a scenario's own keys win, block by block and key by key (`lines` as a whole)."""


class Scenario(_Common):
    """One incident."""

    id: Name
    title: str = ""
    source: str = ""
    phases: list[Phase] = []
    truth: list[Truth] = []
    limits: Limits = Limits()


class Trace(_Block):
    """A golden trace: zones in, what the judge must make of them. Told here, tested elsewhere."""

    zones: str
    wire: list[int]
    raw: list[float]
    f: list[float]
    judge: list[str]
    breaker: list[str]
    requests_ok_bad: list[list[int]] = []


class PolicyVector(_Block):
    """Shares that a policy must give."""

    primary: str = ""
    f: float = 0
    r: float = 0
    hA: float = 0  # noqa: N815  (the file's word)
    shares: list[Share]


class ScenarioFile(_Block):
    """The whole file."""

    version: Literal[1] = 1
    defaults: Defaults = Defaults()
    scoring: dict[str, str] = Field({}, description="What the figures mean, in words.")
    scenarios: Annotated[list[Scenario], Field(min_length=1)]
    golden_traces: dict[str, Trace | dict[str, list[PolicyVector]]] = {}
