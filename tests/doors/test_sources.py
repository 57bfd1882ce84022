"""Where an agent's probes leave from, as a document says it."""

from __future__ import annotations

import pytest

from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.errors import ConfigError
from reachline.model import Locality


def read(sources: str) -> Document:
    return reach.read(
        f"clusters: {{c: {{lines: ['tcp://h:1']}}}}\nagents: {{a: {{sources: {sources}}}}}", name="r.yaml"
    )


@pytest.mark.parametrize(
    ("written", "planned"),
    [
        ("auto", ("auto",)),
        ("route", ("route",)),
        ("10.0.0.3", ("10.0.0.3",)),
        ("[10.0.0.3, 'fd00::1']", ("10.0.0.3", "fd00::1")),
        ("[]", ()),
    ],
)
def test_an_agents_plan_carries_its_sources(written: str, planned: tuple[str, ...]) -> None:
    assert reach.plan(read(written), agent="a", locality=Locality(), number=1).sources == planned


def test_an_agent_that_the_document_does_not_name_has_none() -> None:
    assert reach.plan(read("auto"), agent="b", locality=Locality(), number=1).sources == ()


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("eth0", "must be an IP address"),
        ("[auto, 10.0.0.3]", "'auto' stands alone"),
        ("[route, auto]", "'auto' stands alone"),
    ],
)
def test_what_is_no_address_and_no_word_is_refused_with_its_place(written: str, rule: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(written)

    (problem,) = refused.value.problems
    assert rule in problem.rule
    assert problem.place.startswith("r.yaml:2:")
