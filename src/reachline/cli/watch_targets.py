"""What `watch` is told to look at: targets as people type them, and the plans they become. Every mistake at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

from pydantic_core import PydanticCustomError

from reachline.agent.prober import OWN_SERVER
from reachline.cli.watch_ways import parted, shown
from reachline.doors.addresses import SCHEMES, login_of, parse_target
from reachline.doors.outbounds import DIRECT
from reachline.doors.probing import Probes
from reachline.doors.units import refuse
from reachline.errors import ConfigError, Problem
from reachline.model import Endpoint, Kind, Seconds
from reachline.net.echo_socket import forbidden
from reachline.talk import build, hop
from reachline.wire.frame import LinePlan, ProbePlan

__all__ = ["Pace", "Target", "read_targets"]

_DNS: Final = "dns://"
_TRUTH: Final = {"yes": True, "true": True, "no": False, "false": False}
_DIGITS: Final = 19
"""Of a number: more than any option takes."""

Option = str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often, and for how long an answer is waited for."""

    interval: Seconds = 1.0
    timeout: Seconds = 1.0
    patience: Seconds = 2.0
    """Beyond the timeout: a late answer is seen as late, not as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target, by the text it was given as, without passwords."""

    text: str
    kind: Kind
    plan: LinePlan


def read_targets(texts: Sequence[str], pace: Pace) -> tuple[Target, ...]:
    """The targets in order; ConfigError with one problem for each that is malformed, given twice, or not allowed here."""
    targets, problems = [], []
    names = [shown(text) for text in texts]
    for text, name in zip(texts, names, strict=True):
        try:
            targets.append(_target(text, name, pace))
        except PydanticCustomError as error:
            found = error.context or {}
            problems.append(_problem(name, str(found.get("rule", error)), str(found.get("hint", ""))))
        except ConfigError as error:
            problems += (
                _problem(name, each.rule, each.hint, option=each.path if f"{each.path}=" in text else "")
                for each in error.problems
            )
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    problems += (_problem(text, "is given twice") for text in twice)
    problems += _not_allowed(targets)
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return tuple(targets)


def _target(text: str, name: str, pace: Pace) -> Target:
    bare, way, said = parted(text)
    url, asked = _question(bare) if _is_question(bare) else (bare, {})
    endpoint = Endpoint(scheme="dns", host="", port=53) if url == OWN_SERVER else parse_target(url)
    if way.family and endpoint.family not in {0, way.family}:
        raise refuse(
            f"has an IPv{endpoint.family} address, but family={way.family}", "drop family: the address says it"
        )
    endpoint = replace(endpoint, family=way.family or endpoint.family)
    kind = SCHEMES[endpoint.scheme].kinds[0]
    options = asked | _login(url, endpoint) | {key: _typed(kind, key, value) for key, value in said.items()}
    build(kind, endpoint, options)
    if way.via != DIRECT and (reason := hop.why_not(kind)):
        raise refuse(f"cannot go by way of a proxy: {reason}", "drop via, or watch a tcp:// port of the same machine")
    probe = _probe(kind, pace, options)
    plan = LinePlan(
        line=name,
        target=url if url == OWN_SERVER else str(endpoint),
        via=way.via,
        source=way.source,
        interface=way.interface,
        family=way.family,
        probes=(probe,),
    )
    return Target(text=name, kind=kind, plan=plan)


def _probe(kind: Kind, pace: Pace, options: dict[str, Option]) -> ProbePlan:
    every = round(1_000 * pace.interval)
    return ProbePlan(
        kind=kind,
        interval_ms=every,
        suspect_interval_ms=every,
        timeout_ms=round(1_000 * pace.timeout),
        patience_ms=round(1_000 * pace.patience),
        options=options,
    )


def _typed(kind: Kind, name: str, value: str) -> Option:
    """An option in the type that the document's key of this name has; one that it does not have, as it looks."""
    field = type(Probes().of(kind)).model_fields.get(name)
    types = {bool, int, str} if field is None else {field.annotation, *get_args(field.annotation)}
    if bool in types and value in _TRUTH:
        return _TRUTH[value]
    return int(value) if int in types and value.isdecimal() and value.isascii() and len(value) < _DIGITS else value


def _login(url: str, endpoint: Endpoint) -> dict[str, Option]:
    """User and password of `redis://user:password@host`, which are options of the kind and no part of the endpoint."""
    if not SCHEMES[endpoint.scheme].has_login:
        return {}
    return {name: value for name, value in zip(("user", "password"), login_of(url), strict=True) if value}


def _is_question(url: str) -> bool:
    """`dns://name[@server]`; with a path it is the document's own form, `dns://server/name`."""
    return url.startswith(_DNS) and "/" not in url.removeprefix(_DNS)


def _question(url: str) -> tuple[str, dict[str, Option]]:
    name, _, server = url.removeprefix(_DNS).partition("@")
    if not name:
        raise refuse("must say what to ask for", "dns://example.org, or dns://example.org@10.0.0.2")
    return f"{_DNS}{server}" if server else OWN_SERVER, {"name": name}


def _not_allowed(targets: Sequence[Target]) -> list[Problem]:
    pings = [target for target in targets if target.kind is Kind.ICMP]
    if not pings:
        return []
    rule, _, hint = forbidden().partition(": ")
    return [_problem(target.text, rule, hint) for target in pings] if rule else []


def _problem(text: str, rule: str, hint: str = "", *, option: str = "") -> Problem:
    return Problem(place=text, path=option, value="", rule=rule, hint=hint)
