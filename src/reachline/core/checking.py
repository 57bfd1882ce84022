"""Active checks of one line as a state machine: verdicts go in, health and the next wait come out. As Envoy does it.

Pure: chance is drawn from (line, number of the check, seed). Refuses to know sockets and protocols.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from reachline.core.checking_rules import CheckRules, wait_ms
from reachline.model import Health

__all__ = [
    "NEW",
    "After",
    "Check",
    "CheckEvent",
    "Fault",
    "Happened",
    "Turn",
    "Verdict",
    "as_envoy",
    "failed_by_call",
    "heard",
]


class Fault(Enum):
    """Why a check failed, by Envoy's words. A network's fault counts toward the threshold, a wrong answer does not wait for it."""

    ACTIVE = "ACTIVE"
    """Answered, and not as expected."""
    PASSIVE = "PASSIVE"
    """Not by a check: a real call was answered with the header of immediate failure."""
    NETWORK = "NETWORK"
    NETWORK_TIMEOUT = "NETWORK_TIMEOUT"


_NETWORK: Final = (Fault.NETWORK, Fault.NETWORK_TIMEOUT)


class Verdict(NamedTuple):
    """What one check came to. `fault` None: it passed."""

    fault: Fault | None = None
    retriable: bool = False
    """A wrong answer that counts toward the threshold."""
    degraded: bool = False
    """It passed, and asked for traffic only where nothing better is left."""
    excluded: bool = False
    """It failed, and asked to be left out of sums as well."""
    status: int = 0
    """HTTP's, 0 where there is none."""
    note: str = ""
    """What is wrong, for people."""


class Check(NamedTuple):
    """What checks made of one line so far. A new one has failed until it passes."""

    failed: bool = True
    """`failed_active_hc`."""
    first: bool = True
    """No result yet."""
    pending: bool = False
    """`pending_active_hc`: left out of sums until the first result."""
    degraded: bool = False
    excluded: bool = False
    timed_out: bool = False
    """`active_hc_timeout`: failed, and the last failure was silence."""
    passes: int = 0
    """In a row, while failed…"""
    failures: int = 0
    """…and while not. A failure of any kind ends the one, a pass the other."""
    number: int = 0
    """Results so far."""

    @property
    def health(self) -> Health:
        """By active checks alone. UNKNOWN: no result yet, which routes as failed."""
        if self.first and self.failed:
            return Health.UNKNOWN
        if self.failed:
            return Health.TIMEOUT if self.timed_out else Health.UNHEALTHY
        return Health.DEGRADED if self.degraded else Health.HEALTHY


NEW: Final = Check()


class Turn(Enum):
    """What a result changed. PENDING: it counts, and its threshold is not reached."""

    UNCHANGED = 0
    PENDING = 1
    CHANGED = 2


class Happened(Enum):
    """Events, by the name of their key in Envoy's event log."""

    EJECT_UNHEALTHY = "eject_unhealthy_event"
    ADD_HEALTHY = "add_healthy_event"
    SUCCESS = "successful_health_check_event"
    FAILURE = "health_check_failure_event"
    DEGRADED = "degraded_healthy_host"
    NO_LONGER_DEGRADED = "no_longer_degraded_host"


class CheckEvent(NamedTuple):
    """One event, in the order they are to be written."""

    what: Happened
    fault: Fault | None = None
    first: bool = False
    status: int = 0


class After(NamedTuple):
    """A line after a result. `wait_ms` None: the check that is due anyway stays due."""

    check: Check
    turn: Turn
    wait_ms: int | None
    events: tuple[CheckEvent, ...] = ()


def heard(
    check: Check, verdict: Verdict, rules: CheckRules, *, line: str, has_traffic: bool = True, seed: int = 0
) -> After:
    """After one check's result. `has_traffic`: whether the cluster ever had a connection for a call."""
    passed = verdict.fault is None
    after = _passed(check, verdict, rules) if passed else _failed(check, verdict, rules)
    number = after.check.number
    wait = wait_ms(rules, passed, after.turn is Turn.PENDING, has_traffic, line, number, seed=seed)
    return after._replace(wait_ms=wait)


def failed_by_call(check: Check, rules: CheckRules) -> After:
    """After a real call was answered with the header of immediate failure: failed at once, and left out of sums."""
    return _failed(check, Verdict(Fault.PASSIVE, excluded=True), rules)


def _passed(check: Check, verdict: Verdict, rules: CheckRules) -> After:
    turn, events = Turn.UNCHANGED, []
    passes = check.passes + 1
    row = check._replace(failures=0, first=False, number=check.number + 1, pending=False)
    if not check.failed:
        events = [CheckEvent(Happened.SUCCESS)] * rules.always_log_health_check_success
    elif check.first or passes == rules.healthy_threshold:
        # The very first result is believed at once, so that a start is not as long as the threshold.
        turn, events = Turn.CHANGED, [CheckEvent(Happened.ADD_HEALTHY, first=check.first)]
        row = row._replace(failed=False, timed_out=False, excluded=False, passes=0)
    else:
        turn, events = Turn.PENDING, [CheckEvent(Happened.SUCCESS)] * rules.always_log_health_check_success
        row = row._replace(passes=passes)
    if check.pending:
        turn = Turn.CHANGED
    if verdict.degraded is not check.degraded:
        events.append(CheckEvent(Happened.DEGRADED if verdict.degraded else Happened.NO_LONGER_DEGRADED))
        row = row._replace(degraded=verdict.degraded)
        turn = Turn.CHANGED if turn is Turn.UNCHANGED else turn
    return After(row, turn, None, tuple(events))


def _failed(check: Check, verdict: Verdict, rules: CheckRules) -> After:
    fault = verdict.fault
    assert fault is not None
    turn, events = Turn.UNCHANGED, []
    is_check = fault is not Fault.PASSIVE
    row = check._replace(passes=0, first=False, number=check.number + is_check, pending=False)
    if not check.failed:
        counts = fault in _NETWORK or (is_check and (verdict.retriable or rules.count_all))
        failures = check.failures + counts
        if counts and failures != rules.unhealthy_threshold:
            turn, row = Turn.PENDING, row._replace(failures=failures)
        else:
            turn, row = Turn.CHANGED, row._replace(failed=True, failures=failures)
            events.append(CheckEvent(Happened.EJECT_UNHEALTHY, fault, status=verdict.status))
    row = row._replace(
        timed_out=row.failed and fault is Fault.NETWORK_TIMEOUT, excluded=check.excluded or verdict.excluded
    )
    if check.pending:
        turn = Turn.CHANGED
    if check.first or rules.always_log_health_check_failures:
        events.append(CheckEvent(Happened.FAILURE, fault, first=check.first, status=verdict.status))
    return After(row, turn, None, tuple(events))


def as_envoy(
    event: CheckEvent, *, checker: str, host: str, port: int, cluster: str, timestamp: str,
    locality: tuple[str, str, str] = ("", "", ""),
) -> dict[str, object]:  # fmt: skip
    """The event as Envoy 1.40 writes it, key by key, ready for a JSON encoder.

    `checker` is HTTP, TCP, GRPC or REDIS; `timestamp` RFC 3339; `locality` region, zone, sub-zone.
    """
    told: dict[str, object] = {}
    match event.what:
        case Happened.EJECT_UNHEALTHY | Happened.FAILURE if event.fault is not None:
            told["failure_type"] = event.fault.value
            if event.what is Happened.FAILURE:
                told["first_check"] = event.first
            # A gRPC check has a status of HTTP too, but Envoy writes it of HTTP checks only.
            told["http_status_code"] = event.status if checker == "HTTP" else 0
        case Happened.ADD_HEALTHY:
            told["first_check"] = event.first
        case _:
            pass
    address = {
        "protocol": "TCP", "address": host, "port_value": port, "resolver_name": "", "ipv4_compat": False,
        "network_namespace_filepath": "",
    }  # fmt: skip
    return {
        "health_checker_type": checker,
        "host": {"socket_address": address},
        "cluster_name": cluster,
        event.what.value: told,
        "timestamp": timestamp,
        "locality": dict(zip(("region", "zone", "sub_zone"), locality, strict=True)),
    }
