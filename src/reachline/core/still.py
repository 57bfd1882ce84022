"""A ledger held still, and its checkpoint: canonical JSON, made a slice at a time.

`still` is quick and belongs between two ticks; `slices` is slow, and may be taken in another thread, a piece at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from reachline.core import rules as rules_record
from reachline.core.cusum import Said
from reachline.core.kept import Kept, call_rows, kept, others
from reachline.core.offered import Offered
from reachline.core.orders import Book
from reachline.core.quorum import Ballot
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.steer import Steer
from reachline.model import Line, LineId, Scope, Standing, VantageId, Version

if TYPE_CHECKING:
    from reachline.core.ledger import Ledger

__all__ = ["SCHEMA", "STANDING", "Still", "flat", "shown_line", "slices", "still"]

SCHEMA: Final = 3

STANDING: Final = tuple(Standing.__dataclass_fields__)
"""Fields of a standing, in the order they are written in."""
_SLICE: Final = 25
"""Lines of one slice: with five vantages half a millisecond."""

_T = TypeVar("_T")


class Still(NamedTuple):
    """A ledger between two ticks, pending evidence included: references to values that nobody changes any more."""

    scope: Scope
    rules: Rules
    lines: Mapping[LineId, Line]
    rows: Mapping[LineId, Row]
    ballots: Mapping[LineId, Mapping[VantageId, Ballot]]
    pending: Mapping[VantageId, Mapping[LineId, Said]]
    kept: Kept
    heard_ms: Mapping[LineId, int]
    vantages: frozenset[VantageId]
    fresh: frozenset[LineId]
    called: frozenset[LineId]
    stale: bool
    standings: Mapping[LineId, Standing]
    version: Version
    panic: str
    issued_ms: int
    book: Book
    offered: Offered
    asked: Offered
    steer: Steer | None


def flat(value: Any) -> Any:
    """NamedTuples as lists, enums as their value, sets sorted: what json makes of a row."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [flat(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(flat(item) for item in value)
    return value


def still(ledger: Ledger) -> Still:
    """The ledger as it stands, whatever becomes of it: 0.1 µs a line, for everything a line has is replaced, never changed."""
    poll, board = ledger.poll, ledger.board
    return Still(
        scope=ledger.scope,
        rules=ledger.rules,
        lines=ledger.told,
        rows=dict(ledger.rows),
        ballots=dict(poll.ballots),
        pending={vantage: dict(told) for vantage, told in poll.pending.items()},
        kept=kept(ledger),
        heard_ms=dict(poll.heard_ms),
        vantages=poll.vantages,
        fresh=frozenset(ledger.fresh),
        called=frozenset(ledger.called),
        stale=ledger.stale,
        standings=dict(board.standings),
        version=board.version,
        panic=board.panic,
        issued_ms=board.issued_ms,
        book=ledger.book,
        offered=ledger.offered,
        asked=ledger.asked,
        steer=board.steer,
    )


def slices(state: Still) -> Iterator[bytes]:
    """The checkpoint in pieces, none of which takes longer to make than a few lines do; joined they are what `decode` reads."""
    yield b'{"asked":' + _json(state.asked) + b',"ballots":'
    yield from _object(state.ballots, lambda cast: cast)
    yield b',"called":' + _json(sorted(state.called)) + b',"calls":'
    yield from _array(call_rows(state.kept), lambda row: row)
    yield b',"fresh":' + _json(sorted(state.fresh)) + b',"heard":'
    yield from _array(state.heard_ms.items(), lambda item: item)
    yield b',"issued_ms":' + _json(state.issued_ms) + b',"kept":' + _json(others(state.kept)) + b',"lines":'
    yield from _array(state.lines.values(), shown_line)
    yield (
        b',"offered":'
        + _json(state.offered)
        + b',"orders":'
        + _json(state.book)
        + b',"panic":'
        + _json(state.panic)
        + b',"pending":'
    )
    lines = set().union(*state.pending.values())
    pending = state.pending.items()
    yield from _object(
        dict(zip(lines, lines, strict=True)),
        lambda line: {vantage: told[line].seen for vantage, told in pending if line in told},
    )
    yield b',"published":'
    yield from _object(state.standings, _standing)
    yield b',"rows":'
    yield from _object(state.rows, lambda row: row)
    rest = {
        "rules": json.loads(rules_record.encode(state.rules)),
        "schema": SCHEMA,
        "scope": [state.scope.cluster, state.scope.tenant],
        "stale": state.stale,
        "steer": state.steer,
        "vantages": state.vantages,
        "version": state.version,
    }
    yield b"," + _json(rest)[1:]


def _object(values: Mapping[LineId, _T], shown: Callable[[_T], object]) -> Iterator[bytes]:
    """A JSON object with its keys in order."""
    yield b"{"
    keys, comma = iter(sorted(values)), b""
    while part := {key: shown(values[key]) for key in islice(keys, _SLICE)}:
        yield comma + _json(part)[1:-1]
        comma = b","
    yield b"}"


def _array(values: Iterable[_T], shown: Callable[[_T], object]) -> Iterator[bytes]:
    yield b"["
    left, comma = iter(values), b""
    while part := [shown(value) for value in islice(left, _SLICE)]:
        yield comma + _json(part)[1:-1]
        comma = b","
    yield b"]"


def _plain(value: object) -> object:
    """What json has no form for: the values of `flat`, made only where there is one."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return flat(value)
    raise TypeError(f"{type(value).__name__} in a checkpoint")


_TEXT: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain).encode


def _json(value: object) -> bytes:
    return _TEXT(value).encode()


def shown_line(line: Line) -> dict[str, object]:
    """A line as it stands in a checkpoint."""
    end = line.endpoint
    return {
        "id": line.id,
        "scope": [line.scope.cluster, line.scope.tenant],
        "endpoint": [end.scheme, end.host, end.port, end.path, end.family],
        "outbound": line.outbound,
        "origin": line.origin,
        "base": line.base,
        "roles": flat(line.roles),
        "provider": line.provider,
        "groups": list(line.groups),
        "capacity": line.capacity,
        "drained": line.drained,
        "vantages": flat(line.vantages),
        "region": line.region,
    }


def _standing(standing: Standing) -> list[object]:
    return [getattr(standing, name) for name in STANDING]
