"""A twin is the ledger as it stood, and neither sees what becomes of the other."""

from __future__ import annotations

import pytest

from reachline.core.twin import twin
from reachline.testing.storm import act, begin, perform


@pytest.mark.parametrize("seed", range(2))
def test_a_twin_is_equal_goes_on_alike_and_leaves_the_ledger_alone(seed: int) -> None:
    ledgers = begin(7)
    for number in range(180):
        perform(ledgers, act(seed, number, number * 7))
        if number % 60 != 59:
            continue
        twins = {scope: twin(ledger) for scope, ledger in ledgers.items()}
        again = {scope: twin(each) for scope, each in twins.items()}
        stood = [ledger.freeze() for ledger in ledgers.values()]
        assert [each.freeze() for each in twins.values()] == stood

        further = [act(seed + 1, later, later * 7) for later in range(number + 1, number + 80)]
        told = [perform(twins, each) for each in further]

        assert [ledger.freeze() for ledger in ledgers.values()] == stood
        assert [perform(again, each) for each in further] == told
        assert [one.freeze() for one in again.values()] == [one.freeze() for one in twins.values()]
