"""The center's plain JSON into a line list. Trusts nothing: a malformed answer is a RemoteProtocolError that names the field.

Unknown keys are a newer center's and skipped; a health or breaker we have no word for is taken for what its weight says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Final, NoReturn

from reachline.core.rules import ONE, FaultRules, LocalRules
from reachline.core.steer import WHOLE
from reachline.errors import RemoteProtocolError
from reachline.model import Gate, Health, LineId, Role, Seconds, Version
from reachline.upstream.listing import Admitted, LineList, Listed, target

__all__ = ["LINES_MOST", "line_list", "parsed", "version_of"]

LINES_MOST: Final = 100_000
"""Ten times the largest cluster we measure with."""
_WEIGHT_MOST: Final = 1_000_000
_COUNT_MOST: Final = 2**63 - 1
_TEXT_MOST: Final = 2_048
"""Characters of any text: a URL may be long."""
_INSTANT_MOST: Final = 1e11
"""Unix seconds: the year 5138."""
_TTL_MOST: Final = 7 * 86_400.0
_WAIT_MOST: Final = 86_400.0
_FAULTS_MOST: Final = 10**9
_CALLS_MOST: Final = 10_000
"""In flight to one line from one client, and connections a second: beyond it, the number is no limit."""

_HEALTHS: Final = {health.name.lower(): health for health in Health}
_GATES: Final = {gate.name.lower(): gate for gate in Gate}
_ROLES: Final = {role.value: role for role in Role}


def parsed(body: bytes) -> object:
    """Any JSON; RemoteProtocolError where it is none, too deep, or holds NaN or infinity."""
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"the answer is not JSON: {str(error) or type(error).__name__}") from error


def line_list(document: object, *, cluster: str) -> LineList:
    """The list of `cluster`; RemoteProtocolError names the field that is wrong."""
    top = _object(document, "answer")
    if (named := _text(top, "cluster", "", default=cluster)) != cluster:
        raise RemoteProtocolError(f"cluster: {named!r} was not asked for")
    rows = _list(top.get("lines"), "lines")
    if len(rows) > LINES_MOST:
        raise RemoteProtocolError(f"lines: {len(rows)}, at most {LINES_MOST} are taken")
    local = _object(top.get("local_rules", {}), "local_rules")
    formula = _object(local.get("formula", {}), "local_rules.formula")
    formulas = _object(formula.get("lines", {}), "local_rules.formula.lines")
    lines = tuple(_line(row, f"lines.{at}", formulas) for at, row in enumerate(rows))
    if len({each.line for each in lines}) < len(lines):
        raise RemoteProtocolError("lines: an id stands twice")
    return LineList(
        cluster=cluster,
        lines=lines,
        version=_version(top),
        issued=_maybe(top, "issued", "", most=_INSTANT_MOST),
        ttl=_number(top, "ttl", "", least=1.0, most=_TTL_MOST, default=300.0),
        policy=tuple(_word(name, "policy") for name in _list(top.get("policy", ["weighted"]), "policy")),
        panic=_text(top, "panic", "", default=""),
        local=_local(local),
        faults=FaultRules(cost=_cost(formula)),
        slow=_maybe(local, "slow", "local_rules", most=_WAIT_MOST),
        crawl=_maybe(local, "crawl", "local_rules", most=_WAIT_MOST),
        plan=None if top.get("plan") is None else _plan(_object(top["plan"], "plan")),
    )


def version_of(document: object) -> Version:
    """The version of an answer that is not read any further; RemoteProtocolError where it names none."""
    return _version(_object(document, "answer"))


def _plan(plan: Mapping[str, object]) -> Admitted:
    """What the plan across regions leaves this cluster."""
    regions = _object(plan.get("regions", {}), "plan.regions")
    shares = {
        _word(name, "plan.regions"): _number(regions, name, "plan.regions", least=0.0, most=1.0, default=0.0)
        for name in regions
    }
    return Admitted(
        share=_number(plan, "admit", "plan", least=0.0, most=1.0, default=1.0),
        regions={name: round(WHOLE * share) for name, share in shares.items()},
        priority=_count(plan, "priority", "plan", most=1_000_000, default=0),
        reason=_text(plan, "reason", "plan", default=""),
    )


def _line(document: object, path: str, formulas: Mapping[str, object]) -> Listed:
    row = _object(document, path)
    name = _text(row, "line", path)
    weight = _count(row, "weight", path, most=_WEIGHT_MOST)
    terms = _object(formulas.get(name, {}), f"formula.{name}")
    gate = _gate(row, weight, path)
    return Listed(
        line=LineId(name),
        target=target(_text(row, "address", path)),
        weight=weight,
        base=_count(terms or row, "base", path, most=_WEIGHT_MOST, default=weight),
        via=_text(row, "via", path, default="direct"),
        roles=_roles(row, path),
        provider=_text(row, "provider", path, default=""),
        groups=tuple(_word(group, f"{path}.groups") for group in _list(row.get("groups", []), f"{path}.groups")),
        health=_HEALTHS.get(_text(row, "health", path, default="unknown"), Health.UNKNOWN),
        breaker=gate,
        step=_count(row, "step", path, most=1_000, default=0),
        score=_count(row, "score", path, most=100, default=0),
        reason=_text(row, "reason", path, default=""),
        since=_maybe(row, "since", path, most=_INSTANT_MOST),
        next=_maybe(row, "next", path, most=_INSTANT_MOST),
        window=_count(row, "window", path, most=_COUNT_MOST, default=0),
        is_drained=_flag(row, "drained", path),
        is_blind=_flag(row, "blind", path),
        faults=_count(terms, "faults", path, most=_FAULTS_MOST, default=0),
        share=_number(terms, "share", path, least=0.0, most=1.0, default=0.0 if gate is Gate.OPEN else 1.0),
        region=_text(row, "region", path, default=""),
    )


def _gate(row: Mapping[str, object], weight: int, path: str) -> Gate:
    said = _text(row, "breaker", path, default="closed")
    return _GATES.get(said, Gate.CLOSED if weight else Gate.OPEN)


def _roles(row: Mapping[str, object], path: str) -> frozenset[Role]:
    """`roles` as a list, else `role` as one word or two joined by `+`; words we do not know are no roles of ours."""
    if "roles" in row:
        names = [_word(name, f"{path}.roles") for name in _list(row["roles"], f"{path}.roles")]
    else:
        names = _text(row, "role", path, default="").split("+")
    return frozenset(_ROLES[name] for name in names if name in _ROLES)


def _local(local: Mapping[str, object]) -> LocalRules:
    path, usual = "local_rules", LocalRules()
    waits = {
        name: round(1_000 * _number(local, name, path, least=0.001, most=_WAIT_MOST, default=default / 1_000))
        for name, default in (("open", usual.open_ms), ("open_cap", usual.open_cap_ms))
    }
    share = _number(local, "max_open", path, least=0.0, most=1.0, default=usual.max_open_milli / 1_000)
    usual_share = usual.trial_calls_milli / 1_000
    trial_share = _number(local, "trial_calls_share", path, least=0.0, most=1.0, default=usual_share)
    return LocalRules(
        failures=max(1, _count(local, "failures", path, most=1_000, default=usual.failures)),
        open_ms=waits["open"],
        open_cap_ms=max(waits["open"], waits["open_cap"]),
        max_open_milli=round(share * 1_000),
        share_milli=round(1_000 * _number(local, "fail_share", path, least=0.0, most=1.0, default=0.0)),
        trial_calls=_count(local, "trial_calls", path, most=_CALLS_MOST, default=usual.trial_calls),
        trial_calls_milli=round(1_000 * trial_share),
        ramp_connects=max(1, _count(local, "ramp_connects", path, most=_CALLS_MOST, default=usual.ramp_connects)),
    )


def _cost(formula: Mapping[str, object]) -> tuple[int, ...]:
    table = _list(formula.get("cost", []), "local_rules.formula.cost")
    cost = tuple(each for each in table if isinstance(each, int) and 0 <= each <= ONE)
    # 2**63 millionths are more faults than any line has.
    if len(cost) < len(table) or len(table) > 63:
        _refuse("local_rules.formula.cost", "must be at most 63 whole numbers, 0…10^12")
    return cost


def _version(top: Mapping[str, object]) -> Version:
    text = _text(top, "version", "")
    epoch, dot, counter = text.partition(".")
    if not dot or not _is_digits(epoch) or not _is_digits(counter):
        raise RemoteProtocolError(f"version: must be epoch.counter, got {text[:40]!r}")
    return Version(int(epoch), int(counter))


def _is_digits(text: str) -> bool:
    # 19 digits are a 64-bit number; more would only cost time.
    return text.isascii() and text.isdigit() and len(text) <= 19


def _object(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        _refuse(path, "must be an object")
    return value


def _list(value: object, path: str) -> list[object]:
    if not isinstance(value, list):
        _refuse(path, "must be a list")
    return value


def _word(value: object, path: str) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_MOST:
        _refuse(path, f"must hold texts of at most {_TEXT_MOST} characters")
    return value


def _text(row: Mapping[str, object], name: str, path: str, *, default: str | None = None) -> str:
    value = row.get(name, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or len(value) > _TEXT_MOST or (default is None and not value):
        _refuse(_at(path, name), f"must be a text of at most {_TEXT_MOST} characters")
    return value


def _flag(row: Mapping[str, object], name: str, path: str) -> bool:
    value = row.get(name, False)
    if not isinstance(value, bool):
        _refuse(_at(path, name), "must be true or false")
    return value


def _count(row: Mapping[str, object], name: str, path: str, *, most: int, default: int | None = None) -> int:
    value = row.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        _refuse(_at(path, name), f"must be a whole number, 0…{most}")
    return value


def _number(row: Mapping[str, object], name: str, path: str, *, least: float, most: float, default: float) -> Seconds:
    value = row.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        _refuse(_at(path, name), f"must be a number, {least:g}…{most:g}")
    return float(value)


def _maybe(row: Mapping[str, object], name: str, path: str, *, most: float) -> float | None:
    return None if row.get(name) is None else _number(row, name, path, least=0.0, most=most, default=math.nan)


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _refuse(path: str, rule: str) -> NoReturn:
    raise RemoteProtocolError(f"{path}: {rule}")
