"""Observed outbounds as lines of a center: the same requests by the same ways, in a document of the reach door.

Judged as a center judges, not as an observer does: by what agents saw, with its own thresholds. A proxy's own time is no fault of the
line, so that round trips are shown and decide nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from reachline.core.observing.rules import Care, Group, ObserverRules
from reachline.core.observing.selecting import is_selected
from reachline.doors.observatory.ruling import observed
from reachline.doors.observatory.values import Outbound, Settings
from reachline.errors import ConfigError, Problem
from reachline.model import Seconds
from reachline.talk.hop import Hop

__all__ = ["CLUSTER", "Lined", "lined", "name_of"]

CLUSTER: Final = "outbounds"
"""The cluster of all of them."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_READABLE: Final = 50
"""Characters of a tag that stay where it is no name; behind them comes what tells two such tags apart."""
_SECRET: Final = "REACHLINE_OUTBOUND_PASSWORD_"  # noqa: S105  (a variable's name)
_NS: Final = 1_000_000_000
_SAMPLES: Final = 20
"""Results that decide, the least a center takes: an observatory keeps ten, and a request is all that a line is asked."""
_USUAL_AGE: Final[Seconds] = 120.0
_MOST_AGE: Final[Seconds] = 86_400.0
_JUDGED: Final = {
    "preset": "quick_recovery",
    "class": "bulk",  # a proxy's own time is no fault
    "limits": {"loss": "ignore", "timeout": {"samples": 5}},  # a silent outbound is heard as soon as one that refuses
    # Nobody's calls come to a center by these lines, so that there is nothing to ramp: a trial on requests, then all of it.
    "circuit_breaker": {"recovery": {"step_ratios": [1.0]}},
}
_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS", "POST"))
"""That agents can ask by; another becomes GET."""
_LEAST_TIMEOUT: Final = 0.01
_MOST_TIMEOUT: Final = 60.0
"""Seconds that a line's probe may be given."""


class Lined(NamedTuple):
    """A document for the reach door, ready for a JSON encoder, and what its references `${env:…}` stand for."""

    document: dict[str, object]
    secrets: Mapping[str, str]


def lined(settings: Settings, *, name: str = "xray") -> Lined:
    """The cluster `outbounds` with a line for each outbound that is observed; ConfigError where nothing is. `name` is the file's."""
    if settings.observatory is None:
        rule, hint = "is needed: nothing is observed without it", "add observatory or burstObservatory"
        raise ConfigError(Problem(place=name, path="observatory", value="", rule=rule, hint=hint))
    rules, tags = settings.observatory.rules, frozenset(observed(settings))
    wanted = [each for each in settings.outbounds if each.tag in tags and is_selected(each.tag, rules.selectors)]
    if not wanted:
        rule, hint = "selects no outbound that can be reached from here", "see `reachline config check FILE`"
        raise ConfigError(Problem(place=name, path="subjectSelector", value="", rule=rule, hint=hint))
    secrets: dict[str, str] = {}
    lines = {name_of(each.tag): _line(each, rules, secrets) for each in wanted}
    if len(lines) < len(wanted):
        rule = "are of two outbounds that would be one line's name"
        raise ConfigError(Problem(place=name, path="outbounds", value="", rule=rule, hint="rename one of their tags"))
    speaks_tls = any(str(each["to"]).startswith("https:") for each in lines.values())
    probes = {"suspect": "1s", "http": _http(rules), "tcp": "off"} | ({"tls": "off"} if speaks_tls else {})
    cluster = {**_JUDGED, "window": _window(rules), "probes": probes, "lines": lines}
    return Lined({"clusters": {CLUSTER: cluster}}, secrets)


def name_of(tag: str) -> str:
    """The line's name: the tag, or what of it a name may hold and a digest."""
    if _NAME.fullmatch(tag):
        return tag
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", tag).strip("-._")[:_READABLE]
    digest = hashlib.blake2s(tag.encode(), digest_size=4).hexdigest()
    return f"{readable}-{digest}" if readable else digest


def _line(outbound: Outbound, rules: ObserverRules, secrets: dict[str, str]) -> dict[str, object]:
    group = _group(outbound.tag, rules)
    line: dict[str, object] = {"to": group.targets[0] if group is not None and group.targets else rules.target}
    if outbound.hops:
        line["via"] = [_url(each, secrets) for each in outbound.hops]
    if outbound.source:
        line["source"] = outbound.source
    if outbound.interface:
        line["interface"] = outbound.interface
    return line


def _group(tag: str, rules: ObserverRules) -> Group | None:
    care = rules.care or Care()
    return next((each for each in care.groups if is_selected(tag, each.selectors)), None)


def _window(rules: ObserverRules) -> dict[str, object]:
    """The newest twenty results, however far apart."""
    most = max(_USUAL_AGE, _SAMPLES * rules.interval / _NS)
    return {"samples": _SAMPLES, "max_age": _seconds(min(_MOST_AGE, most))}


def _http(rules: ObserverRules) -> dict[str, object]:
    """The observatory's own request and nothing beside it: what else would be sent, its author did not ask for."""
    care = rules.care or Care()
    return {
        "every": _seconds(max(1.0, rules.interval / _NS)),
        "method": rules.method if rules.method in _METHODS else "GET",
        "expect": [f"{low}-{high}" for low, high in care.expect],
        "timeout": _seconds(min(_MOST_TIMEOUT, max(_LEAST_TIMEOUT, rules.timeout / _NS))),
    }


def _seconds(value: Seconds) -> str:
    return f"{value:.3f}s"


def _url(hop: Hop, secrets: dict[str, str]) -> str:
    """The proxy as the reach door writes it, its password by reference."""
    login = ""
    if hop.user:
        login = quote(hop.user, safe="")
        if hop.password:
            key = f"{_SECRET}{len(secrets)}"
            secrets[key] = hop.password
            login += f":${{env:{key}}}"
        login += "@"
    host = f"[{hop.endpoint.host}]" if ":" in hop.endpoint.host else hop.endpoint.host
    said = {} if hop.secure is None else {"sni": hop.secure.sni, "verify": "" if hop.secure.verify else "no"}
    query = urlencode({key: value for key, value in said.items() if value})
    return f"{hop.scheme.value}://{login}{host}:{hop.endpoint.port}" + (f"?{query}" if query else "")
