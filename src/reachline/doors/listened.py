"""What is wrong or odd with where clusters are listened for: addresses that clash, lines that a data plane cannot use."""

from __future__ import annotations

from collections.abc import Iterator

from reachline.doors.listening import Named, clashes, is_http, is_http2, why_apart
from reachline.doors.outbounds import DIRECT
from reachline.doors.problems import Finding
from reachline.doors.settings import Cluster, Document, LineSettings

__all__ = ["listened"]


def listened(document: Document) -> Iterator[Finding]:
    """Of all clusters together. What lines cannot be used is told where a cluster is listened for: others have no Envoy."""
    entries = [
        Named(name, place, each, is_http(_schemes(cluster), each.protocol))
        for name, cluster in document.clusters.items()
        for place, each in enumerate(cluster.listen)
    ]
    for clash in clashes(entries):
        path = ("clusters", clash.cluster, "listen", clash.place, clash.key)
        yield Finding(path=path, rule=clash.rule, hint=clash.hint)
    for name, cluster in document.clusters.items():
        if cluster.listen:
            yield from _apart(name, cluster)
            yield from _mixed(name, cluster)


def _schemes(cluster: Cluster) -> frozenset[str]:
    found = (line for line in cluster.lines.values() if not _why(line))
    return frozenset(line.endpoint.scheme for line in found)


def _why(line: LineSettings) -> str:
    bound = "?source=" if line.source or line.interface else ""
    return why_apart(line.endpoint, line.via if line.via != DIRECT else DIRECT + bound)


def _apart(name: str, cluster: Cluster) -> Iterator[Finding]:
    apart = {line: why for line, settings in cluster.lines.items() if (why := _why(settings))}
    is_none_left = len(apart) == len(cluster.lines)
    if is_none_left:
        rule = "has no line that an Envoy can use"
        yield Finding(path=("clusters", name, "listen"), rule=rule, hint="; ".join(sorted(set(apart.values()))))
        return
    for line, why in apart.items():
        rule = f"{why}: Envoys and gRPC clients do without this line"
        yield Finding(path=("clusters", name, "lines", line), rule=rule, is_error=False)


def _mixed(name: str, cluster: Cluster) -> Iterator[Finding]:
    """An Envoy speaks one HTTP to all endpoints of a cluster: gRPC lines beside others are spoken to by HTTP/1.1."""
    schemes = _schemes(cluster)
    if is_http2(schemes) or not any(is_http(schemes, each.protocol) for each in cluster.listen):
        return
    for line, settings in cluster.lines.items():
        if is_http2(frozenset({settings.endpoint.scheme})) and not _why(settings):
            rule = "is gRPC in a cluster of other lines: Envoys speak HTTP/1.1 to it, as to those"
            hint = "give lines of gRPC a cluster of their own"
            yield Finding(path=("clusters", name, "lines", line), rule=rule, hint=hint, is_error=False)
