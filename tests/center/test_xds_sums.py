"""Where calls of data planes went, whose word counts, and what they sum to: the pure half."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.center.roster import Roster
from reachline.center.xds.access import Budget
from reachline.center.xds.admission import admit, token_in
from reachline.center.xds.places import Places, addresses_of
from reachline.center.xds.seen import Seen
from reachline.center.xds.sums import Pace, Rank, Sums, Telling, Windows
from reachline.model import Endpoint, Line, LineId, Locality, Outcome
from reachline.net.rpc import Call as Opened
from reachline.testing import builders
from reachline.wire.als import Call, End, Of
from reachline.wire.lrs import Load, Metric
from reachline.wire.telling import Teller

A = LineId("payments/a")


def line(name: str, host: str = "10.0.0.1", port: int = 443, *, origin: str = "", outbound: str = "direct") -> Line:
    endpoint = Endpoint(scheme="tcp", host=host, port=port)
    id_ = f"payments/{name}" + (f"@{origin}" if origin else "")
    return replace(builders.line(name), id=LineId(id_), endpoint=endpoint, origin=origin, outbound=outbound)


# -- places ---------------------------------------------------------------------------------------------------------------


def test_a_call_is_of_the_line_whose_address_it_went_to() -> None:
    found = Places([line("a"), line("b", "10.0.0.2")]).seen_from("az1")

    assert found == {("payments", "10.0.0.1", 443): "payments/a", ("payments", "10.0.0.2", 443): "payments/b"}


def test_an_address_of_two_lines_is_the_first_ones_as_data_planes_are_told() -> None:
    found = Places([line("a"), line("b"), line("c", port=444)]).seen_from("az1")

    assert found == {("payments", "10.0.0.1", 443): "payments/a", ("payments", "10.0.0.1", 444): "payments/c"}


def test_a_line_with_an_origin_is_that_of_data_planes_there() -> None:
    places = Places([line("a", origin="az1"), line("a", origin="az2")])

    seen = {zone: set(places.seen_from(zone).values()) for zone in ("az1", "az2", "az3")}

    assert seen == {"az1": {"payments/a@az1"}, "az2": {"payments/a@az2"}, "az3": set()}


def test_a_line_by_way_of_a_proxy_has_no_address_of_its_own_and_a_name_has_those_it_was_resolved_to() -> None:
    named = line("n", "a.example")

    assert addresses_of(line("a", outbound="socks5://10.0.0.9:1080")) == ()
    assert addresses_of(named) == ()
    assert addresses_of(named, {named.id: [("10.0.0.7", 443)]}) == (("10.0.0.7", 443),)
    assert addresses_of(line("six", "fd00:0::1")) == (("fd00::1", 443),)


@pytest.mark.parametrize(
    ("sub_zone", "found"),
    [
        ("a", "payments/a"),
        ("payments/a", "payments/a"),
        ("o", "payments/o@az1"),
        ("x", None),
        ("", None),
        ("other/a", None),
    ],
)
def test_a_locality_of_our_own_assignments_names_its_line(sub_zone: str, found: str | None) -> None:
    places = Places([line("a"), line("o", "10.0.0.2", origin="az1")])

    assert places.named("payments", Locality(sub_zone=sub_zone), "az1") == found


# -- sums -----------------------------------------------------------------------------------------------------------------


def call(end: End = End.OK, took_us: int = 10_000) -> Call:
    return Call("payments", "10.0.0.1", 443, end, took_us, 20_000, Of.REQUEST)


LIMITS = Pace(100_000, 300_000)


def summed(*calls: Call, pace: Pace = LIMITS) -> Outcome:
    sums = Sums()
    for one in calls:
        sums.add(A, 0, one, pace)
    (row,) = sums.take()["payments"]
    return row


def test_calls_are_counted_as_the_sdk_counts_them() -> None:
    row = summed(
        call(), call(took_us=100_000), call(took_us=100_001), call(took_us=300_001), call(End.FAILED), call(End.LATE)
    )

    assert row == Outcome(A, ok=4, failed=1, late=1, timed=4, slow=2, crawl=1)


def test_a_call_without_a_time_or_a_limit_is_not_timed() -> None:
    assert summed(call(took_us=0), call(took_us=5)).timed == 1
    assert summed(call(took_us=10**9), pace=Pace()).timed == 0
    assert summed(call(took_us=400_000), pace=Pace(None, 300_000)).crawl == 1


def test_what_was_taken_is_not_taken_twice() -> None:
    sums = Sums()
    sums.add_load(A, 0, Load(ok=3, errors=1))

    first, second = sums.take(), sums.take()

    assert first == {"payments": [Outcome(A, ok=3, errors=1)]}
    assert second == {}
    assert not sums


@given(st.lists(st.tuples(st.sampled_from(End), st.integers(0, 10**7)), min_size=1, max_size=50))
def test_every_call_is_in_one_column_and_parts_are_at_most_their_whole(calls: list[tuple[End, int]]) -> None:
    row = summed(*(call(end, took_us) for end, took_us in calls))

    assert row.ok + row.failed + row.late + row.errors == len(calls)
    assert row.ok >= row.timed >= row.slow >= row.crawl


# -- whose word counts ----------------------------------------------------------------------------------------------------


def test_an_access_log_wins_over_load_reports_while_it_flows_and_for_half_a_minute_after() -> None:
    telling = Telling()
    telling.told("envoy-1", "payments", Rank.REQUEST, 1_000)

    counts = [telling.counts("envoy-1", "payments", Rank.LOAD, at_ms) for at_ms in (1_000, 30_999, 31_000)]

    assert counts == [False, False, True]
    assert telling.counts("envoy-1", "payments", Rank.REQUEST, 1_000)


def test_one_data_planes_log_says_nothing_of_anothers_calls_nor_of_another_cluster() -> None:
    telling = Telling()
    telling.told("envoy-1", "payments", Rank.REQUEST, 0)

    assert telling.counts("envoy-2", "payments", Rank.LOAD, 0)
    assert telling.counts("envoy-1", "orders", Rank.LOAD, 0)


def test_attempts_win_over_requests() -> None:
    telling = Telling()
    telling.told("envoy-1", "payments", Rank.REQUEST, 0)
    telling.told("envoy-1", "payments", Rank.ATTEMPT, 0)

    assert not telling.counts("envoy-1", "payments", Rank.REQUEST, 0)
    assert telling.counts("envoy-1", "payments", Rank.ATTEMPT, 0)


# -- trial windows --------------------------------------------------------------------------------------------------------


def windows(*, window: int, since_ms: int) -> Windows:
    found = Windows()
    standing = replace(builders.standing("a"), line=A, window=window)
    found.look("payments", builders.snapshot(standing), since_ms)
    return found


@pytest.mark.parametrize(
    ("at_ms", "lasted_us", "window"),
    [(2_999, 0, 0), (3_000, 0, 7), (3_000, 1_000, 0), (13_000, 10_000_000, 7), (12_999, 10_000_000, 0)],
)
def test_a_call_counts_in_the_trial_window_only_where_it_began_in_it(at_ms: int, lasted_us: int, window: int) -> None:
    assert windows(window=7, since_ms=1_000).of(A, lasted_us, at_ms) == window


def test_the_next_window_begins_anew_and_none_ends_it() -> None:
    found = windows(window=7, since_ms=0)
    found.look("payments", builders.snapshot(replace(builders.standing("a"), line=A, window=8)), 60_000)
    early, later = found.of(A, 0, 60_500), found.of(A, 0, 62_000)
    found.look("payments", builders.snapshot(replace(builders.standing("a"), line=A, window=0)), 90_000)

    assert (early, later) == (0, 8)
    assert found.of(A, 0, 99_000) == 0
    assert not found.are_any


# -- tokens ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "authorization", "is_let_in"),
    [
        ({"reachline": {"token": "t0"}}, "", True),
        ({"reachline": {"token": "wrong"}}, "", False),
        ({"reachline": {"token": 7}}, "", False),
        ({"reachline": "t0"}, "", False),
        (None, "", False),
        (None, "Bearer t0", True),
        ({"reachline": {"token": "t0"}}, "Bearer wrong", False),
    ],
)
def test_a_token_comes_with_the_stream_or_for_want_of_that_with_the_node(
    metadata: Mapping[str, object] | None, authorization: str, *, is_let_in: bool
) -> None:
    call = Opened("ipv4:10.0.0.9:1", {"authorization": authorization} if authorization else {})
    teller = Teller("grpc-1", token=token_in(metadata))

    with contextlib.nullcontext() if is_let_in else pytest.raises(PermissionError, match="did not give its token"):
        admit(call, teller, Roster({}), "t0")


def test_a_token_is_never_shown() -> None:
    assert "t0" not in repr(Teller("grpc-1", token="t0"))


# -- floods ---------------------------------------------------------------------------------------------------------------


def test_more_bytes_a_second_than_the_budget_are_left_and_read_again_once_there_is_room() -> None:
    budget = Budget(1_000, now_ms=0)

    taken = [budget.take(600, at_ms) for at_ms in (0, 1, 200, 300)]

    assert taken == [True, False, True, False]


def test_a_message_larger_than_all_room_is_read_once_that_is_full() -> None:
    budget = Budget(1_000, now_ms=0)

    assert [budget.take(5_000, at_ms) for at_ms in (0, 1_000, 4_999, 5_000)] == [True, False, False, True]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3_000)), max_size=60))
def test_a_budget_is_never_overdrawn_by_more_than_a_message(steps: list[tuple[int, int]]) -> None:
    budget, now_ms, taken = Budget(1_000, now_ms=0), 0, 0
    for pause_ms, size in steps:
        now_ms += pause_ms
        taken += size if budget.take(size, now_ms) else 0

        assert taken <= 1_000 + now_ms + 3_000


# -- for people -----------------------------------------------------------------------------------------------------------


def test_what_was_told_of_a_line_lately_is_said_with_who_told_it() -> None:
    seen = Seen()
    seen.calls("als:envoy-1", [Outcome(A, ok=90, failed=4, late=1, timed=90, slow=9, crawl=2)], 1_000)
    seen.calls("als:envoy-1", [Outcome(A, ok=10, errors=5)], 6_000)
    seen.metrics(A, "envoy-1", (Metric("cpu_utilization", 50, 15.0),), 6_000)

    told = seen.told(A, 6_000)

    assert told == [
        (
            "als:envoy-1",
            6_000,
            "110 calls in 5 s, 4 failed, 1 timed out, 5 server errors, 9 of 90 timed were slow, 2 crawled",
        ),
        ("orca:envoy-1", 6_000, "cpu_utilization 0.3 (mean of 50 answers)"),
    ]
    assert seen.told(A, 70_000) == []
    assert seen.told(LineId("payments/b"), 6_000) == []


def test_figures_are_of_two_spans_at_most() -> None:
    seen = Seen()
    for at_ms in range(0, 60_000, 1_000):
        seen.calls("als:envoy-1", [Outcome(A, ok=1)], at_ms)

    ((_, _, words),) = seen.told(A, 59_000)

    assert words == "20 calls in 19 s, none bad"
