from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.local import UNTRIED, LocalBreaker, claim, failed
from reachline.core.regroup import Admission, Term, Terms, admissions, agrees, own_trial_ms
from reachline.core.rules import FAULT, FaultRules, LocalRules, with_tables
from reachline.core.tiers import Share, full_milli, spread
from reachline.core.weigh import wire
from reachline.model import Gate, Health, LineId, Role

FAULTS = with_tables(FaultRules(), decay=0.15, half_life_ms=30_000)
RULES = LocalRules()
TRAFFIC, RESERVE = frozenset({Role.TRAFFIC}), frozenset({Role.RESERVE})
PRIMARY, BACKUP = frozenset({Role.PRIMARY}), frozenset({Role.BACKUP})


def share(roles: frozenset[Role] = frozenset(), *, base: int = 100, gate: Gate = Gate.CLOSED, faults: int = 0) -> Share:
    health = Health.DEGRADED if faults else Health.HEALTHY
    step_milli = 0 if gate is Gate.OPEN else 1_000
    return Share(base, roles, health, gate, faults * FAULT, step_milli)


def published(*shares: Share, policy: tuple[str, ...] = ("weighted",), cooldown_ms: int = 60_000) -> Terms:
    """Terms with the weights that a center publishes for them."""
    raw = spread(shares, policy, full_milli(shares, policy), FAULTS)
    lines = tuple(
        Term(LineId(f"c/{number}"), wire(weight), each, cooldown_ms)
        for number, (each, weight) in enumerate(zip(shares, raw, strict=True))
    )
    terms = Terms(lines=lines, policy=policy, faults=FAULTS)
    assert agrees(terms)
    return Terms(lines=lines, policy=policy, faults=FAULTS, is_grouped=True)


def tripped() -> LocalBreaker:
    return failed(failed(UNTRIED, 0, RULES, may_trip=True), 0, RULES, may_trip=True)


def out(*places: int) -> dict[LineId, LocalBreaker]:
    return {LineId(f"c/{place}"): tripped() for place in places}


def percent(found: tuple[Admission, ...]) -> list[float]:
    total = sum(each.weight for each in found)
    return [round(100 * each.weight / total, 2) for each in found]


def now(terms: Terms, rows: dict[LineId, LocalBreaker], now_ms: int = 1, silent_ms: int = 0) -> tuple[Admission, ...]:
    return admissions(terms, rows, now_ms, silent_ms=silent_ms)


def test_without_a_local_breaker_the_published_weights_stand() -> None:
    terms = published(share(), share(faults=1), share(gate=Gate.OPEN))

    assert now(terms, {}) == (Admission(100_000, False), Admission(87_000, False), Admission(0, False))


@pytest.mark.parametrize(
    ("lost", "shares"),
    [
        ((), [49.5, 49.5, 1.0]),
        ((0,), [0.0, 70.0, 30.0]),
        ((0, 1), [0.0, 0.0, 100.0]),
        ((2,), [50.0, 50.0, 0.0]),
    ],
)
def test_the_reserve_group_takes_over_by_the_clients_own_breakers(lost: tuple[int, ...], shares: list[float]) -> None:
    terms = published(share(TRAFFIC), share(TRAFFIC), share(RESERVE), policy=("ab_groups",))

    found = percent(now(terms, out(*lost)))

    # A group A with one line of two out has hA = 0.5: the document's vector of 70/30.
    assert found == pytest.approx(shares, abs=0.6)


def test_the_backup_takes_all_when_the_primary_is_out_here() -> None:
    terms = published(share(PRIMARY), share(BACKUP), policy=("primary_backup",))

    assert percent(now(terms, {})) == [95.0, 5.0]
    assert percent(now(terms, out(0))) == [0.0, 100.0]
    assert percent(now(terms, out(1))) == [100.0, 0.0]


def test_one_of_two_primaries_out_here_concedes_its_part_to_the_backup() -> None:
    terms = published(share(PRIMARY), share(PRIMARY), share(BACKUP), policy=("primary_backup",))

    assert percent(now(terms, out(0))) == [0.0, 47.5, 52.5]


def test_stacked_policies_fail_over_inside_the_group_before_the_reserve_moves() -> None:
    roles = [frozenset({Role.TRAFFIC, Role.PRIMARY}), frozenset({Role.TRAFFIC, Role.BACKUP}), RESERVE]
    terms = published(*map(share, roles), policy=("ab_groups", "primary_backup"))

    assert percent(now(terms, {})) == pytest.approx([94.05, 4.95, 1.0], abs=0.5)
    assert percent(now(terms, out(0))) == pytest.approx([0.0, 99.0, 1.0], abs=0.5)
    assert percent(now(terms, out(0, 1))) == pytest.approx([0.0, 0.0, 100.0])


def test_the_stricter_of_two_breakers_wins() -> None:
    terms = published(share(gate=Gate.OPEN), share(), share())

    assert percent(now(terms, out(1))) == [0.0, 0.0, 100.0]


def test_breakers_of_our_own_never_leave_a_cluster_without_a_line() -> None:
    terms = published(share(gate=Gate.OPEN), share(), share())

    assert percent(now(terms, out(1, 2))) == [0.0, 50.0, 50.0]


def test_where_the_center_admits_nothing_nothing_is_admitted() -> None:
    terms = published(share(gate=Gate.OPEN), share(gate=Gate.OPEN))

    assert [each.weight for each in now(terms, {})] == [0, 0]


def test_a_line_whose_wait_is_over_takes_its_part_for_one_trial() -> None:
    terms = published(share(PRIMARY), share(BACKUP), policy=("primary_backup",))

    ready = now(terms, out(0), now_ms=5_000)
    in_flight = now(terms, {LineId("c/0"): claim(tripped(), 5_000, RULES)}, now_ms=5_001)

    assert percent(ready) == [95.0, 5.0]
    assert [each.is_trial for each in ready] == [True, False]
    assert percent(in_flight) == [0.0, 100.0]


def test_weights_that_the_formula_does_not_explain_are_only_taken_out() -> None:
    fail_open = Terms(
        lines=(
            Term(LineId("c/0"), 100, share(PRIMARY, gate=Gate.OPEN), 60_000),
            Term(LineId("c/1"), 5, share(BACKUP, gate=Gate.OPEN), 60_000),
            Term(LineId("c/2"), 5, share(BACKUP, gate=Gate.OPEN), 60_000),
        ),
        policy=("primary_backup",),
        faults=FAULTS,
    )

    assert not agrees(fail_open)
    assert [each.weight for each in now(fail_open, out(0))] == [0, 5_000, 5_000]


def test_a_policy_that_we_do_not_know_is_not_redone() -> None:
    terms = Terms(lines=(Term(LineId("c/0"), 100, share(), 60_000),), policy=("by_moonlight",), faults=FAULTS)

    assert not agrees(terms)


def test_a_drained_line_stays_drained() -> None:
    lines = (Term(LineId("c/0"), 0, None, 60_000), Term(LineId("c/1"), 100, share(), 60_000))
    terms = Terms(lines=lines, faults=FAULTS)

    assert agrees(terms)
    assert [each.weight for each in now(terms, {}, silent_ms=10**9)] == [0, 100_000]


@pytest.mark.parametrize(("silent_ms", "weight"), [(0, 0), (599_999, 0), (600_000, 5_000), (10**9, 5_000)])
def test_a_line_held_open_gets_nothing_until_the_center_was_silent_for_ten_cooldowns(
    silent_ms: int, weight: int
) -> None:
    terms = published(share(gate=Gate.OPEN), share(), cooldown_ms=60_000)

    found = now(terms, {}, silent_ms=silent_ms)

    assert found[0] == Admission(weight, is_trial=bool(weight))
    assert found[1] == Admission(100_000, is_trial=False)
    assert own_trial_ms(terms) == 600_000


def test_a_short_cooldown_does_not_make_a_held_poll_a_silence() -> None:
    terms = published(share(gate=Gate.OPEN), share(), cooldown_ms=1_000)

    assert now(terms, {}, silent_ms=59_999)[0].weight == 0
    assert now(terms, {}, silent_ms=60_000)[0] == Admission(5_000, is_trial=True)


def test_a_line_that_proved_itself_in_the_silence_keeps_the_trials_share() -> None:
    terms = published(share(gate=Gate.OPEN), share())
    proven = {LineId("c/0"): UNTRIED._replace(proven=True)}

    assert now(terms, proven, silent_ms=600_000)[0] == Admission(5_000, is_trial=False)
    assert now(terms, proven, silent_ms=599_999)[0].weight == 0


POLICIES = st.sampled_from([("weighted",), ("primary_backup",), ("ab_groups",), ("ab_groups", "primary_backup")])
ROLES = st.sampled_from([frozenset(), TRAFFIC, RESERVE, PRIMARY, BACKUP, TRAFFIC | BACKUP, RESERVE | BACKUP])


@st.composite
def centers(draw: st.DrawFn) -> Terms:
    shares = draw(
        st.lists(
            st.builds(
                share,
                ROLES,
                base=st.integers(0, 300),
                gate=st.sampled_from([Gate.CLOSED, Gate.OPEN]),
                faults=st.integers(0, 20),
            ),
            min_size=1,
            max_size=6,
        )
    )
    return published(*shares, policy=draw(POLICIES))


@given(centers(), st.sets(st.integers(0, 5)), st.integers(0, 10_000))
def test_a_blocked_line_gets_nothing_and_a_cluster_keeps_what_it_had(terms: Terms, lost: set[int], now_ms: int) -> None:
    rows = out(*lost)

    found = now(terms, rows, now_ms=now_ms)

    had, left = any(term.weight for term in terms.lines), any(each.weight for each in found)
    assert left is had
    admitted = [each.weight for place, each in enumerate(found) if place not in lost]
    if any(admitted):
        assert all(each.weight == 0 for place, each in enumerate(found) if place in lost and now_ms < 5_000)
