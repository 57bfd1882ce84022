"""What operators see of clients that follow this center: who asks for what, what was taken, what was refused and why."""

from __future__ import annotations

from typing import Final

from reachline.center.xds.resources import Audience, Resources
from reachline.center.xds.serving import Serving, Stream
from reachline.center.xds.steering import Steering
from reachline.errors import one_line
from reachline.wire.ads_serving import Seen
from reachline.wire.steered import AudienceRow, SteeredDocument, StreamRow, TypeRow

__all__ = ["LIMIT", "is_troubled", "page", "row"]

LIMIT: Final = 200
"""Streams in one document, troubled ones first: ten milliseconds of the loop that judges."""
_SLOW_MS: Final = 5_000
"""An Envoy answers within milliseconds; as long as a half-open connection is waited for."""
_NAMES: Final = 20
"""Names of a type that are listed: a person reads no more, and the total stands beside."""


def page(
    serving: Serving, steering: Steering, now_ms: int, *, node: str = "", trouble: bool = False
) -> SteeredDocument:
    """Everything as it stands; of the streams all, or those of one node, or in trouble."""
    chosen = [stream for stream in serving.streams if node in ("", stream.node.id)]
    troubled = [stream for stream in chosen if is_troubled(stream, now_ms)]
    well = [] if trouble else [stream for stream in chosen if not is_troubled(stream, now_ms)]
    return {
        "served": True,
        "reason": steering.fault,
        "settled": serving.is_settled,
        "streams": [row(stream, now_ms, is_settled=serving.is_settled) for stream in [*troubled, *well][:LIMIT]],
        "streams_total": len(chosen),
        "troubled": len(troubled),
        "audiences": _audiences(serving),
        "notes": {name: list(said) for name, said in sorted(steering.notes().items())},
    }


def is_troubled(stream: Stream, now_ms: int) -> bool:
    """Whether it refuses something, or has not answered for longer than a live client takes."""
    subscriber = stream.subscriber
    return subscriber.refuses or (subscriber.waits and now_ms - stream.asked_ms > _SLOW_MS)


def row(stream: Stream, now_ms: int, *, is_settled: bool) -> StreamRow:
    """One stream."""
    node = stream.node
    return {
        "node": one_line(node.id),
        "cluster": one_line(node.cluster),
        "kind": stream.audience.kind.value,
        "locality": one_line(str(node.locality)),
        "release": one_line(" ".join(filter(None, (node.user_agent or "unknown", node.version)))),
        "peer": stream.peer,
        "variant": "delta" if stream.subscriber.delta else "sotw",
        "age": round((now_ms - stream.since_ms) / 1_000, 3),
        "heard": round((now_ms - stream.asked_ms) / 1_000, 3),
        "told": stream.told,
        "held": stream.is_returning and not is_settled,
        "types": [_type(each, stream.cell.value) for each in stream.subscriber.seen()],
    }


def _type(seen: Seen, newest: Resources | None) -> TypeRow:
    version = newest.shelf(seen.type_url).version if newest is not None else ""
    return {
        "type": seen.type_url.rpartition(".")[2],
        "wildcard": seen.wildcard,
        "names": [one_line(name) for name in seen.names[:_NAMES]],
        "names_total": len(seen.names),
        "version": seen.version,
        "accepted": seen.accepted,
        "current": not seen.waits and not seen.owed and seen.version == version,
        "waiting": seen.waits,
        "owed": seen.owed,
        "nacks": seen.nacks,
        "error": seen.error,
        "refused": {one_line(name): reason for name, reason in seen.refused.items()},
    }


def _audiences(serving: Serving) -> list[AudienceRow]:
    found: dict[Audience, tuple[int, Resources | None]] = {}
    for stream in serving.streams:
        count, _ = found.get(stream.audience, (0, None))
        found[stream.audience] = count + 1, stream.cell.value
    ordered = sorted(found.items(), key=lambda each: (each[0].kind.value, str(each[0].locality)))
    return [_audience(audience, *each) for audience, each in ordered]


def _audience(audience: Audience, streams: int, resources: Resources | None) -> AudienceRow:
    shelves = {} if resources is None else resources.shelves
    return {
        "kind": audience.kind.value,
        "locality": one_line(str(audience.locality)),
        "streams": streams,
        "resources": {url.rpartition(".")[2]: len(shelf.by_name) for url, shelf in shelves.items()},
        "bytes": sum(len(one.body) for shelf in shelves.values() for one in shelf.by_name.values()),
    }
