"""How one endpoint is checked, as numbers: Envoy's `health_check` field by field, in milliseconds. Refuses to know protocols."""

from __future__ import annotations

from typing import Final, NamedTuple

from reachline.core.ejection import chance
from reachline.errors import ConfigError, Problem

__all__ = ["CheckRules", "checked", "first_wait_ms", "wait_ms"]

_LONGEST_MS: Final = 315_576_000_000
"""Ten years: any longer duration is a mistake of units."""
_POSITIVE: Final = ("timeout_ms", "interval_ms", "unhealthy_threshold", "healthy_threshold")


class CheckRules(NamedTuple):
    """The first four have no default in Envoy. None: as the field it says. What follows `max_wait_ms` is ours."""

    timeout_ms: int
    interval_ms: int
    unhealthy_threshold: int
    healthy_threshold: int
    initial_jitter_ms: int = 0
    """The first check leaves after up to this, by chance."""
    interval_jitter_ms: int = 0
    """Each wait is longer by up to this (excluded), by chance, and…"""
    interval_jitter_percent: int = 0
    """…by up to this share of itself; both add."""
    reuse_connection: bool = True
    no_traffic_interval_ms: int = 60_000
    """Between checks of a cluster that nobody ever called."""
    no_traffic_healthy_interval_ms: int | None = None
    """…of those that pass; None: the same."""
    unhealthy_interval_ms: int | None = None
    """After a failure of a line that has failed; None: `interval_ms`."""
    unhealthy_edge_interval_ms: int | None = None
    """After a failure that does not fail it yet; None: `unhealthy_interval_ms`."""
    healthy_edge_interval_ms: int | None = None
    """After a pass that does not make it healthy yet; None: `interval_ms`."""
    always_log_health_check_failures: bool = False
    always_log_health_check_success: bool = False
    min_wait_ms: int = 0
    """Envoy's runtime keys `health_check.min_interval`…"""
    max_wait_ms: int | None = None
    """…and `max_interval`; None: no limit."""
    count_all: bool = False
    """Every failure counts toward the threshold, also a wrong answer that Envoy takes for the last word."""


def checked(rules: CheckRules, place: str = "health_check") -> CheckRules:
    """The same rules; ConfigError names every field that Envoy, or we, would refuse."""
    problems = []
    for name, value in zip(rules._fields, rules, strict=True):
        if value is None or isinstance(value, bool):
            continue
        low = int(name in _POSITIVE or name.endswith("interval_ms"))
        if not low <= value <= _LONGEST_MS:
            rule = f"must be a whole number from {low} to {_LONGEST_MS}"
            problems.append(Problem(place=place, path=name, value=str(value), rule=rule, hint="durations are in ms"))
    if problems:
        raise ConfigError(*problems)
    return rules


def first_wait_ms(rules: CheckRules, *, line: str, seed: int) -> int:
    """Before the first check of a line."""
    if not rules.initial_jitter_ms:
        return 0
    return _clamped(chance(line, 0, seed) % rules.initial_jitter_ms, rules)


def wait_ms(  # noqa: PLR0917 (what a result was, and where chance comes from)
    rules: CheckRules, passed: bool, pending: bool, has_traffic: bool, line: str, number: int, *, seed: int
) -> int:
    """From the result of a line's `number`-th check (1…) to the next one. `pending`: it counts toward a threshold only."""
    base = _base_ms(rules, passed=passed, pending=pending, has_traffic=has_traffic)
    drawn = chance(line, number, seed)
    if share := rules.interval_jitter_percent * base // 100:
        base += (drawn & 0xFFFFFFFF) % share
    if rules.interval_jitter_ms:
        base += (drawn >> 32) % rules.interval_jitter_ms
    return _clamped(base, rules)


def _base_ms(rules: CheckRules, *, passed: bool, pending: bool, has_traffic: bool) -> int:
    if not has_traffic:
        calm = rules.no_traffic_healthy_interval_ms if passed and not pending else None
        return rules.no_traffic_interval_ms if calm is None else calm
    if passed:
        edge = rules.healthy_edge_interval_ms if pending else None
        return rules.interval_ms if edge is None else edge
    usual = rules.interval_ms if rules.unhealthy_interval_ms is None else rules.unhealthy_interval_ms
    edge = rules.unhealthy_edge_interval_ms if pending else None
    return usual if edge is None else edge


def _clamped(wait: int, rules: CheckRules) -> int:
    """At least a millisecond, so that no check can run in circles."""
    if rules.max_wait_ms is not None:
        wait = min(wait, rules.max_wait_ms)
    return max(1, rules.min_wait_ms, wait)
