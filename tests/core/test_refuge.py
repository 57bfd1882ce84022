"""Lines that are well, in sums: what they say to the guard is what they would say one by one."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reachline.core.guard import Candidate, allowed
from reachline.core.refuge import others, without
from reachline.core.row import Row
from reachline.core.rules import Rules
from reachline.core.spreading import candidates
from reachline.model import Gate, Line, Role, Zone
from reachline.testing.builders import line

_CAPACITY = st.sampled_from([None, 0, 10, 50])
_ROLES = st.sampled_from([frozenset[Role](), frozenset({Role.BACKUP}), frozenset({Role.RESERVE})])


@st.composite
def _lines(draw: st.DrawFn) -> list[Line]:
    count = draw(st.integers(2, 9))
    made = (line(f"l{number}", base=draw(st.sampled_from([0, 10, 100]))) for number in range(count))
    return [
        replace(each, capacity=draw(_CAPACITY), roles=draw(_ROLES), drained=draw(st.booleans()) and draw(st.booleans()))
        for each in made
    ]


@given(_lines(), st.data(), st.sampled_from([("weighted",), ("primary_backup",)]), st.sampled_from([0, 20_000]))
def test_lines_that_are_well_say_in_sums_what_they_say_one_by_one(
    lines: list[Line], data: st.DataObject, policy: tuple[str, ...], offered: int
) -> None:
    rules = replace(Rules(), policy=policy)
    sick = data.draw(st.lists(st.sampled_from(lines), min_size=1, unique_by=lambda each: each.id))
    names = [each.id for each in sick]
    rows = {each.id: Row(zone=Zone.F if each.id in names else Zone.H) for each in lines}
    well = others(lines, is_tiered=policy != ("weighted",))
    rest = without(well, others(sick, is_tiered=policy != ("weighted",)))

    one_by_one = allowed(candidates(lines, rows, rules), names, rules, offered=offered)
    in_sums = allowed(candidates(sick, rows, rules), names, rules, rest=rest, offered=offered)

    assert in_sums == one_by_one


def test_a_line_without_weight_is_nobodys_refuge() -> None:
    rules = Rules()
    sick = Candidate(line("a").id, 100, Gate.CLOSED, Zone.F, 0, drained=False)

    nobody = allowed([sick], [sick.line], rules, rest=others([line("b", base=0)], is_tiered=False))

    assert nobody == {sick.line: "guard.last_line"}
