"""Who takes a slot of a maglev table in which round: as Envoy has it, to the rounding of its doubles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

__all__ = ["last_takes", "rounds_of", "takers"]

_ALIKE_MOST: Final = 64
"""Different shares up to which a round's takers are put together from all who have the same one: as long as that is less than sorting them."""

_ROUNDS_BACK: Final = 4
"""Rounds looked through for the last takes: two or three are enough where weights are alike."""


def takers(shares: Sequence[float]) -> Iterator[Sequence[int]]:
    """The places that take a slot in each round, in their order, without end.

    In round n a place takes one if n x share has reached its target, which then grows by the heaviest share: so the heaviest
    takes one in every round.
    """
    alike = _alike(shares)
    return _rounds(alike) if len(alike) <= _ALIKE_MOST else _by_share(shares)


def rounds_of(shares: Sequence[float], size: int) -> tuple[tuple[int, ...], ...] | None:
    """By place, the rounds in which it takes one of `size` slots, counted from 1; None where many shares differ."""
    alike = _alike(shares)
    if len(alike) > _ALIKE_MOST:
        return None
    taken: dict[float, list[int]] = {share: [] for share in alike}
    left, turn, due = size, 0, tuple[float, ...]()
    for turn, due in enumerate(_due(alike), 1):
        count = sum(len(alike[share]) for share in due)
        if count >= left:
            break
        left -= count
        for share in due:
            taken[share].append(turn)
    most = {share: tuple(turns) for share, turns in taken.items()}
    found = [most[share] for share in shares]
    more = {share: (*most[share], turn) for share in due}
    # Of the last round only the first have one.
    for place in sorted(place for share in due for place in alike[share])[:left]:
        found[place] = more[shares[place]]
    return tuple(found)


def last_takes(order: Sequence[int], rounds: Sequence[tuple[int, ...]], most: int) -> list[tuple[int, int]]:
    """The last takes of a table in their order, each by its round and its taker's number; fewer where they are spread over many rounds.

    By place: numbers, and `rounds_of`.
    """
    found, last = list[tuple[int, int]](), max(map(len, rounds)) + 1
    for turn in range(last, max(last - _ROUNDS_BACK, 0), -1):
        rows = zip(reversed(order), reversed(rounds), strict=True)
        found += islice(((turn, number) for number, own in rows if turn in own), most - len(found))
    return found[::-1]


def _alike(shares: Sequence[float]) -> dict[float, list[int]]:
    """The places of each share."""
    alike: dict[float, list[int]] = {}
    for place, share in enumerate(shares):
        alike.setdefault(share, []).append(place)
    return alike


def _due(alike: Mapping[float, Sequence[int]]) -> Iterator[tuple[float, ...]]:
    """The shares that have one in each round: those who have the same take theirs in the same rounds."""
    heaviest = max(alike)
    targets, dues, turn = dict.fromkeys(alike, 0.0), dict.fromkeys(alike, 1), 0
    while True:
        turn += 1
        due = tuple([share for share, at in dues.items() if at == turn])
        yield due
        for share in due:
            targets[share] += heaviest
            dues[share] = _reached(targets[share], share, turn)


def _rounds(alike: Mapping[float, Sequence[int]]) -> Iterator[Sequence[int]]:
    """Who takes a slot, round by round, where few shares differ."""
    orders = dict[tuple[float, ...], Sequence[int]]()
    for due in _due(alike):
        order = orders.get(due)
        if order is None:
            order = orders[due] = sorted(place for share in due for place in alike[share])
        yield order


def _by_share(shares: Sequence[float]) -> Iterator[Sequence[int]]:
    """The same where many differ."""
    heaviest, targets = max(shares), [0.0] * len(shares)
    rounds, turn = {1: list(range(len(shares)))}, 0
    while True:
        turn += 1
        # The heaviest has one in every round, so that there is one.
        order = sorted(rounds.pop(turn))
        yield order
        for place in order:
            targets[place] += heaviest
            rounds.setdefault(_reached(targets[place], shares[place], turn), []).append(place)


def _reached(target: float, share: float, after: int) -> int:
    """The first round above `after` in which round x share, rounded as a double is, reaches the target."""
    if (after + 1) * share >= target:
        return after + 1
    found = max(int(target / share), after + 1)
    while found > after + 1 and (found - 1) * share >= target:
        found -= 1
    while found * share < target:
        found += 1
    return found
