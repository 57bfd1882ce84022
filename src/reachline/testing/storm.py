"""A storm: seeded evidence for ledgers and a journal, and a process that can be killed in the middle of it.

Act number n is a function of the seed and n alone, so whoever knows how many acts a journal holds can make the ledgers again
without reading a single body. `python -m reachline.testing.storm DIRECTORY SEED` forks one storm for each line it reads.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from reachline.core.ledger import Ledger
from reachline.core.orders import Action, Order
from reachline.core.rules import BreakerRules, FaultRules, Limit, Rules, with_tables
from reachline.model import CENSORED_US, Kind, LineId, Outcome, Reading, Scope, Version
from reachline.store.journal import Journal, recover
from reachline.store.records import Members, Ordered, Outcomes, Reconfigured, Record, Reported, Ticked, Undone
from reachline.store.recover import feed
from reachline.store.segment import Segment, listed
from reachline.testing import builders

__all__ = ["RULES", "SCOPES", "Tick", "act", "begin", "held", "perform", "serve"]

SCOPES: Final = (builders.scope("payments"), builders.scope("search"))
VANTAGES: Final = builders.vantages(3)
LINES: Final = {scope: tuple(builders.line(f"l{n}", cluster=scope.cluster) for n in range(6)) for scope in SCOPES}
RULES: Final = Rules(
    limits=(
        Limit("loss", 10, 5, 50, 30, 25),
        Limit("timeout", 20, 10, 50, 30, 25),
        Limit("p95", 200_000, 160_000, 500_000, 400_000, 20),
        Limit("errors", 20, 10, 100, 50, 5),
        Limit("connect", None, None, 0, 3, 3),
    ),
    faults=with_tables(FaultRules(), decay=0.15, half_life_ms=30_000),
    # A storm lasts milliseconds: its breakers must open, try and ramp within them.
    breaker=BreakerRules(cooldown_ms=40, trial_ms=10, step_ms=10, min_ok=20, starved_ms=60, starved_min=5),
)
_BURST: Final = 6
"""Acts appended before their commit is awaited: several wait in the writer when the process dies."""


class Tick(NamedTuple):
    """An act that is no evidence: close this scope's ledger."""

    scope: Scope
    at_ms: int


def act(seed: int, number: int, at_ms: int) -> Record | Tick:
    """Act `number` of a storm, at the time the journal's clock showed."""
    rng = Random(f"{seed}:{number}")
    scope = SCOPES[number % len(SCOPES)]
    lines = LINES[scope]
    chance = rng.random()
    if chance < 0.3:
        return Tick(scope, at_ms)
    if chance < 0.45:
        row = Outcome(rng.choice(lines).id, window=rng.randrange(5), ok=rng.randrange(40), failed=rng.randrange(8) // 7)
        return Outcomes(scope=scope, at_ms=at_ms, client=f"c{rng.randrange(4)}", rows=(row,))
    if chance < 0.47:
        return Members(scope=scope, at_ms=at_ms, vantages=frozenset(VANTAGES[: rng.randint(2, 3)]))
    if chance < 0.49:
        kept = tuple(rng.sample(lines, rng.randint(4, len(lines))))
        return Reconfigured(scope=scope, at_ms=at_ms, lines=kept, rules=RULES, vantages=frozenset(VANTAGES))
    if chance < 0.51:
        return Ordered(scope=scope, at_ms=at_ms, order=_order(rng, number, scope, at_ms))
    if chance < 0.515:
        return Undone(scope=scope, at_ms=at_ms, number=number - rng.randrange(100), by="storm")
    readings = tuple((line.id, _reading(rng, number, line.id)) for line in lines)
    return Reported(
        scope=scope, at_ms=at_ms, vantage=rng.choice(VANTAGES), doubt=int(rng.random() < 0.1), readings=readings
    )


def _order(rng: Random, number: int, scope: Scope, at_ms: int) -> Order:
    """Any order on a line or on all of them, over within a tenth of a second."""
    return Order(
        number=number,
        action=rng.choice(list(Action)),
        target=rng.choice((scope.cluster, *(line.id for line in LINES[scope]))),
        by="storm",
        why="",
        since_ms=at_ms,
        until_ms=at_ms + rng.randrange(100),
        weight=rng.randint(1, 200),
        force=rng.random() < 0.1,
    )


def _reading(rng: Random, number: int, line: LineId) -> Reading:
    """Trouble comes in waves that all vantages see, or no line would ever be opened."""
    p50_us = 20_000 + rng.randrange(2_000)
    fine = builders.reading(Kind.HTTP, ok=rng.randint(38, 41), p50_us=p50_us, p95_us=p50_us + rng.randrange(20_000))
    match Random(f"{line}:{number // 40}").randrange(8):
        case 0:
            return builders.mute()
        case 1:
            return fine._replace(p95_us=CENSORED_US, jitter_us=None)
        case 2:
            return fine._replace(counts=fine.counts._replace(errors=20), recent_bad=3)
        case _:
            return fine


def begin(epoch: int) -> dict[Scope, Ledger]:
    """The ledgers of a storm before its first act."""
    return {
        scope: Ledger(scope, LINES[scope], RULES, vantages=frozenset(VANTAGES), version=Version(epoch, 0), now_ms=0)
        for scope in SCOPES
    }


def perform(ledgers: Mapping[Scope, Ledger], done: Record | Tick) -> Record:
    """Let the ledgers do it; the record that a journal keeps of it."""
    if isinstance(done, Tick):
        closed = ledgers[done.scope].close(done.at_ms)
        return Ticked(scope=done.scope, at_ms=done.at_ms, changes=closed.changes, digest=closed.digest)
    assert isinstance(done, Reported | Outcomes | Members | Reconfigured | Ordered | Undone)
    feed(ledgers[done.scope], done)
    return done


def held(directory: Path) -> int:
    """How many acts a journal holds: every record but the openings of its segments."""
    total = 0
    for path in listed(directory):
        with Segment(path) as segment:
            total += sum(stored.kind != 1 for stored in segment.records())
    return total


async def blow(directory: Path, seed: int) -> None:
    """Go on with the storm until killed; each acknowledged number is written to standard output, one a line."""
    found, number = recover(directory), held(directory)
    journal = Journal.open(directory, segment=0.06, resume=0.02)
    ledgers = found.ledgers or begin(journal.epoch)
    for ledger in ledgers.values():
        ledger.rebase(Version(journal.epoch, 0))
    journal.follow(ledgers)
    clock, rng = journal.timeline(), Random(seed + number)
    while True:
        numbers = [
            _append(journal, ledgers, act(seed, number + step, clock())) for step in range(rng.randint(1, _BURST))
        ]
        number += len(numbers)
        if await journal.durable(numbers[-1]):
            os.write(1, "".join(f"ack {one}\n" for one in numbers).encode())


def _append(journal: Journal, ledgers: Mapping[Scope, Ledger], done: Record | Tick) -> int:
    """Evidence goes into the journal first, a tick after it was closed."""
    if isinstance(done, Tick):
        return journal.append(perform(ledgers, done))
    number = journal.append(done)
    perform(ledgers, done)
    return number


def serve(directory: Path, seed: int) -> None:
    """One fork of this process for each line of standard input; its end is reported before the next line is read."""
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(blow(directory, seed))
        os.write(1, f"pid {child}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"dead\n")


def main(arguments: Sequence[str]) -> None:
    serve(Path(arguments[0]), int(arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
