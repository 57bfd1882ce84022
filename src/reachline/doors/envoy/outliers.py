"""`outlier_detection` of a cluster as rules, field by field."""

from __future__ import annotations

from typing import Final

from reachline.core.outlier_rules import ENVOY, OutlierRules, ceiling_ms
from reachline.doors.envoy.fields import Block

__all__ = ["outliers"]

_PERCENTS: Final = (
    "max_ejection_percent", "enforcing_consecutive_5xx", "enforcing_success_rate",
    "enforcing_consecutive_gateway_failure", "enforcing_consecutive_local_origin_failure",
    "enforcing_local_origin_success_rate", "failure_percentage_threshold", "enforcing_failure_percentage",
    "enforcing_failure_percentage_local_origin",
)  # fmt: skip
_COUNTS: Final = (
    "consecutive_5xx", "success_rate_minimum_hosts", "success_rate_request_volume", "success_rate_stdev_factor",
    "consecutive_gateway_failure", "consecutive_local_origin_failure", "failure_percentage_minimum_hosts",
    "failure_percentage_request_volume",
)  # fmt: skip
_FLAGS: Final = (
    "split_external_local_origin_errors", "successful_active_health_check_uneject_host", "always_eject_one_host",
)  # fmt: skip
_DURATIONS: Final = {
    "interval": ("interval_ms", 1), "base_ejection_time": ("base_ejection_ms", 1),
    "max_ejection_time": ("max_ejection_ms", 1), "max_ejection_time_jitter": ("max_ejection_jitter_ms", 0),
}  # fmt: skip
_UNSUPPORTED: Final = {
    "monitors": "extension monitors are Envoy's own; use the detectors of these fields",
    "detect_degraded_hosts": "an active check hears x-envoy-degraded",
}


def outliers(block: Block | None) -> OutlierRules | None:
    """The rules; None where outlier detection is off, which it is unless its block stands there."""
    if block is None:
        return None
    defaults = ENVOY._asdict()
    read: dict[str, object] = {name: block.whole(name, defaults[name], most=100) for name in _PERCENTS}
    read |= {name: block.whole(name, defaults[name]) for name in _COUNTS}
    read |= {name: block.flag(name, defaults[name]) for name in _FLAGS}
    for name, (own, least) in _DURATIONS.items():
        read[own] = block.ms(name, defaults[own], least=least)
    block.unsupported(_UNSUPPORTED)
    block.done()
    rules = ENVOY._replace(**read)  # type: ignore[arg-type]  # by name, from the same table
    if ceiling_ms(rules) < rules.base_ejection_ms:
        block.refuse("max_ejection_time", "must not be below base_ejection_time")
    return rules
