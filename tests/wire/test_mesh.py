"""Datagrams between agents: what is taken, what is dropped and why, and counts that are exact whatever the network does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.core.direction import Interval
from reachline.wire import mesh
from reachline.wire.mesh import Drop, Probe, Reply
from reachline.wire.mesh_sides import LAST, Answering, Asking

KEY = mesh.key_of(b"s" * 32, "b")
ME = mesh.identity("a")
PAIR = mesh.pair_key(KEY, ME)
u64 = st.integers(0, 2**64 - 1)


def packed(sequence: int = 1, session: int = 1) -> bytes:
    return mesh.pack_probe(Probe(ME, session, sequence, 5), PAIR)


def reply(**more) -> Reply:
    return Reply(ME, 1, 1, 5, 1_000, 1_010, 77, 1, 1, 1)._replace(**more)


def answered(answering: Answering, sequence: int, *, session: int = 1, now: int = 1_000, sender: int = ME) -> Reply:
    found = answering.answer(Probe(sender, session, sequence, 5), now, now)
    assert isinstance(found, Reply)
    return found._replace(replied_us=now + 10)


def asked(count: int) -> Asking:
    asking = Asking(ME, 1)
    for number in range(count):
        asking.probe(number)
    return asking


def counts(interval: Interval) -> tuple[int, int, int, int]:
    return interval.sent, interval.forward_lost, interval.replied, interval.reverse_lost


# -- bytes ----------------------------------------------------------------------------------------------------------------


@given(session=u64, sequence=st.integers(0, 2**32 - 1), sent=u64)
def test_a_probe_comes_out_as_it_went_in(session: int, sequence: int, sent: int) -> None:
    probe = Probe(ME, session, sequence, sent)

    assert mesh.read_probe(mesh.pack_probe(probe, PAIR), KEY) == probe


@given(received=st.integers(-(2**63), 2**63 - 1), birth=u64, count=st.integers(0, 2**32 - 1))
def test_a_reply_comes_out_as_it_went_in_and_is_no_longer_than_its_probe(received: int, birth: int, count: int) -> None:
    there = reply(received_us=received, birth=birth, replies=count)

    data = mesh.pack_reply(there, PAIR)

    assert mesh.reply_session(data) == 1
    assert mesh.read_reply(data, PAIR) == there
    assert len(data) == len(packed()) == mesh.SIZE


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", Drop.MALFORMED),
        (packed()[:-1], Drop.MALFORMED),
        (packed() + b"\0", Drop.MALFORMED),
        (b"X" + packed()[1:], Drop.MALFORMED),
        (packed()[:3] + b"\2" + packed()[4:], Drop.VERSION),
        (mesh.pack_reply(reply(), PAIR), Drop.MALFORMED),  # a reply is no probe: it cannot be turned round
        (mesh.pack_probe(Probe(ME, 1, 1, 5), mesh.pair_key(KEY, mesh.identity("c"))), Drop.FORGED),
        (mesh.pack_probe(Probe(ME, 1, 1, 5), mesh.pair_key(mesh.key_of(b"t" * 32, "b"), ME)), Drop.FORGED),
    ],
    ids=["empty", "truncated", "oversized", "foreign", "version", "reply", "name-of-another", "other-secret"],
)
def test_what_is_not_a_probe_for_us_is_dropped_by_name(data: bytes, why: Drop) -> None:
    assert mesh.read_probe(data, KEY) is why


@given(st.integers(0, 8 * mesh.SIZE - 1))
def test_no_bit_of_a_probe_can_be_changed_unseen(bit: int) -> None:
    data = bytearray(packed())
    data[bit // 8] ^= 1 << bit % 8

    assert isinstance(mesh.read_probe(bytes(data), KEY), Drop)


@given(st.binary(max_size=200) | st.binary(max_size=84).map(lambda tail: b"RLM\x01" + tail))
def test_garbage_is_dropped_by_both_sides(data: bytes) -> None:
    assert isinstance(mesh.read_probe(data, KEY), Drop)
    assert isinstance(mesh.read_reply(data, PAIR), Drop)


def test_keys_are_each_agents_own() -> None:
    keys = {mesh.pair_key(mesh.key_of(b"s" * 32, one), mesh.identity(two)) for one in "abc" for two in "abc"}

    assert len(keys) == 9
    assert {len(key) for key in keys} == {mesh.KEY}


# -- the side that is asked -----------------------------------------------------------------------------------------------


def test_arrivals_are_counted_from_the_first_on() -> None:
    answering = Answering()

    replies = [answered(answering, sequence) for sequence in (5, 6, 9)]

    assert [(one.span, one.got, one.replies) for one in replies] == [(1, 1, 1), (2, 2, 2), (5, 3, 3)]


def test_one_that_was_overtaken_still_counts_but_none_counts_twice() -> None:
    answering = Answering()
    for sequence in (1, 3):
        answered(answering, sequence)

    assert (answered(answering, 2).span, answered(answering, 4).got) == (3, 4)
    for sequence in (1, 2, 3, 4):
        assert answering.answer(Probe(ME, 1, sequence, 5), 1_000, 1_000) is Drop.REPLAYED


def test_what_is_older_than_the_window_or_the_count_is_dropped() -> None:
    answering = Answering()
    answered(answering, 10)
    answered(answering, 110)

    assert answering.answer(Probe(ME, 1, 46, 5), 1_000, 1_000) is Drop.REPLAYED
    assert answering.answer(Probe(ME, 1, 9, 5), 1_000, 1_000) is Drop.REPLAYED
    assert answered(answering, 47).got == 3


def test_a_newer_session_replaces_the_older_one_which_never_comes_back_while_that_lives() -> None:
    answering = Answering()
    first, second = answered(answering, 50, session=1), answered(answering, 1, session=2)

    assert second.birth > first.birth
    assert (second.span, second.got) == (1, 1)
    assert answering.answer(Probe(ME, 1, 51, 5), 1_000, 1_000) is Drop.REPLAYED
    assert answered(answering, 1, session=1, now=61_000_000).got == 1  # silent for a minute: its clock was set back


def test_a_sender_that_floods_is_held_to_its_rate_and_comes_back() -> None:
    answering = Answering()

    burst = [answering.answer(Probe(ME, 1, sequence, 5), 0, 0) for sequence in range(1, 1_001)]
    later = answering.answer(Probe(ME, 1, 1_001, 5), 1_000_000, 1_000_000)

    assert sum(isinstance(one, Reply) for one in burst) == 500
    assert burst[-1] is Drop.FLOOD
    assert isinstance(later, Reply)


def test_senders_are_bounded_and_the_longest_silent_is_forgotten_first() -> None:
    answering = Answering()
    answered(answering, 1, sender=0)
    for sender in range(1, 1_024):
        answered(answering, 1, sender=sender)
    answered(answering, 2, sender=0)

    answered(answering, 1, sender=5_000)

    assert len(answering) == 1_024
    assert answered(answering, 3, sender=0).got == 3
    assert answered(answering, 2, sender=1).got == 1


# -- the side that asks ---------------------------------------------------------------------------------------------------


def test_losses_of_each_way_are_told_apart_by_counting() -> None:
    asking, answering = asked(10), Answering()
    for sequence in (1, 2, 4, 5, 8, 10):  # 3, 6, 7 and 9 are lost on the way there
        there = answered(answering, sequence)
        if sequence not in {4, 8}:  # two on the way back
            assert asking.heard(there, 2_000)

    assert counts(asking.close(1)) == (10, 4, 6, 2)


def test_a_late_reply_is_no_loss_in_the_sum() -> None:
    asking, answering = asked(4), Answering()
    first, second, third = (answered(answering, sequence) for sequence in (1, 2, 3))
    asking.heard(first, 2_000)
    asking.heard(third, 2_000)
    early = asking.close(1)
    asking.heard(second, 2_000)

    late = asking.close(2)

    assert counts(early) == (3, 0, 3, 1)
    assert counts(late) == (0, 0, 0, -1)


def test_a_replayed_reply_counts_once_and_one_of_another_session_never() -> None:
    asking = asked(3)

    assert asking.heard(reply(), 2_000)
    assert not asking.heard(reply(), 2_000)
    assert not asking.heard(reply(session=2, replies=2, got=2, span=2), 2_000)
    assert counts(asking.close(1)) == (1, 0, 1, 0)


@pytest.mark.parametrize(
    "lie",
    [
        {"sequence": 4}, {"sequence": 0}, {"span": 4}, {"got": 2}, {"replies": 2}, {"birth": 0}, {"sent_us": 3_000},
        {"received_us": -1}, {"replied_us": 999}, {"received_us": 2**53, "replied_us": 2**53},
    ],
    ids=lambda lie: next(iter(lie)),
)  # fmt: skip
def test_a_reply_that_cannot_be_true_is_no_news(lie: dict[str, int]) -> None:
    asking = asked(3)

    assert not asking.heard(reply(**lie), 2_000)
    assert asking.close(1) == Interval(1)


def test_a_responder_that_restarts_counts_anew_and_nothing_is_called_lost() -> None:
    asking, old, new = asked(8), Answering(), Answering()
    for sequence in (1, 2, 3):
        asking.heard(answered(old, sequence), 2_000)
    straggler = answered(old, 4)
    for sequence in (6, 8):
        asking.heard(answered(new, sequence, now=2_000), 3_000)

    assert not asking.heard(straggler, 3_000)
    assert counts(asking.close(1)) == (6, 1, 5, 0)  # 4 and 5 are not known; 7 was lost


def test_counts_that_were_forgotten_here_are_no_loss_there() -> None:
    asking, answering = asked(9), Answering()
    asking.heard(answered(answering, 1), 2_000)
    answering.forget()

    asking.heard(answered(answering, 9), 2_000)

    assert counts(asking.close(1)) == (2, 0, 2, 0)


def test_delays_are_the_lowest_each_way_and_the_round_trip_leaves_out_the_other_agents_own_time() -> None:
    asking = asked(3)
    asking.heard(reply(sent_us=0, received_us=1_000_030, replied_us=1_900_000), 900_050)
    asking.heard(
        reply(sent_us=0, received_us=1_000_020, replied_us=1_900_000, replies=2, got=2, span=2, sequence=2), 900_090
    )

    closed = asking.close(1)

    assert (closed.forward_us, closed.reverse_us) == (1_000_020, -999_950)
    assert closed.rtt_us == 110


def test_a_reply_of_unknown_time_is_counted_and_no_more() -> None:
    asking = asked(1)

    assert asking.heard(reply(), 2_000, is_timed=False)
    assert asking.close(1) == Interval(1, sent=1, replied=1)


def test_a_probe_that_never_left_leaves_no_gap() -> None:
    asking = Asking(ME, 1)
    asking.probe(1)
    asking.unsent()

    assert asking.probe(2).sequence == 1


def test_a_session_ends_with_its_last_number() -> None:
    asking = Asking(ME, 1)
    asking.sequence = LAST - 1

    last = asking.probe(1)

    assert asking.is_over
    assert mesh.read_probe(mesh.pack_probe(last, PAIR), KEY) == last


@given(st.integers(0, 2**32), st.floats(0, 0.6), st.floats(0, 0.6), st.integers(0, 20))
def test_counts_are_exact_whatever_is_lost_overtaken_or_doubled(
    seed: int, there: float, back: float, reorder: int
) -> None:
    rng, asking, answering = random.Random(seed), Asking(ME, 1), Answering()
    probes = [asking.probe(0) for _ in range(120)]
    arriving = [probe for probe in probes if rng.random() >= there]
    arriving.sort(key=lambda probe: probe.sequence + rng.uniform(0, reorder))
    doubled = arriving + rng.sample(arriving, len(arriving) // 5)
    answers = [answering.answer(probe, 1_000, 1_000) for probe in doubled]
    returning = [each._replace(replied_us=1_010) for each in answers if isinstance(each, Reply)]
    kept = [each for each in returning if rng.random() >= back]
    kept.sort(key=lambda each: each.replies + rng.uniform(0, reorder))

    for each in kept + kept[:10]:
        asking.heard(each, 2_000)

    closed, newest = asking.close(1), max(kept, key=lambda each: each.replies, default=None)
    if newest is None:
        assert counts(closed) == (0, 0, 0, 0)
    else:
        told = [each for each in returning if each.replies <= newest.replies]
        assert counts(closed) == (newest.span, newest.span - newest.got, len(told), len(told) - len(kept))
