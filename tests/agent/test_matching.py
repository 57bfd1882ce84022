"""Which connection is whose: by destination, mark or process, and by how a line leaves."""

from __future__ import annotations

import pytest
from tests.agent.test_flows import sock

from reachline.agent.matching import Match, Matcher, Rule, rule_of
from reachline.errors import ConfigError
from reachline.model import Kind
from reachline.wire.frame import LinePlan, ProbePlan
from reachline.wire.sockdiag import Sock, Wanted


def plan(**options: str | int | bool) -> ProbePlan:
    return ProbePlan(kind=Kind.PASSIVE, interval_ms=1_000, suspect_interval_ms=1_000, options=options)


def line(**told: object) -> LinePlan:
    return LinePlan(line="c/a", target="tcp://10.0.0.9:443", **told)  # type: ignore[arg-type]


def cookies(matches: list[Match], socks: list[Sock], **owned: frozenset[int]) -> list[list[int]]:
    found = Matcher(matches).of(socks, owned)
    return [[each.cookie for each in found.get(at, ())] for at in range(len(matches))]


A = Match(Rule(), ("10.0.0.9", "10.0.0.10"), 443)


@pytest.mark.parametrize(
    ("given", "options", "rule"),
    [
        ({}, {}, Rule()),
        ({"mark": 5}, {}, Rule()),
        ({"mark": 5}, {"match": "mark"}, Rule(by_destination=False, mark=5)),
        ({}, {"match": "mark", "mark": 6}, Rule(mark=6)),
        ({"mark": 5}, {"match": "mark", "mark": 6}, Rule(by_destination=False, mark=5)),
        ({}, {"match": "process", "process": "java"}, Rule(process="java")),
    ],
    ids=["destination", "mark unused", "own mark", "common mark", "own over common", "process"],
)
def test_a_plan_says_which_connections_are_a_lines(
    given: dict[str, int], options: dict[str, str | int | bool], rule: Rule
) -> None:
    assert rule_of(line(**given), plan(**options)) == rule


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ({}, {"match": "colour"}, "must be one of destination, mark, process"),
        ({}, {"match": "mark"}, "is not known: say it at the line"),
        ({}, {"match": "process"}, "is not known: say its name"),
        ({}, {"port": 1}, "is not an option of this probe"),
        ({}, {"match": "mark", "mark": -1}, "must be a whole number"),
        ({"via": "socks5://10.0.0.1:1080"}, {}, "a proxy stands between"),
    ],
    ids=["unknown way", "no mark", "no process", "unknown option", "no number", "proxy"],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_in_words(
    given: dict[str, str], options: dict[str, str | int | bool], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        rule_of(line(**given), plan(**options))


def test_destination_is_address_and_port() -> None:
    socks = [sock(1), sock(2, remote="10.0.0.10"), sock(3, remote_port=80), sock(4, remote="10.0.0.8")]

    assert cookies([A], socks) == [[1, 2]]
    assert A.wanted() == (Wanted(address="10.0.0.9", port=443), Wanted(address="10.0.0.10", port=443))


def test_a_line_that_says_how_it_leaves_has_what_leaves_so_and_another_the_rest() -> None:
    bound = A._replace(source="10.1.0.3")
    by_wire = A._replace(interface=4, local=frozenset({"10.2.0.3"}))
    socks = [sock(1, local="10.1.0.3"), sock(2, local="10.2.0.3"), sock(3, interface=4), sock(4), sock(5, interface=5)]

    assert cookies([A, bound, by_wire], socks) == [[4, 5], [1], [2, 3]]


def test_two_lines_that_nothing_tells_apart_share_what_there_is() -> None:
    assert cookies([A, A], [sock(1)]) == [[1], [1]]


def test_a_mark_of_the_lines_own_wins_over_the_destination_and_a_common_one_narrows_it() -> None:
    own = Match(Rule(by_destination=False, mark=5), ("10.0.0.9",), 443)
    common = Match(Rule(mark=6), ("10.0.0.9",), 443)
    socks = [
        sock(1, mark=5, remote="10.9.9.9"),
        sock(2, mark=6),
        sock(3, mark=6, remote="10.9.9.9"),
        sock(4, mark=None),
    ]

    assert cookies([own, common], socks) == [[1], [2]]
    assert own.wanted() == (Wanted(mark=5),)
    assert common.wanted() == (Wanted(address="10.0.0.9", port=443, mark=6),)


def test_a_process_has_its_sockets_and_no_others() -> None:
    java = Match(Rule(process="java"), ("10.0.0.9",), 443)

    assert cookies([java], [sock(1, inode=7), sock(2, inode=8), sock(3, inode=0)], java=frozenset({8})) == [[2]]
    assert cookies([java], [sock(1, inode=7)]) == [[]]
