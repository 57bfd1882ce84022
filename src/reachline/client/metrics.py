"""A client's figures as Prometheus reads them, without its library. Pure: figures in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from reachline.upstream import ClusterStats

if TYPE_CHECKING:
    from reachline.client.client import ClientStats

__all__ = ["text"]

Sample = tuple[Mapping[str, str], float]


def text(stats: ClientStats, kept: Mapping[str, Mapping[str, int]]) -> str:
    """All families, ended by a line end. `kept` are counters and gauges of clusters kept in process, by Envoy's names."""
    rows = [*_clusters(stats.clusters), *_client(stats), *_kept(kept)]
    return "\n".join(rows) + "\n"


def _clusters(clusters: Mapping[str, ClusterStats]) -> Iterator[str]:
    def each(name: str, kind: str, told: str, values: Mapping[str, float]) -> Iterator[str]:
        return _family(name, kind, told, [({"cluster": cluster}, value) for cluster, value in values.items()])

    columns = ("ok", "failed", "late", "errors", "unproven")
    calls = [
        ({"cluster": name, "outcome": column}, float(getattr(each.calls, column)))
        for name, each in clusters.items()
        for column in columns
    ]
    yield from _family("calls_total", "counter", "Calls by how they ended; each try is one.", calls)
    for name, told, pick in (
        ("calls_dropped_total", "Calls whose outcome found no room.", "dropped"),
        ("calls_shed_total", "Calls refused, for what is left of all regions does not carry them.", "shed"),
        ("retries_total", "Tries beyond the first of their call.", "retries"),
        ("retries_refused_total", "Tries that the process's budget did not pay for.", "unpaid"),
    ):
        yield from each(name, "counter", told, {key: getattr(one.calls, pick) for key, one in clusters.items()})
    yield from each("lines", "gauge", "Lines known.", {key: one.lines for key, one in clusters.items()})
    yield from each(
        "lines_open", "gauge", "Lines held out here.", {key: len(one.open) for key, one in clusters.items()}
    )
    yield from each(
        "openings_total", "counter", "Lines taken out here.", {key: one.trips for key, one in clusters.items()}
    )
    yield from each(
        "stale",
        "gauge",
        "Whether the lines are older than they may be.",
        {key: one.is_stale for key, one in clusters.items()},
    )
    silence = {key: one.silence for key, one in clusters.items() if one.silence is not None}
    yield from each("silence_seconds", "gauge", "Since a center last spoke.", silence)


def _client(stats: ClientStats) -> Iterator[str]:
    posts = stats.posts
    outcomes = [
        ({"result": name}, float(getattr(posts, name))) for name in ("confirmed", "unconfirmed", "dropped", "refused")
    ]
    yield from _family(
        "outcomes_total", "counter", "Calls told to the center, by what became of the telling.", outcomes
    )
    yield from _family("posts_total", "counter", "Requests that told them.", [({}, posts.posts)])
    yield from _family("running", "gauge", "Whether the client's thread runs.", [({}, stats.is_running)])


def _kept(kept: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """By the names that Envoy gives them for Prometheus, so that dashboards made for it go on working."""
    names = sorted({name for each in kept.values() for name in each})
    for name in names:
        for cluster, each in kept.items():
            if name in each:
                labels = _labels({"envoy_cluster_name": cluster})
                yield f"envoy_cluster_{name.replace('.', '_')}{labels} {each[name]}"


def _family(name: str, kind: str, told: str, samples: Sequence[Sample]) -> Iterator[str]:
    if not samples:
        return
    full = f"reachline_client_{name}"
    yield f"# HELP {full} {told}"
    yield f"# TYPE {full} {kind}"
    for labels, value in samples:
        yield f"{full}{_labels(labels)} {float(value):.17g}"


def _labels(labels: Mapping[str, str]) -> str:
    """Names of clusters hold nothing that must be escaped: `connect` refuses them."""
    inner = ",".join(_pair(pair) for pair in labels.items())
    return f"{{{inner}}}" if inner else ""


def _pair(pair: Iterable[str]) -> str:
    name, value = pair
    return f'{name}="{value}"'
