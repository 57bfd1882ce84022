"""Text or plain values to settings: the whole of a bootstrap, or clusters alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from reachline.doors.envoy.cluster import cluster
from reachline.doors.envoy.fields import Block, problem_of
from reachline.doors.envoy.values import Cluster, Settings
from reachline.doors.findings import Finding, Findings
from reachline.doors.origin import Places
from reachline.doors.wording import dotted
from reachline.errors import ConfigError, Problem

__all__ = ["ASIDE", "clusters_of", "examined", "managed", "read", "runtime"]

T = TypeVar("T")

_ROOTS: Final = "a bootstrap (static_resources: {clusters: […]}), {clusters: […]} or a list of clusters"
ASIDE: Final = (
    "node", "node_context_params", "hds_config", "flags_path", "stats_sinks", "deferred_stat_options", "stats_config",
    "stats_flush_interval", "stats_flush_on_admin", "stats_eviction_interval", "watchdog", "watchdogs", "tracing", "admin",
    "overload_manager", "enable_dispatcher_stats", "header_prefix", "stats_server_version_override", "bootstrap_extensions",
    "fatal_actions", "config_sources", "default_config_source", "default_socket_interface",
    "certificate_provider_instances", "inline_headers", "perf_tracing_file_path", "default_regex_engine",
    "xds_delegate_extension", "xds_config_tracker_extension", "listener_manager", "application_log_config",
    "grpc_async_client_manager_config", "memory_allocator_manager", "use_tcp_for_dns_lookups", "dns_resolution_config",
    "typed_dns_resolver_config", "stats_event_sinks",
)  # fmt: skip
"""About the process, its listeners and its figures, not about upstreams."""
_RUNTIME: Final = ("outlier_detection", "health_check", "upstream", "circuit_breakers")
"""Beginnings of runtime keys that would change what the fields say."""
_DEEPEST: Final = 32


class _Read(NamedTuple):
    value: object
    places: Places
    broken: tuple[Problem, ...] = ()
    odd: tuple[Finding, ...] = ()
    """What is to be told of the text itself, though it can be read."""


def read(document: str | Mapping[str, object] | Sequence[object], *, name: str = "envoy") -> Settings:
    """The settings of a document: YAML or JSON text, or its plain values; `name` is the file's name in places.

    ConfigError holds every problem found, in the document's order: what Envoy refuses, and what is not supported here.
    """
    settings, notices = examined(document, name, _settings)
    return replace(settings, notices=notices)


def examined(
    document: str | Mapping[str, object] | Sequence[object], name: str, make: Callable[[object, Findings], T]
) -> tuple[T, tuple[Problem, ...]]:
    """What `make` reads of the document, and the notices; ConfigError with all problems where there are any."""
    given = _text(document, name) if isinstance(document, str) else _Read(document, Places(name=name))
    if given.broken:
        raise ConfigError(*given.broken)
    found = Findings()
    for each in given.odd:
        found.append(each)
    made = make(given.value, found)
    ordered = sorted(found, key=lambda each: given.places.at(each.path, key=each.about_key))
    errors = [_problem(each, given) for each in ordered if each.is_error]
    if errors:
        raise ConfigError(*dict.fromkeys(errors))
    return made, tuple(dict.fromkeys(_problem(each, given) for each in ordered))


def _text(text: str, name: str) -> _Read:
    is_json = text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")
    try:
        from reachline.doors.composer import compose  # noqa: PLC0415  (YAML only where it is read)
    except ImportError:
        if not is_json:
            rule, hint = "YAML needs the package PyYAML", "pip install PyYAML, or write it as JSON"
            raise ConfigError(Problem(place=name, path="", value="", rule=rule, hint=hint)) from None
        return _json(text, name)
    # JSON may be indented by tabs, which YAML is not; in its texts a tab is written \t.
    composed = compose(text.replace("\t", " ") if is_json else text, name=name, last_counts=True)
    odd = tuple(
        Finding(each.path, f"{each.rule}: the last one counts, as in Envoy", each.hint, about_key=True, is_error=False)
        for each in composed.troubles
        if each.is_repeated
    )
    broken = tuple(
        Problem(
            place=composed.places.text(each.place), path=dotted(each.path), value="", rule=each.rule, hint=each.hint
        )
        for each in composed.troubles
        if not each.is_repeated
    )
    return _Read(composed.value, composed.places, broken, odd)


def _json(text: str, name: str) -> _Read:
    """Without PyYAML there are no places inside."""
    try:
        return _Read(json.loads(text.lstrip("\ufeff")), Places(name=name))
    except (ValueError, RecursionError) as error:
        problem = Problem(place=name, path="", value="", rule=f"is not JSON: {error}")
        return _Read(None, Places(name=name), (problem,))


def _problem(found: Finding, given: _Read) -> Problem:
    places = given.places
    place = places.text(places.at(found.path, key=found.about_key)) if places.values else places.name
    return problem_of(found, given.value, place)


def _settings(value: object, found: Findings) -> Settings:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return Settings(clusters=clusters_of([Block(each, (at,), found) for at, each in enumerate(value)]))
    if not isinstance(value, Mapping):
        found.refuse((), f"is empty, not {_ROOTS}" if value is None else f"must be {_ROOTS}", about_key=True)
        return Settings()
    root = Block(value, (), found)
    if not root.has("static_resources") and root.has("clusters"):
        clusters = clusters_of(root.blocks("clusters"))
        root.done()
        return Settings(clusters=clusters)
    return _bootstrap(root)


def _bootstrap(root: Block) -> Settings:
    static, manager = root.block("static_resources"), root.block("cluster_manager")
    clusters: dict[str, Cluster] = {}
    if static is None:
        root.found.refuse((), f"holds no clusters: a document is {_ROOTS}", about_key=True)
    else:
        clusters = clusters_of(static.blocks("clusters"))
        static.aside("listeners", "secrets")
        static.done()
    local, log = managed(manager)
    if local and local not in clusters and manager is not None:
        manager.refuse("local_cluster_name", "names no cluster of static_resources")
    runtime(root.block("layered_runtime"))
    dynamic = root.block("dynamic_resources")
    if dynamic is not None:
        if dynamic.has("cds_config"):
            dynamic.found.notice(dynamic.at("cds_config"), "is left aside: only clusters of static_resources are read")
        dynamic.aside("lds_config", "cds_config", "ads_config", "lds_resources_locator", "cds_resources_locator")
        dynamic.done()
    root.aside(*ASIDE)
    root.done()
    return Settings(clusters=clusters, local_cluster=local, outlier_log=log)


def clusters_of(blocks: Sequence[Block]) -> dict[str, Cluster]:
    """Clusters by name, in the document's order."""
    found: dict[str, Cluster] = {}
    for block in blocks:
        each = cluster(block)
        if each is not None and each.name in found:
            block.refuse("name", "stands here a second time", "each cluster has a name of its own")
        elif each is not None:
            found[each.name] = each
    return found


def managed(block: Block | None) -> tuple[str, str]:
    """The cluster this process is one of, and the file of outlier events."""
    if block is None:
        return "", ""
    local, outlier = block.text("local_cluster_name"), block.block("outlier_detection")
    log = ""
    if outlier is not None:
        log = outlier.text("event_log_path")
        outlier.unsupported({"event_service": "use event_log_path"})
        outlier.done()
    block.aside("load_stats_config", "enable_deferred_cluster_creation")
    block.unsupported({"upstream_bind_config": "bind in the client"})
    block.done()
    return local, log


def runtime(block: Block | None, named: Collection[str] = ()) -> None:
    """Runtime keys that would change what is read here are refused: there is no runtime. `named`: those of the document."""
    if block is None:
        return
    for layer in block.blocks("layers"):
        static = layer.raw("static_layer")
        layer.aside("name", "disk_layer", "admin_layer", "rtds_layer")
        layer.done()
        for key in _leaves(static, ()):
            if key[0].partition(".")[0] in _RUNTIME or ".".join(key) in named:
                rule, hint = "is not supported here", "write the field itself"
                block.found.refuse((*layer.at("static_layer"), *key), rule, hint, about_key=True)
    block.done()


def _leaves(value: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    if isinstance(value, Mapping) and len(path) < _DEEPEST:
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, str(key)))]
    return [path] if path else []
