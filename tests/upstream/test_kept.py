"""A kept cluster fed by hand: what calls, checks and updates make of its picks, and what it says of it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.upstream.kept import Clock, addresses, call, kept, members, moved, picks

from reachline.core.checking import NEW, After, Turn, Verdict
from reachline.core.hashing import xxh64
from reachline.errors import Shed
from reachline.members import Address, Drop, Member, Membership, compare
from reachline.model import Health, Locality
from reachline.upstream.kept import KeptCluster
from reachline.upstream.outcome import Column

CHI_SQUARE_999 = {2: 13.82, 3: 16.27, 9: 27.88}
"""By degrees of freedom."""
A, B, C = addresses(3)
FIVES = {"consecutive_5xx": 3}


def chi_square(seen: Counter[str], shares: dict[str, float]) -> float:
    total, whole = sum(seen.values()), sum(shares.values())
    return sum((seen[key] - total * share / whole) ** 2 / (total * share / whole) for key, share in shares.items())


def checked(cluster: KeptCluster, address: str, *, failed: bool, excluded: bool = False) -> None:
    """A check's result, as the state machine gives it."""
    check = NEW._replace(first=False, failed=failed, excluded=excluded)
    cluster.checked(address, After(check, Turn.CHANGED, None), Verdict())


@pytest.mark.parametrize("policy", ["weighted_random", "round_robin", "least_request"])
def test_calls_follow_the_weights(policy: str) -> None:
    cluster = kept(policy=policy, targets={A: 5, B: 3, C: 2})

    assert chi_square(picks(cluster, 3_000), {A: 5, B: 3, C: 2}) < CHI_SQUARE_999[2]


@pytest.mark.parametrize("policy", ["random", "peak_ewma", "least_request", "round_robin"])
def test_endpoints_alike_get_as_many_calls(policy: str) -> None:
    cluster = kept(policy=policy, targets=addresses(10))

    assert chi_square(picks(cluster, 3_000), dict.fromkeys(addresses(10), 1)) < CHI_SQUARE_999[9]


@pytest.mark.parametrize("policy", ["ring_hash", "maglev"])
def test_keys_spread_by_weight_and_each_stays_where_it_is(policy: str) -> None:
    cluster = kept(policy={"name": policy, "minimum_ring_size": 100_000}, targets={A: 5, B: 3, C: 2})

    first = {key: cluster.pick(f"customer-{key}") for key in range(2_000)}

    assert {key: cluster.pick(f"customer-{key}") for key in first} == first
    assert cluster.pick("customer-7") == cluster.pick(b"customer-7") == cluster.pick(xxh64(b"customer-7"))
    seen = Counter(pick.target for pick in first.values() if pick)
    assert chi_square(seen, {A: 5, B: 3, C: 2}) < CHI_SQUARE_999[2]


def test_shares_hold_while_an_endpoint_is_out_and_after_its_return() -> None:
    clock = Clock()
    cluster = kept(clock, policy="weighted_random", targets={A: 5, B: 3, C: 2}, outliers=FIVES)
    call(cluster, A, 500, times=3)

    assert chi_square(picks(cluster, 2_000), {B: 3, C: 2}) < 10.83

    clock.now += 30
    cluster.turn()

    assert chi_square(picks(cluster, 3_000), {A: 5, B: 3, C: 2}) < CHI_SQUARE_999[2]


def test_the_call_that_ejects_is_the_last_one_there() -> None:
    cluster = kept(targets=[A, B, C], outliers=FIVES)

    call(cluster, A, 500, times=2)
    assert A in picks(cluster)

    call(cluster, A, 503)

    assert A not in picks(cluster)
    assert cluster.open_lines() == (f"c/{A}",)
    assert cluster.metrics()["outlier_detection.ejections_active"] == 1
    assert cluster.stats().trips == 1


def test_real_statuses_tell_gateway_failures_from_others() -> None:
    rules = {"consecutive_5xx": 0, "consecutive_gateway_failure": 2, "enforcing_consecutive_gateway_failure": 100}
    cluster = kept(targets=[A, B, C], outliers=rules)

    call(cluster, A, 500, times=9)
    assert not cluster.open_lines()

    call(cluster, A, 502, times=2)

    assert cluster.open_lines() == (f"c/{A}",)


def test_what_a_block_raises_is_seen_by_outlier_detection() -> None:
    cluster = kept(targets=[A, B], policy="round_robin", outliers=FIVES)

    for _ in range(6):
        with suppress(ConnectionRefusedError), cluster.attempt() as attempt:
            if attempt.line == f"c/{A}":
                raise ConnectionRefusedError

    assert set(picks(cluster)) == {B}


def test_no_more_are_ejected_than_the_cap_and_the_rest_is_told() -> None:
    cluster = kept(targets=[A, B, C], outliers=FIVES)

    call(cluster, A, 500, times=3)
    call(cluster, B, 500, times=3)

    assert cluster.open_lines() == (f"c/{A}",)
    (told,) = cluster.explain(B)
    assert told.ejection is not None
    assert told.ejection.held is not None
    assert told.ejection.held.why == "cap"


def test_explain_says_why_and_until_when() -> None:
    clock = Clock()
    cluster = kept(clock, targets=[A, B, C], outliers=FIVES)
    call(cluster, A, 500, times=3)
    clock.now += 10

    told, other, _ = cluster.explain()

    assert told.why == "ejected for 10 s by consecutive 5xx, 20 s to go"
    assert told.ejected_until == 1_030.0
    assert (told.health, other.health, other.why) == (Health.UNHEALTHY, Health.HEALTHY, "")
    assert cluster.explain("10.9.9.9:80") == ()


def test_state_is_kept_over_updates_and_moves_and_a_short_absence() -> None:
    clock = Clock()
    cluster = kept(clock, targets=[A, B, C], outliers=FIVES)
    call(cluster, A, 500, times=3)

    moved(cluster, members("10.0.0.1", "10.0.0.2", "10.0.0.3", weight=7))
    assert A not in picks(cluster)

    moved(cluster, members("10.0.0.2", "10.0.0.3"))
    assert cluster.open_lines() == ()
    moved(cluster, members("10.0.0.1", "10.0.0.2", "10.0.0.3"))

    assert A not in picks(cluster)
    assert cluster.explain(A)[0].ejected_until == 1_030.0


def test_an_endpoint_that_vanishes_in_mid_call_ends_that_call_and_leaves_nothing() -> None:
    cluster = kept(targets=[A], outliers=FIVES)

    with cluster.attempt() as attempt:
        moved(cluster, members("10.0.0.2"))
        attempt.status(500)

    assert set(picks(cluster)) == {B}
    assert cluster.stats().calls.errors == 1
    assert cluster.metrics()["upstream_rq_active"] == 0


def test_calls_under_way_are_counted_and_steer_least_request() -> None:
    cluster = kept(targets=[A, B], policy={"name": "least_request", "full_scan": True})
    with cluster.attempt() as first, cluster.attempt() as second:
        assert {first.line, second.line} == {f"c/{A}", f"c/{B}"}
        assert cluster.metrics()["upstream_rq_active"] == 2

    assert cluster.metrics()["upstream_rq_active"] == 0


def test_an_endpoint_that_fails_fast_looks_slow_to_peak_ewma() -> None:
    cluster = kept(targets=[A, B], policy="peak_ewma")
    for _ in range(20):
        with cluster.attempt() as attempt:
            if attempt.pick is not None and attempt.pick.target == A:
                attempt.status(500)

    assert picks(cluster)[A] == 0
    assert (cluster.explain(A)[0].latency or 0.0) >= 1.0


def test_calls_that_prove_nothing_teach_neither_outliers_nor_averages() -> None:
    cluster = kept(targets=[A], policy="peak_ewma", outliers={"consecutive_5xx": 1, "always_eject_one_host": True})

    with cluster.attempt() as attempt:
        attempt.fail("agent")

    assert cluster.explain(A)[0].latency is None
    assert cluster.open_lines() == ()
    assert cluster.metrics()["upstream_rq_active"] == 0


def test_health_is_joined_and_each_clears_only_what_it_set() -> None:
    cluster = kept(targets=[A, B, C], checks={"http": {"path": "/"}}, outliers=FIVES)
    for address in (A, B, C):
        checked(cluster, address, failed=False)
    call(cluster, A, 500, times=3)
    checked(cluster, A, failed=True)
    moved(cluster, Membership(members=(Member(address=Address("10.0.0.1", 80), health=Health.UNHEALTHY),)))

    assert cluster.explain(A)[0].why == (
        "discovery says UNHEALTHY; failed its checks; ejected for 0 s by consecutive 5xx, 30 s to go"
    )

    checked(cluster, A, failed=False)

    assert cluster.explain(A)[0].why == "discovery says UNHEALTHY"


def test_endpoints_that_are_not_checked_yet_get_calls_in_panic_only() -> None:
    cluster = kept(targets=[A, B, C], checks={"http": {"path": "/"}})
    assert set(picks(cluster)) == {A, B, C}

    checked(cluster, A, failed=False)
    checked(cluster, B, failed=False)

    assert set(picks(cluster)) == {A, B}
    assert cluster.explain(C)[0].why == "not checked yet"


def test_all_unhealthy_is_panic_and_every_attempt_in_it_is_counted() -> None:
    cluster = kept(targets=[A, B], checks={"http": {"path": "/"}})

    with cluster.attempt() as attempt:
        assert attempt.line is not None

    assert cluster.metrics()["lb_healthy_panic"] == 1
    assert cluster.metrics()["membership_healthy"] == 0


def test_without_panic_all_unhealthy_is_nobody() -> None:
    cluster = kept(targets=[A], checks={"http": {"path": "/"}}, policy={"healthy_panic_threshold": 0})

    assert cluster.pick() is None
    with cluster.attempt() as attempt:
        assert not attempt


def test_an_empty_cluster_is_nobody_and_says_so() -> None:
    cluster = kept(targets=[])

    cluster.update(compare(Membership(), Membership(), trouble="no endpoints are written down"))

    assert cluster.pick() is None
    assert cluster.stats().trouble == "no endpoints are written down"
    assert cluster.stats().source == "none"


def test_draining_leaves_all_sums() -> None:
    cluster = kept(targets=[A, B, {"address": C, "health_status": "DRAINING"}], policy="round_robin")

    assert set(picks(cluster)) == {A, B}
    assert cluster.metrics()["membership_excluded"] == 1
    assert cluster.lines()[2].is_drained


def test_priorities_spill_as_the_first_one_loses_endpoints() -> None:
    targets = [A, B, {"address": C, "priority": 1}]
    cluster = kept(targets=targets, policy="random", checks={"http": {"path": "/"}})
    checked(cluster, A, failed=True)
    checked(cluster, B, failed=False)
    checked(cluster, C, failed=False)

    seen = picks(cluster, 2_000)

    # Half of the first priority times 1.4 carries 70 %.
    assert chi_square(seen, {B: 70, C: 30}) < 10.83


def test_localities_share_by_their_weights() -> None:
    targets = [{"address": A, "locality": "r/a"}, {"address": B, "locality": "r/b"}, {"address": C, "locality": "r/b"}]
    cluster = kept(targets=targets, policy="random", localities={"r/a": 3, "r/b": 1})

    assert chi_square(picks(cluster, 2_000), {A: 6, B: 1, C: 1}) < CHI_SQUARE_999[2]


def test_calls_stay_at_home() -> None:
    targets = [{"address": each, "locality": f"r/{'ab'[at % 2]}"} for at, each in enumerate(addresses(6))]
    cluster = kept(targets=targets, policy="random", home="r/a", callers={"r/a": 1, "r/b": 1})

    assert {row.member.locality for row in cluster.rows() if row.key in picks(cluster)} == {
        Locality(region="r", zone="a")
    }


def test_slow_start_begins_with_health_and_ends_by_itself() -> None:
    clock = Clock()
    slow = {"name": "weighted_random", "slow_start_config": {"slow_start_window": 100}}
    cluster = kept(clock, targets=[A, B], policy=slow, outliers=FIVES)
    clock.now += 100
    cluster.turn()
    assert cluster.deadline() == 1_110.0  # the next sweep alone
    moved(cluster, members("10.0.0.1", "10.0.0.2", "10.0.0.3"))

    assert chi_square(picks(cluster, 3_000), {A: 10, B: 10, C: 1}) < CHI_SQUARE_999[2]
    assert cluster.deadline() == 1_102.0

    clock.now += 100
    cluster.turn()

    assert chi_square(picks(cluster, 3_000), {A: 1, B: 1, C: 1}) < CHI_SQUARE_999[2]


def test_a_share_of_calls_is_dropped_as_the_control_plane_says() -> None:
    cluster = kept(targets=[A])
    moved(cluster, Membership(members=cluster.settings.membership.members, drops=(Drop("overload", 0.25),)))
    dropped = 0
    for _ in range(2_000):
        try:
            cluster.pick()
        except Shed:
            dropped += 1

    assert chi_square(Counter(dropped=dropped, kept=2_000 - dropped), {"dropped": 1, "kept": 3}) < 10.83
    assert cluster.metrics()["upstream_rq_drop_overload"] == dropped


def test_an_endpoint_whose_weight_has_no_room_is_left_out_and_the_others_serve() -> None:
    cluster = kept(targets=[A])
    most = 2**32 - 1
    whole = (Member(address=Address("10.0.0.1", 80), weight=most), Member(address=Address("10.0.0.2", 80), weight=most))

    moved(cluster, Membership(members=whole))

    assert set(picks(cluster)) == {A}


def test_a_further_try_goes_elsewhere() -> None:
    cluster = kept(targets=[A, B], policy="maglev")
    first = cluster.pick("customer")
    assert first is not None

    second = cluster.another((first,), "customer")

    assert second is not None
    assert second != first
    assert cluster.another((first, second), "customer") is None


def test_above_a_thousand_endpoints_the_driver_makes_the_picker() -> None:
    many = [f"10.0.{number >> 8}.{number & 255}:80" for number in range(1, 1_102)]
    stirred: list[int] = []
    cluster = kept(targets=many, policy="round_robin", outliers={"consecutive_5xx": 1})
    cluster._stir = lambda: stirred.append(1)
    pick = cluster.pick()
    assert pick is not None

    cluster.record(pick, Column.ERRORS)

    assert stirred
    assert pick.target in picks(cluster, 1_101)
    assert cluster.deadline() == 1_000.0
    cluster.turn()
    assert pick.target not in picks(cluster, 1_101)


def test_a_forked_child_keeps_endpoints_and_health_and_forgets_calls_and_ejections() -> None:
    cluster = kept(targets=[A, B, C], checks={"http": {"path": "/"}}, outliers=FIVES)
    for address in (A, B):
        checked(cluster, address, failed=False)
    checked(cluster, C, failed=True)
    call(cluster, A, 500, times=3)
    with cluster.attempt() as attempt:
        assert attempt.pick is not None
        cluster.forked(Random(2))
    awakened: list[int] = []
    cluster._awaken = lambda: awakened.append(1)

    assert set(picks(cluster)) == {A, B}

    assert awakened
    assert cluster.stats().calls.ok == 0
    assert cluster.open_lines() == ()
    assert cluster.metrics()["upstream_rq_active"] == 0


def test_after_the_end_picks_go_on_without_ejections() -> None:
    cluster = kept(targets=[A, B, C], outliers=FIVES)
    call(cluster, A, 500, times=3)

    cluster.retire()

    assert set(picks(cluster)) == {A, B, C}


def test_arguments_that_make_no_sense_are_counted_and_never_raise() -> None:
    cluster = kept(targets=[A])

    cluster.report(None)  # type: ignore[arg-type]
    with cluster.attempt() as attempt:
        attempt.status("503")  # type: ignore[arg-type]

    assert cluster.stats().misuses == 2


def test_calls_that_go_well_are_counted_alike_whether_anybody_asks_how_long_they_took() -> None:
    plain, timed = (kept(targets=[A], outliers={"latency": latency}) for latency in (False, True))

    for cluster in (plain, timed):
        call(cluster, A, 500, times=4)
        call(cluster, A, 404)
        call(cluster, A, 200)
        with cluster.attempt():
            pass
        call(cluster, A, 500, times=4)

    assert plain.metrics() == timed.metrics()
    assert plain.stats().calls == timed.stats().calls
    assert plain.stats().calls[:4] == (3, 0, 0, 8)
    told = [cluster.explain(A)[0] for cluster in (plain, timed)]
    assert [each.active for each in told] == [0, 0]
    assert told[0].ejection == told[1].ejection


@pytest.mark.parametrize(("checks", "kept_of_it"), [({}, ()), ({"checks": {"http": {"path": "/"}}}, (A,))])
def test_calls_that_say_their_endpoint_fails_its_checks_pile_up_nowhere(
    checks: dict[str, Any], kept_of_it: tuple[str, ...]
) -> None:
    cluster = kept(targets=[A], **checks)
    pick = cluster.pick()
    assert pick is not None

    for _ in range(100):
        cluster.failed_by_call(pick)

    assert cluster.take_failed() == kept_of_it
