"""What ejects a line and for how long, as numbers: Envoy's fields with Envoy's defaults, and ours behind settings of their own.

Percentages and factors are Envoy's own integers; durations are milliseconds. Refuses to know where a number came from.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from reachline.errors import ConfigError, Problem

__all__ = [
    "ENVOY",
    "NATIVE",
    "SWEPT",
    "Decay",
    "Detector",
    "Growth",
    "OutlierRules",
    "Return",
    "Spread",
    "ceiling_ms",
    "checked",
    "enforcing",
]

_USUAL_CEILING_MS: Final = 300_000
"""Envoy's longest ejection where none is asked for, unless the base is longer."""
_LONGEST_MS: Final = 315_576_000_000
"""Ten years: any longer duration is a mistake of units."""


class Detector(Enum):
    """What found the line to be an outlier; the value is Envoy's word for it, `LATENCY` is ours."""

    CONSECUTIVE_5XX = "CONSECUTIVE_5XX"
    CONSECUTIVE_GATEWAY_FAILURE = "CONSECUTIVE_GATEWAY_FAILURE"
    CONSECUTIVE_LOCAL_ORIGIN_FAILURE = "CONSECUTIVE_LOCAL_ORIGIN_FAILURE"
    SUCCESS_RATE = "SUCCESS_RATE"
    SUCCESS_RATE_LOCAL_ORIGIN = "SUCCESS_RATE_LOCAL_ORIGIN"
    FAILURE_PERCENTAGE = "FAILURE_PERCENTAGE"
    FAILURE_PERCENTAGE_LOCAL_ORIGIN = "FAILURE_PERCENTAGE_LOCAL_ORIGIN"
    LATENCY = "LATENCY"


SWEPT: Final = (Detector.SUCCESS_RATE, Detector.FAILURE_PERCENTAGE, Detector.LATENCY)
"""Detectors that look at whole intervals of external results, in the order a sweep asks them."""


class Growth(Enum):
    """How the wait grows from one ejection to the next: 30, 60, 90 s or 30, 60, 120 s."""

    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class Return(Enum):
    """When a line whose time is over returns: at the next sweep, as in Envoy, or at once."""

    SWEEP = "sweep"
    EXACT = "exact"


class Decay(Enum):
    """When the wait shrinks by a step: at each sweep an interval after the return, as in Envoy, or once the line has
    stayed in for as long as it would be put out.
    """

    SWEEP = "sweep"
    STAYED = "stayed"


class Spread(Enum):
    """What a line is held against: mean and population deviation, as in Envoy, or median and 1.4826 times the MAD."""

    DEVIATION = "deviation"
    MAD = "mad"


class OutlierRules(NamedTuple):
    """Envoy's `outlier_detection`, field by field and with its defaults; what follows `always_eject_one_host` is ours."""

    consecutive_5xx: int = 5
    """0: never."""
    interval_ms: int = 10_000
    base_ejection_ms: int = 30_000
    max_ejection_percent: int = 10
    enforcing_consecutive_5xx: int = 100
    enforcing_success_rate: int = 100
    success_rate_minimum_hosts: int = 5
    success_rate_request_volume: int = 100
    success_rate_stdev_factor: int = 1_900
    """1/1000; also of the MAD."""
    consecutive_gateway_failure: int = 5
    enforcing_consecutive_gateway_failure: int = 0
    split_external_local_origin_errors: bool = False
    consecutive_local_origin_failure: int = 5
    enforcing_consecutive_local_origin_failure: int = 100
    enforcing_local_origin_success_rate: int = 100
    failure_percentage_threshold: int = 85
    enforcing_failure_percentage: int = 0
    enforcing_failure_percentage_local_origin: int = 0
    failure_percentage_minimum_hosts: int = 5
    failure_percentage_request_volume: int = 50
    max_ejection_ms: int | None = None
    """None: 300 s, or the base where that is longer."""
    max_ejection_jitter_ms: int = 0
    successful_active_health_check_uneject_host: bool = True
    always_eject_one_host: bool = False
    growth: Growth = Growth.LINEAR
    returns: Return = Return.SWEEP
    decay: Decay = Decay.SWEEP
    spread: Spread = Spread.DEVIATION
    """Of success rates; latencies are always held against median and MAD, for they have a long tail."""
    success_rate_minimum_gap: int = 0
    """Percentage points that a rate must lie below the mean (or median) to be an outlier at all."""
    latency: bool = False
    """Whether lines that answer far more slowly than the others are outliers."""
    latency_percentile: int = 50
    """Of a line's own successes in an interval: what is compared."""
    latency_factor: int = 3_000
    """1/1000 of 1.4826 times the MAD."""
    latency_minimum_gap_us: int = 50_000
    """Above the median by less than this is no outlier."""
    latency_minimum_hosts: int = 5
    latency_request_volume: int = 50
    enforcing_latency: int = 100
    together: tuple[Detector, ...] = ()
    """Detectors of `SWEPT` that eject only where all of them find the line in the same sweep; others eject alone."""
    max_ejection_percent_per_priority: int = 100
    """Of the lines of one priority, counted after the ejection; 100: only the cluster counts, as in Envoy."""
    keep_removed_ms: int = 0
    """A line that is gone for no longer than this returns with its ejection and its counters; 0: it starts clean."""
    keep_moved: bool = False
    """A line that moves to another priority keeps them as well."""


ENVOY: Final = OutlierRules()
"""As Envoy 1.40 does it."""
NATIVE: Final = OutlierRules(
    growth=Growth.EXPONENTIAL,
    returns=Return.EXACT,
    decay=Decay.STAYED,
    success_rate_minimum_gap=5,
    keep_removed_ms=60_000,
    keep_moved=True,
)
"""Ours: waits double, end on time and are forgiven slowly; a rate a few points lower is no outlier; state survives a gap."""

_ENFORCING: Final = {
    Detector.CONSECUTIVE_5XX: "enforcing_consecutive_5xx",
    Detector.CONSECUTIVE_GATEWAY_FAILURE: "enforcing_consecutive_gateway_failure",
    Detector.CONSECUTIVE_LOCAL_ORIGIN_FAILURE: "enforcing_consecutive_local_origin_failure",
    Detector.SUCCESS_RATE: "enforcing_success_rate",
    Detector.SUCCESS_RATE_LOCAL_ORIGIN: "enforcing_local_origin_success_rate",
    Detector.FAILURE_PERCENTAGE: "enforcing_failure_percentage",
    Detector.FAILURE_PERCENTAGE_LOCAL_ORIGIN: "enforcing_failure_percentage_local_origin",
    Detector.LATENCY: "enforcing_latency",
}
_PERCENTS: Final = (
    *_ENFORCING.values(), "max_ejection_percent", "max_ejection_percent_per_priority", "failure_percentage_threshold",
    "success_rate_minimum_gap",
)  # fmt: skip
_POSITIVE: Final = ("interval_ms", "base_ejection_ms", "max_ejection_ms")


def enforcing(detector: Detector, rules: OutlierRules) -> int:
    """How many of a hundred detections are acted on."""
    share: int = getattr(rules, _ENFORCING[detector])
    return share


def ceiling_ms(rules: OutlierRules) -> int:
    """The longest ejection, before jitter."""
    if rules.max_ejection_ms is not None:
        return rules.max_ejection_ms
    return max(_USUAL_CEILING_MS, rules.base_ejection_ms)


def checked(rules: OutlierRules, place: str = "outlier_detection") -> OutlierRules:
    """The same rules; ConfigError names every field that Envoy, or we, would refuse."""
    problems = []
    for name, value in zip(rules._fields, rules, strict=True):
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        low, high = _span(name)
        if not low <= value <= high:
            rule = f"must be a whole number from {low} to {high}"
            problems.append(Problem(place=place, path=name, value=str(value), rule=rule, hint="durations are in ms"))
    if ceiling_ms(rules) < rules.base_ejection_ms:
        both = f"{rules.max_ejection_ms} < {rules.base_ejection_ms}"
        rule = "must not be below base_ejection_ms"
        problems.append(Problem(place=place, path="max_ejection_ms", value=both, rule=rule))
    alien = [each.value for each in rules.together if each not in SWEPT]
    if alien or len(rules.together) == 1 or len(set(rules.together)) < len(rules.together):
        said = ", ".join(each.value for each in rules.together)
        rule = f"must be at least two different of {', '.join(each.value for each in SWEPT)}"
        problems.append(Problem(place=place, path="together", value=said, rule=rule))
    if Detector.LATENCY in rules.together and not rules.latency:
        rule, hint = "names LATENCY, which is not asked for", "set latency"
        problems.append(Problem(place=place, path="together", value="LATENCY", rule=rule, hint=hint))
    if problems:
        raise ConfigError(*problems)
    return rules


def _span(name: str) -> tuple[int, int]:
    if name in _PERCENTS:
        return 0, 100
    if name == "latency_percentile":
        return 1, 100
    return int(name in _POSITIVE), _LONGEST_MS
