"""The mesh in the document."""

from __future__ import annotations

import pytest

from reachline.agent.settings import checked
from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.errors import ConfigError

LINES = "clusters: {c: {lines: ['tcp://h:1']}}\n"


def read(text: str) -> Document:
    return reach.read(LINES + text, name="r.yaml")


def test_without_a_word_the_mesh_is_on_and_nobody_listens() -> None:
    document = read("agents: {a: {}}")

    assert (document.mesh.enabled, document.mesh.every, document.mesh.most) == (True, 0.2, 100)
    assert document.agents["a"].mesh is None
    assert checked(id="a", centers=("h:1",)).mesh is None


@pytest.mark.parametrize(
    ("mesh", "most"), [("{every: 50ms}", 50), ("{every: 50ms, peers: 10}", 10), ("{every: 60s, peers: 256}", 256)]
)
def test_a_quick_pace_asks_fewer_so_that_no_agent_sends_more_than_a_thousand_a_second(mesh: str, most: int) -> None:
    assert read(f"mesh: {mesh}").mesh.most == most


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("agents: {a: {mesh: 'unix:/x'}}", "r.yaml:2:20: agents.a.mesh: must be host:port"),
        ("agents: {a: {mesh: 'h'}}", "agents.a.mesh: must be host:port"),
        ("agents: {a: {mesh: 'h:0'}}", "agents.a.mesh: must have a port of 1…65535"),
        ("agents: {a: {mesh: '0.0.0.0:7601'}}", "agents.a.mesh: must be an address that the others can ask"),
        ("agents: {a: {mesh: '[::]:7601'}}", "agents.a.mesh: must be an address that the others can ask"),
        ("agents: {a: {mesh: 7601}}", "agents.a.mesh: "),
        ("mesh: {every: 5ms}", "mesh.every: "),
        ("mesh: {every: 2}", "mesh.every: "),
        ("mesh: {peers: 1}", "mesh.peers: "),
        ("mesh: {peers: 257}", "mesh.peers: "),
        ("mesh: {pears: 2}", "mesh.pears: "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)

    assert len(refused.value.problems) == 1
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("mesh", "complaint"),
    [
        ("unix:/x", "--mesh: must be host:port"),
        ("7601", "--mesh: must be host:port"),
        ("a.example:7601", "--mesh: must be an address of this machine"),
        ("10.0.0.1:99999", "--mesh: "),
    ],
)
def test_where_an_agent_answers_is_an_address_of_its_own(mesh: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checked(id="a", centers=("h:1",), mesh=mesh)

    assert len(refused.value.problems) == 1
    assert complaint in str(refused.value)
