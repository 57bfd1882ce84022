"""From two looks at the kernel's table to what they say of a line: pure, with connections as the kernel would tell them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.agent.flows import SPREAD, Flows, Heard, Packets
from reachline.wire.frame import Connections
from reachline.wire.sockdiag import CONNECTING, Sock

EVERY = 1.0


def sock(cookie: int = 1, **told: object) -> Sock:
    """An established connection that has sent nothing yet."""
    row: dict[str, object] = dict.fromkeys(Sock._fields, 0)
    row |= {"state": 1, "family": 2, "local": "10.0.0.3", "remote": "10.0.0.9", "remote_port": 443, "mark": None}
    row |= {"cookie": cookie, "inode": 7, "rtt_us": 20_000} | told
    return Sock(**row)  # type: ignore[arg-type]


def looked(*looks: Sequence[Sock], timeout: float = 1.0) -> list[Heard]:
    """What each look says, one a second."""
    flows = Flows(timeout)
    return [one_look(flows, socks, at * EVERY) for at, socks in enumerate(looks)]


def one_look(flows: Flows, socks: Sequence[Sock], now: float, *, unsure: int = 0, whole: bool = True) -> Heard:
    """One look, in pieces of three; `unsure` is the cookie of one that may be ours."""
    for at in range(0, len(socks), 3):
        flows.take(socks[at : at + 3], now, sure={each.cookie for each in socks} - {unsure})
    return flows.heard(whole=whole)


def idle(count: int = 1) -> Connections:
    """What is told of connections that `sock` made."""
    return Connections(count=count, deviation_us=0, lowest_us=0, delivery=0)


def test_what_was_before_the_first_look_is_nobodys_news() -> None:
    (first,) = looked([sock(segments=500, retransmitted=80, acked=9_000)])

    assert first == Heard(connections=idle())


def test_segments_and_those_sent_again_are_told_as_they_grow_and_progress_brings_its_round_trip() -> None:
    before, after = sock(segments=500, retransmitted=80, acked=100), sock(segments=620, retransmitted=83, acked=101)

    _, second = looked([before], [after])

    assert second == Heard(sent=120, lost=3, ends=(20_000,), connections=idle())


def test_a_connection_that_began_between_two_looks_is_new_with_its_handshake() -> None:
    _, second = looked([], [sock(segments=4, retransmitted=1, acked=1)])

    assert (second.sent, second.lost, second.ends) == (5, 1, (20_000,))


def test_an_idle_connection_says_nothing() -> None:
    quiet = sock(segments=10, acked=100)

    assert looked([quiet], [quiet], [quiet])[1:] == [Heard(connections=idle())] * 2


def test_a_connection_that_waits_in_vain_for_the_timeout_is_late_at_every_look_until_it_gets_on() -> None:
    well, stuck = sock(segments=10, acked=100), sock(segments=12, acked=100, retransmitted=1, pending=1, unacked=2)
    looks = looked([well], [stuck], [stuck], [stuck], [sock(segments=12, acked=900, retransmitted=1)])

    assert [look.ends for look in looks] == [(), (), (None,), (None,), (20_000,)]
    assert [(look.sent, look.lost) for look in looks] == [(0, 0), (2, 1), (0, 0), (0, 0), (0, 0)]


def test_a_connection_that_waits_on_while_another_gets_on_has_lost_its_peer_and_condemns_no_line() -> None:
    looks: list[list[Sock]] = [[sock(1, segments=10, acked=1), sock(2, segments=10, acked=1)]]
    for second in range(1, 31):
        stuck = sock(1, segments=10 + second, acked=1, retransmitted=second, pending=second, unacked=2)
        looks.append([stuck, sock(2, segments=10, acked=1 + second // 15)])

    found = looked(*looks)

    late = [second for second, look in enumerate(found) if None in look.ends]
    assert late == list(range(2, 16))
    assert sum(look.lost for look in found) == 15


def test_a_connection_that_waits_on_while_none_gets_on_counts_for_as_long_as_it_does() -> None:
    before = [sock(1, acked=1), sock(2, acked=1)]
    stuck = [sock(1, acked=1, segments=1, pending=1, unacked=1), sock(2, acked=1)]

    found = looked(before, *[stuck] * 60)

    assert [look.ends for look in found[2:]] == [(None,)] * 59


def test_waiting_without_having_sent_again_is_not_yet_late_and_neither_is_a_receiver_that_is_full() -> None:
    well, waiting = sock(segments=10, acked=100), sock(segments=11, acked=100, unacked=1)
    full = sock(segments=10, acked=100, pending=3)

    assert [look.ends for look in looked([well], [waiting], [waiting], [waiting])] == [()] * 4
    assert [look.ends for look in looked([well], [full], [full], [full])] == [()] * 4


def test_a_connection_that_is_never_made_is_late_and_each_further_syn_lost() -> None:
    trying = [sock(state=CONNECTING, rtt_us=0, pending=again, retransmitted=again) for again in (0, 1, 1, 2)]

    looks = looked([], *([each] for each in trying))

    assert [look.ends for look in looks] == [(), (), (), (None,), (None,)]
    assert [(look.sent, look.lost) for look in looks] == [(0, 0), (0, 0), (1, 1), (0, 0), (1, 1)]


def test_a_syn_counts_once_it_is_answered() -> None:
    asked, answered = sock(state=CONNECTING, rtt_us=0, pending=1, retransmitted=1), sock(segments=2, retransmitted=1)

    looks = looked([], [asked], [answered])

    assert [(look.sent, look.lost) for look in looks] == [(0, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize(("again", "ends"), [(0, ()), (1, (None,)), (2, (None,))])
def test_whoever_gives_up_before_an_answer_came_waited_in_vain_once_a_syn_was_sent_again(
    again: int, ends: tuple[None, ...]
) -> None:
    trying = [sock(at, state=CONNECTING, rtt_us=0, pending=again, retransmitted=again) for at in range(1, 4)]

    looks = looked([], *([each] for each in trying), [])

    assert [look.ends for look in looks[2:]] == [ends] * 3
    assert all(look.sent == look.lost for look in looks)
    assert not looked([], [trying[0]], [sock(1, acked=1)])[2].ends.count(None)


def test_who_gave_up_is_not_known_where_a_look_missed_some() -> None:
    flows = Flows(1.0)
    one_look(flows, [], 0.0)
    one_look(flows, [sock(state=CONNECTING, rtt_us=0, pending=1, retransmitted=1)], 1.0)

    assert one_look(flows, [], 2.0, whole=False).ends == ()
    assert one_look(flows, [], 3.0).ends == (None,)


def test_what_was_only_overtaken_is_no_loss() -> None:
    before = sock(segments=1_000, acked=1)
    known = {"segments": 1_200, "acked": 2, "retransmitted": 40, "duplicates": 39}

    _, steady = looked([before], [sock(**known)])
    _, shuffled = looked([before], [sock(**known, reordered=3)])

    assert (steady.lost, shuffled.lost) == (40, 1)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 2)), max_size=12))
def test_never_more_is_lost_than_was_sent_and_no_count_falls(steps: list[tuple[int, int, int, int]]) -> None:
    segments = retransmitted = duplicates = 0
    looks = [[]]
    for more, again, twice, shuffled in steps:
        segments, retransmitted, duplicates = segments + more + again, retransmitted + again, duplicates + twice
        told = {"segments": segments, "retransmitted": retransmitted, "duplicates": duplicates, "reordered": shuffled}
        looks.append([sock(**told)])

    for look in looked(*looks):
        assert 0 <= look.lost <= look.sent


def test_of_very_many_connections_a_fair_few_are_told_others_each_time() -> None:
    many = 10 * SPREAD
    before = [sock(cookie, acked=1) for cookie in range(many)]
    after = [sock(cookie, acked=2, rtt_us=1 + cookie) for cookie in range(many)]
    later = [sock(cookie, acked=3, rtt_us=1 + cookie) for cookie in range(many)]

    _, second, third = looked(before, after, later)

    assert len(second.ends) == len(third.ends) == SPREAD
    assert not set(second.ends) & set(third.ends)


def test_a_connection_missed_by_a_broken_look_is_not_new_when_it_is_seen_again() -> None:
    flows, known = Flows(1.0), sock(segments=500, retransmitted=50, acked=1)
    one_look(flows, [known], 0.0)

    one_look(flows, [], 1.0, whole=False)

    assert one_look(flows, [known], 2.0) == Heard(connections=idle())
    one_look(flows, [], 3.0)
    assert one_look(flows, [known], 4.0).sent == 501


def test_where_a_line_gets_another_address_the_past_of_its_connections_is_left_out() -> None:
    flows, known = Flows(1.0), sock(1, segments=10, acked=1)
    one_look(flows, [known], 0.0)

    flows.widened()
    found = one_look(flows, [sock(1, segments=12, acked=2), sock(2, segments=9_000, retransmitted=900, acked=1)], 1.0)

    assert (found.sent, found.lost) == (2, 0)
    assert one_look(flows, [sock(3, segments=4)], 2.0).sent == 5


def test_what_may_be_ours_is_remembered_and_counts_once_it_is_known_not_to_be() -> None:
    flows = Flows(1.0)
    one_look(flows, [], 0.0)

    first = one_look(flows, [sock(5, segments=4, acked=1)], 1.0, unsure=5)
    second = one_look(flows, [sock(5, segments=9, acked=2)], 2.0)

    assert first == Heard()
    assert (second.sent, second.ends) == (10, (20_000,))


def test_what_may_be_ours_at_the_first_look_has_its_past_left_out_too() -> None:
    flows = Flows(1.0)

    one_look(flows, [sock(5, segments=400, acked=1)], 0.0, unsure=5)

    assert one_look(flows, [sock(5, segments=401, acked=2)], 1.0).sent == 1


def test_the_medians_of_connections_and_the_fastest_delivery_are_told_in_passing() -> None:
    socks = [
        sock(cookie, deviation_us=cookie, lowest_us=10 * cookie, delivery=1_000 * cookie) for cookie in (1, 2, 3, 9)
    ]

    (first,) = looked([*socks, sock(10, rtt_us=0)])

    assert first.connections == Connections(count=5, deviation_us=2, lowest_us=25, delivery=9_000)


@pytest.mark.parametrize(
    ("a_look", "left"), [(10, (1_200, 12)), (200, (4_200, 21)), (1_000, (21_000, 21))], ids=["few", "some", "many"]
)
def test_segments_are_remembered_for_two_minutes_or_until_there_are_enough_newer_ones(
    a_look: int, left: tuple[int, int]
) -> None:
    packets = Packets(age=119.0)

    for second in range(600):
        packets.add(float(second), a_look, 1 if a_look > 10 else second % 10 == 0)

    assert (packets.sent, packets.lost) == left


def test_what_came_since_a_moment_can_be_taken_back() -> None:
    packets = Packets(age=120.0)
    for second in range(4):
        packets.add(float(second), 100, second)

    packets.drop_since(1.0)

    assert (packets.sent, packets.lost) == (200, 1)
