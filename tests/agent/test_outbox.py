"""What is kept for the center, in which order, and what is given up first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reachline.agent.outbox import STALE, Outbox
from reachline.wire.frame import Heartbeat, decode, encode


def beat(sequence: int) -> Heartbeat:
    return Heartbeat(agent="v1", boot="b", sequence=sequence)


SIZE = len(encode(beat(1)))


def taken(outbox: Outbox, now: float = 0.0) -> list[tuple[int, bool]]:
    """(sequence, replayed) of everything there is to send."""
    found = []
    while (frame := outbox.take(now)) is not None:
        sent = decode(frame)
        assert isinstance(sent, Heartbeat)
        found.append((sent.sequence, sent.replayed))
    return found


def filled(*sequences: int, limit: int = 1 << 20) -> Outbox:
    outbox = Outbox(limit)
    for sequence in sequences:
        outbox.put(beat(sequence), 0.0)
    return outbox


def test_what_is_put_is_sent_once_and_in_order() -> None:
    outbox = filled(1, 2)

    assert taken(outbox) == [(1, False), (2, False)]
    assert taken(outbox) == []


def test_on_a_new_stream_what_was_not_acknowledged_is_sent_again_as_history_before_the_new() -> None:
    outbox = filled(1, 2, 3)
    taken(outbox)
    outbox.acknowledge(1)

    outbox.begin()
    outbox.put(beat(4), 0.0)

    assert taken(outbox) == [(2, True), (3, True), (4, False)]


def test_what_waited_longer_than_a_vote_lasts_is_history_even_on_the_same_stream() -> None:
    outbox = filled(1)
    outbox.put(beat(2), 2.0)

    assert taken(outbox, STALE + 1) == [(1, True), (2, False)]


def test_beyond_the_limit_the_oldest_unsent_is_given_up_and_counted() -> None:
    outbox = filled(1, 2, 3, 4, 5, limit=3 * SIZE)

    assert outbox.dropped == 2
    assert taken(outbox) == [(3, False), (4, False), (5, False)]


def test_beyond_the_limit_what_is_sent_and_only_not_acknowledged_is_no_loss() -> None:
    outbox = filled(1, 2, 3, limit=3 * SIZE)
    taken(outbox)

    outbox.put(beat(4), 0.0)

    assert outbox.dropped == 0
    assert taken(outbox) == [(4, False)]


def test_the_newest_is_kept_whatever_its_size() -> None:
    outbox = filled(1, 2, limit=1)

    assert taken(outbox) == [(2, False)]


@given(
    steps=st.lists(st.one_of(st.just("put"), st.just("take"), st.just("begin"), st.integers(0, 40)), max_size=120),
    room=st.integers(1, 6),
)
def test_whatever_happens_order_holds_memory_is_bounded_and_every_heartbeat_is_sent_or_counted(
    steps: list, room: int
) -> None:
    outbox, made, seen, stream = Outbox(room * SIZE), 0, set(), []
    for step in steps:
        match step:
            case "put":
                made += 1
                outbox.put(beat(made), 0.0)
            case "take":
                if (frame := outbox.take(0.0)) is not None:
                    sent = decode(frame)
                    assert isinstance(sent, Heartbeat)
                    stream.append(sent.sequence)
                    seen.add(sent.sequence)
            case "begin":
                stream = []
                outbox.begin()
            case _:
                outbox.acknowledge(min(step, max(stream, default=0)))
        assert stream == sorted(set(stream))
        assert len(outbox) <= room
    seen |= {sequence for sequence, _ in taken(outbox)}

    # One that was sent may be given up unacknowledged; on a later stream it counts as dropped if it was not sent there.
    assert made - len(seen) <= outbox.dropped
