"""What a sweep finds in the interval that ended: lines whose success rate, failures or latency lie too far from the others'.

Pure functions over monitors; refuses to know whether a finding is acted on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from reachline.core.ejection import Monitor
from reachline.core.outlier_rules import Detector, OutlierRules, Spread
from reachline.core.outlying import POINT, Bar, below, percentile, rate

__all__ = ["Finding", "Sweep", "external", "local"]

_EXTERNAL: Final = (Detector.SUCCESS_RATE, Detector.FAILURE_PERCENTAGE)
_LOCAL: Final = (Detector.SUCCESS_RATE_LOCAL_ORIGIN, Detector.FAILURE_PERCENTAGE_LOCAL_ORIGIN)


class Finding(NamedTuple):
    """One line found by one detector; `value` is its success rate in 1/RATE, or its latency in us."""

    detector: Detector
    line: str
    value: int
    bar: Bar | None = None
    """What it was held against; failure percentages are held against the setting alone."""
    is_alone: bool = False
    """Other detectors would have to find it as well, and have not."""


class Sweep(NamedTuple):
    """Findings in the order they are to be acted on (of one detector worst first), and the bar of success rates, if any."""

    findings: tuple[Finding, ...] = ()
    bar: Bar | None = None


def external(monitors: Mapping[str, Monitor], rules: OutlierRules) -> Sweep:
    """What answers, and how fast they came, say."""
    rates, slow = _rates(monitors, rules, _EXTERNAL), _slow(monitors, rules)
    return Sweep(_joined((*rates.findings, *slow), rules), rates.bar)


def local(monitors: Mapping[str, Monitor], rules: OutlierRules) -> Sweep:
    """What our own side of connections says; nothing unless origins are split."""
    return _rates(monitors, rules, _LOCAL) if rules.split_external_local_origin_errors else Sweep()


def _rates(monitors: Mapping[str, Monitor], rules: OutlierRules, detectors: tuple[Detector, Detector]) -> Sweep:
    """Ejected lines count toward the minimum of hosts of the cluster, but do not take part; nor do idle ones."""
    by_rate, by_failures = detectors
    if len(monitors) < min(rules.success_rate_minimum_hosts, rules.failure_percentage_minimum_hosts):
        return Sweep()
    compared: dict[str, int] = {}
    failing: dict[str, int] = {}
    heard, by_rate_least, by_failures_least = (
        0,
        rules.success_rate_request_volume,
        rules.failure_percentage_request_volume,
    )
    told_least, is_external = min(by_rate_least, by_failures_least), detectors is _EXTERNAL
    for line, monitor in monitors.items():
        ok, total = monitor.last_external if is_external else monitor.last_local
        if not total or monitor.ejection is not None:
            continue
        value = rate(ok, total)
        if total >= told_least:
            monitor.rates[by_rate] = value
        if total >= by_rate_least:
            compared[line] = value
        if total >= by_failures_least:
            heard += 1
            if 100 * (total - ok) >= rules.failure_percentage_threshold * total:  # at the threshold is enough
                failing[line] = value
    bar, low = _low(compared, rules)
    enough = heard >= rules.failure_percentage_minimum_hosts
    found = [Finding(by_rate, line, compared[line], bar) for line in low]
    found += [Finding(by_failures, line, failing[line]) for line in _worst_first(failing) if enough]
    return Sweep(tuple(found), bar)


def _low(rates: Mapping[str, int], rules: OutlierRules) -> tuple[Bar | None, list[str]]:
    if len(rates) < max(1, rules.success_rate_minimum_hosts):
        return None, []
    gap = rules.success_rate_minimum_gap * POINT
    bar, marks = below(tuple(rates.values()), factor=rules.success_rate_stdev_factor, gap=gap, spread=rules.spread)
    return bar, _worst_first({line: value for (line, value), low in zip(rates.items(), marks, strict=True) if low})


def _slow(monitors: Mapping[str, Monitor], rules: OutlierRules) -> list[Finding]:
    """Lines whose successes take far longer than the others'; fast failures are not among them."""
    if not rules.latency:
        return []
    speeds = {
        line: -percentile(each.last_latencies, rules.latency_percentile)
        for line, each in monitors.items()
        if each.ejection is None and sum(each.last_latencies.values()) >= max(1, rules.latency_request_volume)
    }
    if len(speeds) < max(1, rules.latency_minimum_hosts):
        return []
    gap = rules.latency_minimum_gap_us
    bar, marks = below(tuple(speeds.values()), factor=rules.latency_factor, gap=gap, spread=Spread.MAD)
    slow = {line: value for (line, value), low in zip(speeds.items(), marks, strict=True) if low}
    told = Bar(-bar.centre, -bar.limit)
    return [Finding(Detector.LATENCY, line, -slow[line], told) for line in _worst_first(slow)]


def _worst_first(values: Mapping[str, int]) -> list[str]:
    """Where not all may go the worst do; ties by id. (Envoy goes by the order of a hash map.)"""
    return sorted(values, key=lambda line: (values[line], line))


def _joined(findings: tuple[Finding, ...], rules: OutlierRules) -> tuple[Finding, ...]:
    """With those marked that need others beside them and have none."""
    if not rules.together:
        return findings
    found = {(each.line, each.detector) for each in findings}
    return tuple(
        each._replace(
            is_alone=each.detector in rules.together
            and any((each.line, other) not in found for other in rules.together)
        )
        for each in findings
    )
