"""What a document says of others' connections becomes a plan, or is refused where it stands."""

from __future__ import annotations

import pytest

from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.errors import ConfigError
from reachline.model import Kind, Locality
from reachline.wire.frame import LinePlan


def read(probes: str, lines: str = 'a: "tcp://10.0.0.1:443"') -> Document:
    return reach.read(
        f"clusters:\n  c:\n    probes: {{{probes}}}\n    lines:\n      {lines}\n", name="d.yaml", environ={}
    )


def planned(document: Document) -> dict[str, LinePlan]:
    plan = reach.plan(document, agent="edge-1", locality=Locality(), number=1)
    return {line.line: line for line in plan.lines}


@pytest.mark.parametrize(
    ("probes", "kinds", "options"),
    [
        ("tcp: 5s", [Kind.TCP], None),
        ("passive: 2s", [Kind.TCP, Kind.PASSIVE], {}),
        ("tcp: off, passive: {}", [Kind.PASSIVE], {}),
        ("passive: off", [Kind.TCP], None),
        ("passive: {match: process, process: java}", [Kind.TCP, Kind.PASSIVE], {"match": "process", "process": "java"}),
        ("passive: {match: mark, mark: 7}", [Kind.TCP, Kind.PASSIVE], {"match": "mark", "mark": 7}),
    ],
)
def test_a_line_has_it_where_the_document_names_it(
    probes: str, kinds: list[Kind], options: dict[str, str | int] | None
) -> None:
    line = planned(read(probes))["c/a"]

    assert sorted(probe.kind for probe in line.probes) == sorted(kinds)
    assert [probe.options for probe in line.probes if probe.kind is Kind.PASSIVE] == (
        [] if options is None else [options]
    )


def test_lines_that_have_no_tcp_connections_or_stand_behind_a_proxy_are_not_watched() -> None:
    lines = 'a: "icmp://10.0.0.1"\n      b: {to: "tcp://10.0.0.2:1", via: "socks5://10.0.0.3:1080"}\n      c: "tcp://10.0.0.4:1"'

    found = planned(read("passive: 1s", lines))

    assert [name for name, line in found.items() if Kind.PASSIVE in {probe.kind for probe in line.probes}] == ["c/c"]


def test_a_line_goes_with_its_mark_and_with_what_it_shares() -> None:
    lines = (
        'a: {to: "tcp://10.0.0.1:443", mark: 9, provider: p1, groups: [fibre-7, hall-2]}\n      b: "tcp://10.0.0.2:443"'
    )

    found = planned(read("passive: {match: mark, mark: 7}", lines))

    assert (found["c/a"].mark, found["c/a"].groups) == (9, ("fibre-7", "hall-2", "p1"))
    assert (found["c/b"].mark, found["c/b"].groups) == (0, ())


@pytest.mark.parametrize(
    ("probes", "words"),
    [
        ("passive: {match: process}", "matches by process but names none"),
        ("passive: {mark: 7}", "names a mark or process that nothing is matched by"),
        ("passive: {match: mark, mark: 0}", "must be at least 1"),
        ("passive: {match: colour}", "must be"),
        ("passive: {burst: 5}", "must be at most 1"),
        ("passive: {match: mark}", "has no mark, by which probes.passive is to know it"),
        ("passive: 10ms", "must be at least"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_stands(probes: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(probes)

    (problem,) = caught.value.problems
    assert words in problem.rule
    assert problem.place.startswith("d.yaml:")


def test_two_lines_of_one_mark_are_odd() -> None:
    document = read(
        "passive: {match: mark}",
        'a: {to: "tcp://10.0.0.1:443", mark: 9}\n      b: {to: "tcp://10.0.0.2:443", mark: 9}',
    )

    assert [problem.rule for problem in document.warnings] == ["is the mark of a too: both have the same connections"]
