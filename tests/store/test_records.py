"""What is written is what is read, value for value, whatever was written before; and it is small."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.orders import Action, Order
from reachline.errors import JournalError
from reachline.model import (
    CENSORED_US,
    Change,
    Counts,
    Fact,
    Kind,
    LineId,
    Outcome,
    Reading,
    Role,
    VantageId,
)
from reachline.store.records import (
    Bodies,
    Gap,
    Members,
    Opened,
    Ordered,
    Outcomes,
    Reconfigured,
    Record,
    RecordKind,
    Reported,
    Ticked,
    Undone,
    kind_of,
)
from reachline.testing import builders
from reachline.testing.storm import RULES

COUNT = st.integers(0, 2**31)
RTT = st.none() | st.integers(0, CENSORED_US)
READINGS = st.builds(
    Reading,
    kind=st.sampled_from(Kind),
    counts=st.builds(Counts, *[COUNT] * len(Counts._fields)),
    sent=COUNT,
    lost=COUNT,
    rounds=st.integers(0, 3),
    rounds_ok=st.integers(0, 3),
    recent=st.integers(0, 5),
    recent_bad=st.integers(0, 5),
    answered=COUNT,
    ewma_us=RTT,
    p50_us=RTT,
    p95_us=RTT,
    jitter_us=RTT,
    fresh_ok=COUNT,
    fresh_failed=COUNT,
    covered_ms=COUNT,
    void=st.booleans(),
    quality=st.integers(0, 2),
    fresh_marred=COUNT,
    fresh_slow=COUNT,
    fresh_crawl=COUNT,
)
ROWS = st.lists(st.tuples(st.sampled_from([LineId("payments/a"), LineId("payments/b@az1")]), READINGS), max_size=4)
PARTS = st.builds(
    Reported,
    scope=st.sampled_from([builders.scope(), builders.scope("search")]),
    at_ms=COUNT,
    vantage=st.sampled_from(builders.vantages(2)),
    doubt=st.integers(0, 7),
    readings=ROWS.map(tuple),
)


def read_back(bodies: Bodies, record: Record, body: bytes) -> Record:
    return bodies.read(kind_of(record), None if isinstance(record, Gap) else record.scope, record.at_ms, body)


@given(parts=st.lists(PARTS, max_size=12), resumed=st.integers(0, 12))
def test_readings_come_back_exactly_in_any_order_also_behind_a_resume_point(
    parts: Sequence[Reported], resumed: int
) -> None:
    writer, reader = Bodies(), Bodies()

    for number, part in enumerate(parts):
        if number == resumed:
            reader = Bodies.thaw(b"".join(writer.freeze()))
        assert read_back(reader, part, writer.write(part)) == part


CHANGE = Change(
    line=LineId("payments/a"),
    at_ms=30_000,
    before=builders.standing("a"),
    after=builders.standing("a", weight=87, reason="vote.loss.degraded"),
    rule="vote.loss.degraded",
    votes=(builders.vote("v1"),),
    facts=(Fact("bad_ticks", 2),),
)


@pytest.mark.parametrize(
    "record",
    [
        Opened(scope=builders.scope(), at_ms=1, checkpoint=b"{}" * 4_000, continues=True),
        Outcomes(scope=builders.scope(), at_ms=2, client="c", rows=(Outcome(LineId("payments/a"), window=3, ok=9),)),
        Members(scope=builders.scope(), at_ms=3, vantages=frozenset(builders.vantages(3))),
        Reconfigured(
            scope=builders.scope(),
            at_ms=4,
            lines=(builders.line("a", roles=[Role.PRIMARY], vantages=["v1"]), builders.line("b", origin="az1")),
            rules=RULES,
            vantages=frozenset(),
        ),
        Ticked(scope=builders.scope(), at_ms=5, changes=(), digest=bytes(16)),
        Ticked(scope=builders.scope(), at_ms=6, changes=(CHANGE,) * 20, digest=bytes(16)),
        Ordered(scope=builders.scope(), at_ms=8, order=Order(7, Action.DRAIN, "payments", "kim", "Bauarbeiten ü", 8)),
        Ordered(
            scope=builders.scope(),
            at_ms=9,
            order=Order(8, Action.WEIGHT, "group:f", "kim", "", 9, until_ms=99, weight=30, force=True),
        ),
        Undone(scope=builders.scope(), at_ms=10, number=7, by="kim", why="done"),
        Gap(at_ms=7, since_ms=5, lost=12, reason="database or disk is full"),
    ],
    ids=lambda record: type(record).__name__.lower(),
)
def test_every_other_record_comes_back_equal(record: Record) -> None:
    assert read_back(Bodies(), record, Bodies().write(record)) == record


def test_a_tick_with_changes_is_a_kind_of_its_own_so_that_an_index_finds_decisions() -> None:
    quiet = Ticked(scope=builders.scope(), at_ms=5, changes=(), digest=b"")

    kinds = [kind_of(quiet), kind_of(Ticked(scope=builders.scope(), at_ms=5, changes=(CHANGE,), digest=b""))]

    assert kinds == [RecordKind.TICKED, RecordKind.DECIDED]


@pytest.mark.parametrize("body", [b"", b"\x07", b"\x01garbage", b"\x95\x09\x00\xc0\xc2\xc4\x00"])
@pytest.mark.parametrize("kind", list(RecordKind))
def test_a_malformed_body_is_named_never_a_crash(kind: RecordKind, body: bytes) -> None:
    with pytest.raises(JournalError):
        Bodies().read(kind, builders.scope(), 0, body)


def moving(rng: Random, names: Sequence[LineId], *, noise: float) -> tuple[tuple[LineId, Reading], ...]:
    """A quiet part: nothing failed; `noise` is how far RTT figures wander between two heartbeats, as a share."""
    rows = []
    for name in names:
        base = Random(name).randrange(2_000, 120_000)
        p50, p95 = round(base * (1 + noise * rng.gauss(0, 0.2))), round(base * (1.3 + noise * rng.gauss(0, 0.5)))
        ewma = round(base * (1 + noise * rng.gauss(0, 0.5)))
        reading = Reading(Kind.TCP, Counts(ok=120), sent=120, rounds=3, rounds_ok=3, recent=5, answered=120)
        rows.append(
            (
                name,
                reading._replace(
                    ewma_us=ewma, p50_us=p50, p95_us=p95, jitter_us=p95 - p50, fresh_ok=10, covered_ms=10_000
                ),
            )
        )
    return tuple(rows)


@pytest.mark.parametrize(("noise", "most"), [(0.0, 0.5), (0.02, 6.0), (0.2, 8.0)])
def test_a_quiet_reading_costs_what_its_figures_moved(noise: float, most: float) -> None:
    names = [LineId(f"payments/line-{number:03}@az1") for number in range(100)]
    rng, bodies = Random(7), Bodies()

    sizes = [
        len(
            bodies.write(
                Reported(
                    scope=builders.scope(),
                    at_ms=0,
                    vantage=VantageId("v1"),
                    readings=moving(rng, names, noise=noise),
                )
            )
        )
        for _ in range(20)
    ]

    assert sum(sizes[1:]) / 19 / len(names) <= most
