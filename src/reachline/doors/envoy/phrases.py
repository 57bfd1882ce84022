"""Rules and decisions of routing in words, for `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from reachline.doors.envoy.asked import Request
from reachline.doors.envoy.domains import without_port
from reachline.doors.envoy.fitting import Misfit, value_of
from reachline.doors.envoy.routes import (
    HeaderMatch,
    ParameterMatch,
    PathMatch,
    Route,
    RouteMatch,
    TextMatch,
    VirtualHost,
)
from reachline.doors.envoy.routing import Answered, Redirected, Routes, Sent
from reachline.model import Seconds

__all__ = ["answered", "domain_of", "forwarded", "passed_over", "rule_of", "said"]


def said(route: Route) -> str:
    """A route by its name."""
    return f'"{route.name}"' if route.name else "one without a name"


def rule_of(match: RouteMatch) -> str:
    """All of a match."""
    parts = [_path(match.path), *map(_header, match.headers), *map(_parameter, match.parameters)]
    parts += ["gRPC"] if match.grpc else []
    parts += [f"{match.fraction[0]} of {match.fraction[1]} requests"] if match.fraction else []
    return ", ".join(parts)


def _path(match: PathMatch) -> str:
    if match.pattern is not None:
        return f"{match.kind.value} {match.pattern.pattern}"
    case = "" if match.case_sensitive else " in any case"
    return f"{match.kind.value} {match.text}{case}".rstrip()


def _text(match: TextMatch) -> str:
    if match.pattern is not None:
        return f"fits {match.pattern.pattern}"
    case = " in any case" if match.ignore_case else ""
    return f"{match.kind.value} {match.text!r}{case}"


def _header(match: HeaderMatch) -> str:
    no = "not " if match.invert else ""
    if match.range is not None:
        rule = f"from {match.range[0]} to below {match.range[1]}"
    elif match.text is not None:
        rule = _text(match.text)
    else:
        rule = "there" if match.present else "absent"
    return f"header {match.name} {no}{rule}"


def _parameter(match: ParameterMatch) -> str:
    rule = _text(match.text) if match.text is not None else "there" if match.present else "absent"
    return f"parameter {match.name} {rule}"


def passed_over(why: Misfit, request: Request) -> str:
    """Why a route is not taken."""
    match why:
        case PathMatch():
            return f"{_path(why)}"
        case HeaderMatch():
            value = value_of(request, why.name)
            return f"{_header(why)}; the request has {'none' if value is None else repr(value)}"
        case ParameterMatch():
            return _parameter(why)
        case _:
            return {
                "runtime_fraction": "it is for a share of requests, and this is none of them",
                "grpc": "it is for gRPC alone",
            }.get(why, why)


def domain_of(host: VirtualHost, table: Routes, request: Request) -> str:
    """The domain by which a virtual host was found."""
    name = (without_port(request.authority) if table.config.ignore_port else request.authority).lower()
    if name in host.domains:
        return f"{name} is the authority"
    for domain in sorted(host.domains, key=len, reverse=True):
        is_suffix = domain.startswith("*") and domain != "*" and name.endswith(domain[1:])
        if is_suffix or (domain.endswith("*") and domain != "*" and name.startswith(domain[:-1])):
            return f"{domain} fits {name}"
    return "* fits all"


def answered(decision: Redirected | Answered) -> str:
    """What the client gets without any endpoint."""
    if isinstance(decision, Redirected):
        return f"{decision.status}, location {decision.location}"
    answer = decision.answer
    body = f"the file {answer.file}" if answer.file else f"{len(answer.body)} bytes"
    return f"{answer.status} by the route itself, {body}"


def forwarded(sent: Sent, request: Request) -> Iterator[tuple[str, str]]:
    """What is said of a request on its way to a cluster: (about, text)."""
    action = sent.action
    if action.weighted:
        by = (
            "its key"
            if action.weighted_by_hash
            else f"header {action.weighted_header}"
            if action.weighted_header
            else "chance"
        )
        weights = ", ".join(f"{each.name} {each.weight}" for each in action.weighted)
        yield "cluster", f"{sent.cluster}: by {by}, of {weights}"
    elif action.cluster_header:
        yield "cluster", f"{sent.cluster}: the header {action.cluster_header} names it"
    if sent.is_rewritten:
        yield "request", f"path {sent.path}, was {request.path}"
    if sent.auto_host:
        yield "request", f"authority of the endpoint that is picked, was {request.authority}"
    elif sent.authority is not None:
        yield "request", f"authority {sent.authority}, was {request.authority}"
    per_try = f", {_seconds(sent.times.per_try)} a try" if sent.times.per_try is not None else ""
    yield "times", f"{_seconds(sent.times.total)} for all{per_try}"
    if sent.retry is not None:
        where = ", each at another endpoint" if sent.retry.other_endpoint else ""
        words = ", ".join(sorted(sent.retry.retry_on))
        yield "retries", f"{sent.retry.retries} more after {words}{where}"


def _seconds(duration: Seconds | None) -> str:
    return "no limit" if duration is None else f"{duration:g} s"
