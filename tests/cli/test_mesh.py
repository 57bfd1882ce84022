"""`reachline mesh`: what a person reads of the ways between agents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.test_explain import center

from reachline.cli.main import main
from reachline.wire.matrix import MeshDocument, MeshWay


def way(vantage: str, peer: str, **more: object) -> dict[str, Any]:
    usual: MeshWay = {
        "vantage": vantage, "peer": peer, "told_by": vantage, "state": "heard", "age": 1.0, "silent": 0.1, "error": "",
        "rtt": 0.012, "sent": 1_000, "lost": 0, "loss": 0.0, "rise": 0.0, "sent_back": 1_000, "lost_back": 0,
        "loss_back": 0.0, "rise_back": 0.0, "losing": "", "delayed": "", "drift": 0.0, "stepped": False,
    }  # fmt: skip
    return {**usual, **more}


def document(*ways: dict[str, Any], agents: tuple[str, ...] = ("ams", "fra"), enabled: bool = True) -> MeshDocument:
    listed = [{"agent": name, "address": "10.0.0.1:7601"} for name in agents]
    return {"enabled": enabled, "every": 0.2, "agents": listed, "ways": list(ways)}  # type: ignore[typeddict-item, arg-type]


def said(capsys: pytest.CaptureFixture[str], answer: object, *arguments: str) -> tuple[int, str, str]:
    with center(200, answer) as (url, asked):
        code = main(["mesh", "--center", url, *arguments])
    assert asked == ["/api/v1/mesh"]
    out, err = capsys.readouterr()
    return code, out, err


WAYS = (
    way("ams", "fra", losing="forward", loss=0.021, delayed="both", rise=0.09, rise_back=0.012),
    way("fra", "ams"),
    way("ams", "nyc", state="silent", silent=42.0, losing="reverse"),
    way("nyc", "ams", state="silent", silent=None),
    way("fra", "nyc", state="stale", age=75.0),
    way("nyc", "fra", state="silent", silent=9.0, error="network unreachable"),
)


def test_the_matrix_and_every_way_with_what_is_certain_troubled_ones_first(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, document(*WAYS, agents=("ams", "fra", "nyc")))

    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert lines[:4] == ["→ ams → fra → nyc", "ams · 2.1 % lost silent", "fra 12.0 ms · stale", "nyc silent silent ·"]
    assert lines[5] == "from to state rtt loss → loss ← certain told by"
    assert lines[6] == "ams nyc silent for 42 s 12.0 ms 0 % 0 % nothing comes back ← ams"
    assert lines[7] == "ams fra heard 12.0 ms 2.1 % 0 % loses 2.1 % →, +90.0 ms →, +12.0 ms ← ams"
    assert lines[8:] == [
        "fra nyc stale, 1 min 15 s old 12.0 ms 0 % 0 % – fra",
        "nyc ams never answered 12.0 ms 0 % 0 % – nyc",
        "nyc fra network unreachable 12.0 ms 0 % 0 % – nyc",
        "fra ams heard 12.0 ms 0 % 0 % – fra",
    ]


def test_one_agents_ways_alone_also_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(*WAYS, agents=("ams", "fra", "nyc"))

    code, out, _ = said(capsys, answer, "fra", "-o", "json")

    found = json.loads(out)
    assert code == 0
    assert found["agents"] == answer["agents"]
    assert {(each["vantage"], each["peer"]) for each in found["ways"]} == {
        ("ams", "fra"), ("fra", "ams"), ("fra", "nyc"), ("nyc", "fra"),
    }  # fmt: skip


def test_of_many_agents_only_trouble_is_listed_unless_all_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"a{number}" for number in range(9))
    ways = [way(one, other) for one in names for other in names if one != other]
    ways[5] = way("a0", "a6", losing="forward", loss=0.5)

    _, few, _ = said(capsys, document(*ways, agents=names))
    _, everything, _ = said(capsys, document(*ways, agents=names), "--all")

    assert "loses 50 % →" in few.splitlines()[1]
    assert few.splitlines()[2:] == ["71 of 72 ways are heard and well (--all shows them)"]
    assert len(everything.splitlines()) == 73


def test_an_unknown_agent_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, document(*WAYS), "frankfurt")

    assert (code, out) == (2, "")
    assert err == "reachline: mesh: AGENT: is no agent of this center; there are: ams, fra (got frankfurt)\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (document(enabled=False), "mesh.enabled: false"),
        (document(agents=("ams",)), "needs two agents"),
        (document(), "not told anything yet"),
        ({**document(), "agents": [{"agent": name, "address": None} for name in "ab"]}, "start agents with --mesh"),
    ],
    ids=["off", "alone", "early", "nowhere"],
)
def test_an_empty_mesh_says_why(capsys: pytest.CaptureFixture[str], answer: object, why: str) -> None:
    code, out, _ = said(capsys, answer)

    assert code == 0
    assert why in out
    assert out.count("\n") == 1
