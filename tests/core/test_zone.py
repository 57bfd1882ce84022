from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.rules import Limit, Rules
from reachline.core.zone import verdict, wilson_at_least
from reachline.model import CENSORED_US, Counts, Kind, Reading, VantageId, Zone

V = VantageId("v1")
RULES = Rules(
    limits=(
        Limit("loss", 10, 5, 50, 30, 25),
        Limit("timeout", 20, 10, 50, 30, 25),
        Limit("errors", 20, 10, 100, 50, 5),
        Limit("p95", 200_000, 160_000, 500_000, 400_000, 20),
        Limit("ewma", 150_000, 120_000, 400_000, 320_000, 5),
        Limit("jitter", 150_000, 120_000, 400_000, 320_000, 20),
        Limit("connect", None, None, 0, 3, 3),
    )
)


def zone_of(*readings: Reading, held: dict[str, int] | None = None) -> Zone:
    return verdict(V, readings, held or {}, RULES).zone


def tcp(**known: object) -> Reading:
    base = Reading(Kind.TCP, Counts(ok=200), sent=200, rounds=3, rounds_ok=3, answered=200, ewma_us=60_000)
    return base._replace(p50_us=60_000, p95_us=110_000, jitter_us=50_000)._replace(**known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lost", "sent", "expected"),
    [
        pytest.param(4, 1_000, Zone.H, id="the document's healthy 0.4 %"),
        pytest.param(12, 1_000, Zone.D, id="its sample heartbeat's 1.2 %"),
        pytest.param(41, 1_000, Zone.D, id="its second period's 4.1 % is still degraded"),
        pytest.param(2, 25, Zone.D, id="8 %, but the bound is 2.7 %"),
        pytest.param(3, 50, Zone.D, id="6 %, but the bound is 2.4 %"),
        pytest.param(15, 250, Zone.F, id="6 % of enough"),
        pytest.param(1, 24, Zone.H, id="one short of the minimum has no opinion; connects are well"),
        pytest.param(10, 1_000, Zone.D, id="exactly at the limit is over it"),
        pytest.param(999, 100_000, Zone.H, id="just under it is not"),
    ],
)
def test_loss_needs_its_limit_and_the_confidence_gate(lost: int, sent: int, expected: Zone) -> None:
    assert zone_of(tcp(lost=lost, sent=sent)) is expected


@pytest.mark.parametrize(
    ("late", "expected"), [(0, Zone.H), (8, Zone.D), (12, Zone.F)], ids=["none", "4 % degraded", "6 % failed"]
)
def test_timeouts_are_judged_as_the_document_says(late: int, expected: Zone) -> None:
    assert zone_of(tcp(counts=Counts(ok=200 - late, late=late))) is expected


@pytest.mark.parametrize(
    ("p95_us", "expected"),
    [(110_000, Zone.H), (270_300, Zone.D), (350_000, Zone.D), (500_000, Zone.F), (CENSORED_US, Zone.F), (None, Zone.H)],
)
def test_p95_is_judged_where_it_is_known(p95_us: int | None, expected: Zone) -> None:
    assert zone_of(tcp(p95_us=p95_us)) is expected


def test_a_zone_is_left_at_its_exit_limit_only() -> None:
    between = tcp(lost=8, sent=1_000)

    assert zone_of(between) is Zone.H
    assert zone_of(between, held={"tcp.loss": 1}) is Zone.D
    assert zone_of(tcp(lost=4, sent=1_000), held={"tcp.loss": 1}) is Zone.H


def test_failed_falls_back_to_degraded_before_healthy() -> None:
    held = {"tcp.loss": 2}

    assert zone_of(tcp(lost=35, sent=1_000), held=held) is Zone.F
    assert zone_of(tcp(lost=25, sent=1_000), held=held) is Zone.D


def test_no_good_round_of_three_is_failed_until_three_are_good() -> None:
    assert zone_of(tcp(rounds_ok=0)) is Zone.F
    assert zone_of(tcp(rounds_ok=1)) is Zone.H
    assert zone_of(tcp(rounds_ok=2), held={"tcp.connect": 2}) is Zone.F
    assert zone_of(tcp(rounds_ok=3), held={"tcp.connect": 2}) is Zone.H


def test_refused_connections_are_neither_loss_nor_timeout_but_not_ok() -> None:
    found = verdict(V, [tcp(counts=Counts(refused=200), rounds_ok=0)], {}, RULES)

    assert found.zone is Zone.F
    assert found.vote is not None
    assert found.vote.metric == "tcp.connect"


def test_a_line_that_answers_with_errors_is_named_by_them() -> None:
    storm = tcp(kind=Kind.HTTP, counts=Counts(ok=100, errors=100), rounds_ok=0)

    vote = verdict(V, [storm], {}, RULES).vote

    assert vote is not None
    assert (vote.zone, vote.metric) == (Zone.F, "http.errors")


@pytest.mark.parametrize(("bad", "expected"), [(1, Zone.H), (2, Zone.D), (3, Zone.F)])
def test_five_recent_answers_are_enough_to_judge_server_errors(bad: int, expected: Zone) -> None:
    few = Reading(Kind.HTTP, Counts(ok=300 - bad, errors=bad), rounds=3, rounds_ok=3, recent=5, recent_bad=bad)

    assert zone_of(few) is expected


def test_nothing_known_is_no_verdict() -> None:
    assert zone_of(Reading(Kind.TCP)) is Zone.N
    assert zone_of() is Zone.N


def test_a_void_reading_is_no_evidence() -> None:
    assert zone_of(tcp(rounds_ok=0, void=True)) is Zone.N


def test_refusals_in_part_are_errors_and_unknown_names_are_not() -> None:
    assert zone_of(tcp(counts=Counts(ok=180, refused=20))) is Zone.F
    assert zone_of(tcp(counts=Counts(ok=180, unresolved=20))) is Zone.H


def test_a_name_without_an_address_is_named_as_that() -> None:
    vote = verdict(V, [tcp(counts=Counts(ok=20, unresolved=180), rounds_ok=0)], {}, RULES).vote

    assert vote is not None
    assert (vote.zone, vote.metric, vote.numerator, vote.denominator) == (Zone.F, "tcp.resolve", 0, 3)


def test_a_void_reading_leaves_what_was_held() -> None:
    found = verdict(V, [tcp(void=True)], {"tcp.loss": 1, "http.p95": 1}, RULES)

    assert found == (Zone.N, None, (("tcp.loss", 1),))


@pytest.mark.parametrize("kind", [Kind.DNS, Kind.ICMP, Kind.TLS])
def test_helpers_never_decide_over_a_line_that_others_observe(kind: Kind) -> None:
    dead = Reading(kind, Counts(broken=50), rounds=3, rounds_ok=0)

    assert zone_of(tcp(), dead) is Zone.H
    assert zone_of(dead) is Zone.N
    assert verdict(V, [dead], {}, RULES, decides=frozenset({kind})).zone is Zone.F


def test_dns_and_icmp_never_decide_alone() -> None:
    dead_icmp = Reading(Kind.ICMP, Counts(late=50), sent=50, lost=50, rounds=3, rounds_ok=0)
    dead_dns = Reading(Kind.DNS, Counts(unresolved=50), rounds=3, rounds_ok=0)

    assert zone_of(tcp(), dead_icmp, dead_dns) is Zone.H
    assert verdict(V, [dead_dns], {}, RULES).zone is Zone.N
    assert verdict(V, [dead_dns], {}, RULES, decides=frozenset({Kind.DNS})).zone is Zone.F


@pytest.mark.parametrize("call", [Kind.HTTP, Kind.GRPC, Kind.REDIS])
def test_icmp_raises_the_level_where_tcp_and_the_service_are_both_bad(call: Kind) -> None:
    dead_icmp = Reading(Kind.ICMP, Counts(late=50), sent=50, lost=50, rounds=3, rounds_ok=0)
    tcp_bad, call_bad = tcp(lost=30, sent=1_000), tcp(lost=30, sent=1_000)._replace(kind=call)

    assert zone_of(tcp_bad, dead_icmp) is Zone.D
    assert zone_of(tcp_bad, call_bad) is Zone.D
    assert zone_of(tcp_bad, call_bad, dead_icmp) is Zone.F


def test_the_vote_names_the_worst_metric_with_its_counts() -> None:
    vote = verdict(V, [tcp(lost=60, sent=1_000, ewma_us=160_000)], {}, RULES).vote

    assert vote == (V, Zone.F, "tcp.loss", 60, 1_000, 50)


@given(
    attempts=st.integers(1, 5_000),
    share=st.floats(0, 1),
    limit=st.integers(1, 999),
    z_milli=st.sampled_from([1_000, 1_645, 2_326]),
)
def test_the_integer_wilson_gate_is_the_textbook_bound(attempts: int, share: float, limit: int, z_milli: int) -> None:
    hits = round(attempts * share)
    z, p, n = z_milli / 1_000, hits / attempts, attempts
    bound = (p + z * z / (2 * n) - z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)

    if abs(bound - limit / 1_000) > 1e-9:
        assert wilson_at_least(hits, attempts, limit, z_milli) is (bound >= limit / 1_000)
