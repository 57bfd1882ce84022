"""Which lines several vantages call bad: where half of all do, nobody is asked whether one of them stands alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from reachline.core.credit import Credit
from reachline.model import LineId, VantageId

VANTAGES = tuple(VantageId(f"v{number}") for number in range(1, 6))


@settings(max_examples=50, deadline=None)
@given(
    bad=st.dictionaries(st.sampled_from(VANTAGES), st.sets(st.sampled_from([LineId(name) for name in "abcdef"]))),
    among=st.sets(st.sampled_from(VANTAGES)),
    least=st.integers(1, 5),
)
def test_a_line_is_crowded_where_so_many_of_these_vantages_call_it_bad(
    bad: dict[VantageId, set[LineId]], among: set[VantageId], least: int
) -> None:
    credit = Credit()
    credit.bad = bad

    found = credit.crowded(among, least)

    counts = {line: sum(line in bad.get(vantage, ()) for vantage in among) for line in map(LineId, "abcdef")}
    assert found == {line for line, count in counts.items() if count >= least}
