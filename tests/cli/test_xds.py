"""`reachline xds`: what a person reads of who follows a center."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.test_explain import center

from reachline.cli.main import main
from reachline.wire.steered import SteeredDocument, nobody


def told(type_: str = "Cluster", **more: object) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "type": type_, "wildcard": type_ == "Cluster", "names": [], "names_total": 0, "version": "a", "accepted": "a",
        "current": True, "waiting": False, "owed": 0, "nacks": 0, "error": "", "refused": {},
    }  # fmt: skip
    return {**usual, **more}


def stream(node: str, *types: dict[str, Any], **more: object) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "node": node, "cluster": "edge", "kind": "envoy", "locality": "r1/z1", "release": "envoy 1.40.0", "peer": "ipv4:10.0.0.9:1",
        "variant": "sotw", "age": 75.0, "heard": 0.2, "told": 12, "held": False, "types": list(types),
    }  # fmt: skip
    return {**usual, **more}


def document(*streams: dict[str, Any], **more: object) -> SteeredDocument:
    usual: dict[str, Any] = {
        "served": True, "reason": "", "settled": True, "streams": list(streams), "streams_total": len(streams), "troubled": 0,
        "audiences": [], "notes": {},
    }  # fmt: skip
    return {**usual, **more}  # type: ignore[typeddict-item]


def said(capsys: pytest.CaptureFixture[str], answer: object, *arguments: str, path: str = "/api/v1/xds?") -> list[str]:
    with center(200, answer) as (url, asked):
        code = main(["xds", "--center", url, *arguments])
    assert (code, asked) == (0, [path])
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_every_stream_is_a_row_and_every_refusal_a_line_with_its_reason(capsys) -> None:
    refused = told(refused={"big": "big: ring too large"}, nacks=1)
    lines = said(
        capsys,
        document(
            stream("e1", refused, told("ClusterLoadAssignment", names_total=3)),
            stream("e2", told("Listener", waiting=True, names_total=1), heard=9.0, locality="", variant="delta"),
            stream("e3", told(current=False), held=True),
            stream("e4", told(error="no", nacks=1)),
            stream("", told()),
            settled=False,
            streams_total=6,
            notes={"shop": ["a is not told: it leaves by way of socks5"]},
        ),
    )

    assert lines == [
        "node release locality variant asks state told for",
        "e1 envoy 1.40.0 r1/z1 sotw CDS *, EDS 3 refuses 12 1 min 15 s",
        "e2 envoy 1.40.0 – delta LDS 1 takes nothing 12 1 min 15 s",
        "e3 envoy 1.40.0 r1/z1 sotw CDS * held 12 1 min 15 s",
        "e4 envoy 1.40.0 r1/z1 sotw CDS * refuses 12 1 min 15 s",
        "– envoy 1.40.0 r1/z1 sotw CDS * current 12 1 min 15 s",
        "e1 refuses CDS big: big: ring too large",
        "e4 refuses CDS (unnamed): no",
        "the center began a short time ago: who was told more by one before it waits until lines are judged",
        "5 of 6 streams, troubled ones first",
        "shop: a is not told: it leaves by way of socks5",
    ]


@pytest.mark.parametrize(
    ("answer", "arguments", "path", "line"),
    [
        (nobody("xDS needs the extra `xds`"), (), "?", "xDS needs the extra `xds`"),
        (
            document(),
            (),
            "?",
            "nobody follows this center by xDS yet: `reachline envoy bootstrap` points an Envoy at it",
        ),
        (document(), ("e 1", "--trouble"), "?node=e+1&trouble=1", "nobody by the name e 1 is in trouble"),
        (document(), ("e 1",), "?node=e+1", "nobody by the name e 1 follows this center"),
        (document(), ("--trouble",), "?trouble=1", "nobody is in trouble"),
        (document(stream("e1", told()), reason="shop: weights"), (), "?", "shop: weights"),
    ],
)
def test_what_is_missing_is_said(capsys, answer, arguments, path, line) -> None:
    assert said(capsys, answer, *arguments, path=f"/api/v1/xds{path}")[-1] == line


def test_json_is_the_centers_own_document(capsys) -> None:
    answer = document(stream("e1", told()))

    assert json.loads("\n".join(said(capsys, answer, "-o", "json"))) == answer
