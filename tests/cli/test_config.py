"""`reachline config` as a user runs it: what is printed where, and the exit code."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from reachline.cli.main import main

GOOD = "clusters: {shop: {lines: ['http://a.example/x', 'http://b.example/x']}}\n"
BAD = "clusters: {shop: {lines: [], polcy: x}}\nmode: fsat\n"


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return str(path)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return str(path)


def test_a_good_document_is_called_so(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["config", "check", good])

    assert code == 0
    assert capsys.readouterr().out == f"{good}: good: 1 cluster, 2 lines, any agent that joins\n"


def test_all_problems_go_to_standard_error_one_a_line(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["config", "check", bad])
    printed = capsys.readouterr()

    assert code == 2
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f"reachline: {bad}:1:26: clusters.shop.lines: must not be empty (got an empty list)",
        f"reachline: {bad}:1:30: clusters.shop.polcy: unknown key; did you mean 'policy'?",
        f"reachline: {bad}:2:7: mode: must be literal or fast; did you mean fast? (got 'fsat')",
    ]


def test_problems_as_json_keep_the_exit_code(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["config", "check", bad, "-o", "json"])
    document = json.loads(capsys.readouterr().out)

    assert code == 2
    assert not document["ok"]
    assert document["problems"][1] == {
        "place": f"{bad}:1:30",
        "path": "clusters.shop.polcy",
        "value": "",
        "rule": "unknown key",
        "hint": "did you mean 'policy'?",
    }


def test_warnings_are_told_and_are_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text("clusters: {a: {lines: {x: 'tcp://h:1', y: 'tcp://h:1'}}}\n")

    code = main(["config", "check", str(path)])

    assert code == 0
    assert f"reachline: warning: {path}:1:43: clusters.a.lines.y: goes the same way as x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "code", "told"),
    [
        (GOOD.encode(), 0, "stdin: good: 1 cluster, 2 lines"),
        (BAD.encode(), 2, "reachline: stdin:1:26: clusters.shop.lines"),
        (b"", 2, "reachline: stdin:1:1: is empty"),
        (b"\xff\xfe", 2, "reachline: stdin: is no UTF-8 text (byte 0)"),
    ],
)
def test_a_dash_reads_standard_input(
    data: bytes, code: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    assert main(["config", "check", "-"]) == code
    printed = capsys.readouterr()
    assert told in printed.out + printed.err


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["config", "check", str(tmp_path / "none.yaml")])
    printed = capsys.readouterr()

    assert code == 2
    assert printed.err.count("\n") == 1
    assert "none.yaml: cannot be read: No such file or directory" in printed.err


def test_show_names_every_value_in_force_with_its_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "d.yaml"
    path.write_text(f"preset: quick_recovery\npatience: {{failed: 4}}\n{GOOD}")

    code = main(["config", "show", str(path), "-o", "json"])
    rows = {(row["cluster"], row["key"]): (row["value"], row["source"]) for row in json.loads(capsys.readouterr().out)}

    assert code == 0
    assert rows["shop", "judge.tick"] == ("2s", "preset quick_recovery")
    assert rows["shop", "patience.failed"] == ("4", f"{path}:2:20")
    assert rows["shop", "judge.blind"] == ("1m", "default")
    assert rows["shop", "line shop/a.example"] == ("http://a.example:80/x", f"{path}:3:27")
    assert rows["", "center.http"] == ("127.0.0.1:7680", "default")


def test_show_as_a_table_and_of_one_cluster(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", good, "--cluster", "shop"]) == 0
    assert "circuit_breaker.cooldown_seconds" in capsys.readouterr().out

    assert main(["config", "show", good, "--cluster", "shp"]) == 2
    assert "has no such cluster; it has shop (got 'shp')" in capsys.readouterr().err


def test_show_prints_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.yaml"
    path.write_text(
        "clusters: {a: {lines: {x: {to: 'http://h', via: 'socks5://bob:geheim@p:1'}}, probes: {http: {headers: {A: '${env:S}'}}}}}\n"
        "agents: {x: {token: '${env:S}'}}\ncenter: {token: sesame}\n"
    )
    monkeypatch.setenv("S", "s3cret")

    for output in ("table", "json"):
        assert main(["config", "show", str(path), "-o", output]) == 0
    printed = capsys.readouterr()

    assert not [secret for secret in ("geheim", "s3cret", "sesame") if secret in printed.out + printed.err]


def test_the_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["properties"]["clusters"]
    assert "yaml-language-server" in document["$comment"]


def test_a_bootstrap_of_envoy_is_known_by_its_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "envoy.yaml"
    path.write_text("node: {id: n}\nstatic_resources: {clusters: {name: c, load_assignment: {cluster_name: c}}}\n")

    assert main(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: good: an Envoy bootstrap: 0 listeners, 1 cluster, 0 endpoints\n"


def test_what_is_wrong_with_a_bootstrap_is_told_like_all_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "envoy.yaml"
    path.write_text("static_resources:\n  clusters:\n  - {name: c, lb_polcy: RANDOM}\n")

    assert main(["config", "check", str(path)]) == 2
    said = f"reachline: {path}:3:15: static_resources.clusters[0].lb_polcy: unknown field; did you mean 'lb_policy'?\n"
    assert capsys.readouterr().err == said


_ENVOY = "is an Envoy bootstrap, not a center's document; `reachline proxy FILE` forwards by it"
_XRAY = (
    "is an Xray document, not a center's document; "
    "`reachline config check FILE` says what it holds, `reachline up --door FILE` watches its outbounds"
)
_OURS = (
    "is a center's document, not an Envoy bootstrap; "
    "`reachline up FILE` runs it, `reachline envoy bootstrap FILE` prints what follows it"
)


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        (["up"], "static_resources: {}\nadmin: {}\n", _ENVOY),
        (["center"], "node: {id: n}\n", _ENVOY),
        (["config", "show"], "node: {id: n}\n", _ENVOY),
        (["envoy", "bootstrap"], '{"outbounds": [{"protocol": "freedom"}]} // Xray', _XRAY),
        (["proxy"], GOOD, _OURS),
        (["explain", "--request", "GET http://a/", "-f"], GOOD, _OURS),
    ],
)
def test_a_document_of_another_kind_is_told_as_that_in_one_line(
    command: list[str], text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "document"
    path.write_text(text)

    assert main([*command, str(path)]) == 2
    assert capsys.readouterr().err == f"reachline: {path}: {said}\n"


@pytest.mark.parametrize("text", ["clusters: {}\nnode: {id: n}\n", "stories: 1\n", "- a\n", "a: [\n"])
def test_a_document_that_may_be_the_wanted_kind_is_told_what_is_wrong_with_it(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "document"
    path.write_text(text)

    assert main(["up", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"reachline: {path}:" in said
    assert ", not " not in said


@pytest.mark.parametrize("group", ["config", "envoy", "grpc"])
def test_what_a_group_says_of_its_commands_is_whole(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([group, "--help"])

    commands = capsys.readouterr().out.partition("Commands:")[2]
    assert commands
    assert "..." not in commands


def test_a_door_can_be_named_and_must_be_one(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", good, "--door", "envoy"]) == 2
    assert "clusters: unknown field" in capsys.readouterr().err
    assert main(["config", "check", good, "--door", "back"]) == 2
    assert "is no kind of document" in capsys.readouterr().err
