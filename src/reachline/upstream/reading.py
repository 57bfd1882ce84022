"""What `connect(clusters={…})` is given for one cluster, as settings: our own words, an Envoy cluster, or an Envoy file.

Refuses to wait: a file is read once, at the start. All problems of all clusters are told together, each with its place.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from random import Random
from typing import Final

from reachline.core.checking import After, Verdict
from reachline.core.outlier_rules import OutlierRules
from reachline.discovery.naming import DnsSettings, Family
from reachline.doors.envoy import Cluster, Dns, Type
from reachline.doors.envoy import read as read_envoy
from reachline.doors.envoy.fields import Block, problem_of
from reachline.doors.findings import Findings
from reachline.errors import ConfigError, Problem
from reachline.upstream.checks import Checks
from reachline.upstream.finding import ads_of, discovery_of
from reachline.upstream.native import beside, native
from reachline.upstream.settings import ClusterSettings, ControlPlane, Kind

__all__ = ["read", "read_beside", "settings_of"]

_ENVOYS: Final = frozenset(
    {
        "load_assignment",
        "lb_policy",
        "load_balancing_policy",
        "health_checks",
        "outlier_detection",
        "eds_cluster_config",
    }
)
"""Fields by which a whole Envoy cluster is known; none of them is a word of ours."""
_FAMILIES: Final = {
    "AUTO": Family.V6_FIRST, "V4_ONLY": Family.V4, "V6_ONLY": Family.V6, "V4_PREFERRED": Family.V4_FIRST, "ALL": Family.BOTH,
}  # fmt: skip


def read(documents: Mapping[str, object], *, place: str) -> dict[str, ClusterSettings]:
    """Settings by cluster; ConfigError with every problem found. `place` is whose argument the documents are."""
    found: dict[str, ClusterSettings] = {}
    problems: list[Problem] = []
    for name, document in documents.items():
        try:
            found[name] = settings = _one(name, document, place)
            discovery_of(settings, Random(0), lambda plane: ads_of(plane, Random(0)))
            if settings.check is not None:
                Checks(name, settings.check.asked, settings.check.rules, seed=0, told=_unheard)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return found


def read_beside(documents: Mapping[str, Mapping[str, object]], *, place: str) -> dict[str, OutlierRules]:
    """Outlier detection beside a center, by cluster; ConfigError with every problem found."""
    found, given = dict[str, OutlierRules](), Findings()
    for name, document in documents.items():
        rules = beside(Block(document, ("clusters", name), given))
        if rules is not None:
            found[name] = rules
    _raise_if_any(given, {"clusters": documents}, place)
    return found


def _unheard(key: str, after: After, verdict: Verdict, /) -> None:
    """Nobody listens to checks that are only looked at, to refuse what cannot be."""


def _one(name: str, document: object, place: str) -> ClusterSettings:
    if isinstance(document, str | os.PathLike):
        return _of_file(name, FilePath(document), place)
    if not isinstance(document, Mapping):
        rule = "must be a cluster's settings, or the path of an Envoy file"
        raise ConfigError(Problem(place=place, path=f"clusters.{name}", value=type(document).__name__, rule=rule))
    if _ENVOYS & document.keys():
        plane = {key: value for key, value in document.items() if key == "control_plane"}
        rest = {key: value for key, value in document.items() if key != "control_plane"}
        return _of_envoy(name, _envoy(name, rest, place), _plane(name, plane, place), place)
    given: Findings = Findings()
    settings_found = native(name, Block(document, ("clusters", name), given))
    _raise_if_any(given, {"clusters": {name: document}}, place)
    return settings_found


def _envoy(name: str, document: Mapping[str, object], place: str) -> Cluster:
    """A whole Envoy cluster; its problems where they stand in the argument."""
    try:
        return next(iter(read_envoy([{"name": name, **document}]).clusters.values()))
    except ConfigError as error:
        inner = [(each, each.path.removeprefix("[0]").removeprefix(".")) for each in error.problems]
        raise ConfigError(
            *(replace(each, place=place, path=f"clusters.{name}.{path}".removesuffix(".")) for each, path in inner)
        ) from None


def _plane(name: str, own: Mapping[str, object], place: str) -> ControlPlane | None:
    """The control plane that stands beside an Envoy cluster."""
    if not own:
        return None
    found = Findings()
    read_natively = native(name, Block({"type": "eds", **own}, ("clusters", name), found))
    _raise_if_any(found, {"clusters": {name: own}}, place)
    return read_natively.control_plane


def _of_file(name: str, path: FilePath, place: str) -> ClusterSettings:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problem = Problem(place=place, path=f"clusters.{name}", value=str(path), rule=f"cannot be read: {reason}")
        raise ConfigError(problem) from error
    settings = read_envoy(text, name=str(path))
    if name not in settings.clusters:
        known = ", ".join(settings.clusters) or "none"
        rule, hint = "has no cluster of that name", f"it has {known}"
        raise ConfigError(Problem(place=str(path), path=f"clusters.{name}", value="", rule=rule, hint=hint))
    found = _of_envoy(name, settings.clusters[name], None, str(path))
    return replace(found, outlier_log=settings.outlier_log, notices=settings.notices)


def _of_envoy(name: str, cluster: Cluster, plane: ControlPlane | None, place: str) -> ClusterSettings:
    """With what limits and delays calls of this process alone: a proxy has ways of its own for that."""
    limits = (cluster.thresholds, cluster.high_thresholds)
    found = settings_of(name, cluster, plane, place)
    return replace(found, thresholds=limits, merge_window=cluster.update_merge_window)


def settings_of(name: str, cluster: Cluster, plane: ControlPlane | None, place: str) -> ClusterSettings:
    """An Envoy cluster in our words; its defaults are Envoy's. ConfigError where it needs a control `plane` and has none."""
    kind = _kind(cluster)
    if kind == "eds" and plane is None:
        rule = "is assigned by ADS, and no control_plane is named"
        hint = f"clusters={{'{name}': {{'type': 'eds', 'control_plane': 'host:port'}}}}"
        raise ConfigError(Problem(place=place, path=f"clusters.{name}", value="", rule=rule, hint=hint))
    eds = cluster.eds
    return ClusterSettings(
        name=name,
        type=kind,
        membership=cluster.membership,
        scheme="http",
        dns=_dns(cluster.dns, is_logical=kind == "logical_dns"),
        resolvers=cluster.dns.resolvers,
        path=eds.path if eds else "",
        service=eds.service if eds else cluster.name,
        initial_fetch_timeout=eds.initial_fetch_timeout if eds else 15.0,
        control_plane=plane,
        policy=cluster.policy,
        by_locality=cluster.by_locality,
        zone_least=cluster.zone_least,
        subsets=cluster.subsets,
        hash_hostnames=cluster.hash_hostnames,
        check=cluster.check,
        waits_for_check=cluster.ignore_new_hosts_until_first_hc,
        stays_while_healthy=cluster.check is not None and not cluster.ignore_health_on_host_removal,
        outliers=cluster.outliers,
        warm=5.0 if cluster.wait_for_warm_on_init else 0.0,
    )


def _kind(cluster: Cluster) -> Kind:
    match cluster.type:
        case Type.STATIC:
            return "static"
        case Type.STRICT_DNS:
            return "strict_dns"
        case Type.LOGICAL_DNS:
            return "logical_dns"
        case Type.EDS:
            return "file" if cluster.eds is not None and cluster.eds.path else "eds"


def _dns(dns: Dns, *, is_logical: bool) -> DnsSettings:
    """As Envoy follows names: what fails keeps its addresses for ever, what is empty drops them."""
    return DnsSettings(
        refresh=dns.refresh,
        respect_ttl=dns.respect_ttl,
        jitter=dns.jitter,
        failure_base=dns.failure_base,
        failure_max=dns.failure_max,
        empty_for=math.inf if is_logical else 0.0,
        stale_after=math.inf,
        family=_FAMILIES[dns.family],
        ready_any=True,
    )


def _raise_if_any(found: Findings, document: object, place: str) -> None:
    problems = [problem_of(each, document, place) for each in found if each.is_error]
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
