"""Checkpoints: canonical JSON back into a ledger, and all of it at once. Refuses a schema that it does not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from reachline.core import kept
from reachline.core import rules as rules_record
from reachline.core.breaker import CLOSED, Breaker
from reachline.core.cusum import Asked, Evidence
from reachline.core.judge import Judgement
from reachline.core.offered import Offered
from reachline.core.orders import NOTHING, Action, Book, Obeys, Order
from reachline.core.quorum import Ballot
from reachline.core.row import Row
from reachline.core.steer import thawed
from reachline.core.still import SCHEMA, STANDING, flat, shown_line, slices, still
from reachline.core.usual import Usual
from reachline.errors import JournalError
from reachline.model import (
    Endpoint,
    Gate,
    Health,
    Line,
    LineId,
    Role,
    Scope,
    Standing,
    VantageId,
    Version,
    Vote,
    Zone,
)

if TYPE_CHECKING:
    from reachline.core.ledger import Ledger

__all__ = ["decode", "decode_lines", "encode", "encode_lines", "flat"]


def encode(ledger: Ledger) -> bytes:
    """The whole state at once."""
    return b"".join(slices(still(ledger)))


def decode(frozen: bytes, kind: type[Ledger]) -> Ledger:
    """The ledger of `encode`; JournalError names what is wrong."""
    try:
        document = json.loads(frozen)
        if document["schema"] != SCHEMA:
            raise JournalError(f"checkpoint of schema {document['schema']}; this engine reads {SCHEMA}")
        return _thawed(document, kind)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise JournalError(f"not a checkpoint: {error!r}") from error


def _thawed(document: dict[str, Any], kind: type[Ledger]) -> Ledger:
    ledger = kind(
        Scope(cluster=document["scope"][0], tenant=document["scope"][1]),
        tuple(_thaw_line(line) for line in document["lines"]),
        rules_record.decode(json.dumps(document["rules"]).encode()),
        vantages=frozenset(VantageId(vantage) for vantage in document["vantages"]),
        version=Version(*document["version"]),
        now_ms=document["issued_ms"],
    )
    rows = {LineId(line): _row(row) for line, row in document["rows"].items()}
    ledger.restore(rows, _book(document["orders"]))
    ballots = {
        LineId(line): {VantageId(vantage): _ballot(ballot) for vantage, ballot in held.items()}
        for line, held in document["ballots"].items()
    }
    ledger.poll.restore(ballots)
    for line, told in document["pending"].items():
        for vantage, seen in told.items():
            ledger.poll.recall(VantageId(vantage), LineId(line), Evidence(*seen))
    kept.thawed(document["kept"], document["calls"], ledger)
    ledger.poll.heard_ms = {LineId(line): heard for line, heard in document["heard"]}
    ledger.fresh = {LineId(line) for line in document["fresh"]}
    ledger.called = {LineId(line) for line in document["called"]}
    ledger.stale = document["stale"]
    published = {LineId(line): _thaw_standing(held) for line, held in document["published"].items()}
    ledger.board.is_plane = ledger.hearing.plane_ms is not None
    ledger.offered = Offered(*document["offered"])
    ledger.asked = Offered(*document.get("asked", document["offered"]))
    ledger.board.steer = thawed(document.get("steer"))
    seen = (ledger.lines, ledger.rows, ledger.rules)
    ledger.board.restore(published, document["panic"], *seen, offered=ledger.offered.level)
    return ledger


def encode_lines(lines: tuple[Line, ...]) -> bytes:
    """Lines as canonical JSON, for the journal's records."""
    return json.dumps([shown_line(line) for line in lines], sort_keys=True, separators=(",", ":")).encode()


def decode_lines(record: bytes) -> tuple[Line, ...]:
    """The lines of `encode_lines`; JournalError where they are not."""
    try:
        return tuple(_thaw_line(line) for line in json.loads(record))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise JournalError(f"not a record of lines: {error!r}") from error


def _thaw_line(record: dict[str, Any]) -> Line:
    scheme, host, port, path, family = record["endpoint"]
    return Line(
        id=LineId(record["id"]),
        scope=Scope(cluster=record["scope"][0], tenant=record["scope"][1]),
        endpoint=Endpoint(scheme=scheme, host=host, port=port, path=path, family=family),
        outbound=record["outbound"],
        origin=record["origin"],
        base=record["base"],
        roles=frozenset(map(Role, record["roles"])),
        provider=record["provider"],
        groups=tuple(record["groups"]),
        capacity=record["capacity"],
        drained=record["drained"],
        vantages=frozenset(map(VantageId, record["vantages"])),
        region=record.get("region", ""),
    )


def _row(record: list[Any]) -> Row:
    known = dict(zip(Row._fields, record, strict=True))
    (health, *judged), (gate, *broken), (sums, held) = known["judgement"], known["breaker"], known["asked"]
    breaker, obeys = Breaker(Gate(gate), *broken), Obeys(*known["obeys"])
    return Row(**known)._replace(
        judgement=Judgement(Health(health), *judged),
        breaker=CLOSED
        if breaker == CLOSED
        else breaker,  # as of a row that was never frozen: seen without looking closer
        zone=Zone(known["zone"]),
        asked=Asked(tuple(sums), held),
        obeys=NOTHING if obeys == NOTHING else obeys,
        usual=Usual(*known["usual"]),
        recent=tuple(known["recent"]),
    )


def _book(record: list[Any]) -> Book:
    given, last = record
    return Book(tuple(Order(number, Action(action), *rest) for number, action, *rest in given), last)


def _ballot(record: list[Any]) -> Ballot:
    zone, received_ms, doubt, vote, held, *suspicion = record
    why = None if vote is None else Vote(VantageId(vote[0]), Zone(vote[1]), *vote[2:])
    return Ballot(Zone(zone), received_ms, doubt, why, tuple((name, level) for name, level in held), *suspicion)


def _thaw_standing(record: list[Any]) -> Standing:
    known = dict(zip(STANDING, record, strict=True))
    return Standing(**known | {"health": Health(known["health"]), "gate": Gate(known["gate"])})
