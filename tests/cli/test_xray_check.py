"""`reachline config check` of Xray's documents: told by their blocks, one file or a directory, one of a list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from reachline.cli.main import main

_GOOD: Final = """{ // comments, trailing commas, any case
  "Outbounds": [
    {"tag": "p1", "protocol": "socks", "settings": {"address": "127.0.0.1", "port": 1080}},
    {"tag": "p2", "protocol": "vless"}, {"tag": "block", "protocol": "blackhole"},
  ],
  "observatory": {"subjectSelector": ["p"]},
  "routing": {"balancers": [{"tag": "b", "selector": ["p"], "strategy": {"type": "leastPing"}}]},
}
"""


def _write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_document_of_xray_is_known_by_its_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _write(tmp_path / "xray.json", _GOOD)

    assert main(["config", "check", file]) == 0
    printed = capsys.readouterr()
    assert (
        printed.out
        == f"{file}: good: an Xray document: 3 outbounds (1 reached natively, 1 observed), 1 balancer, 0 rules, observatory\n"
    )
    assert "xray.json:4:31: outbounds[1].protocol: is selected and not observed: it speaks vless" in printed.err


def test_all_that_is_wrong_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _write(
        tmp_path / "xray.json", '{"outbounds": [{"protocol": "vles"}],\n "observatory": {"probeInterval": 10}}'
    )

    assert main(["config", "check", file]) == 2
    assert [line.partition("; ")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"reachline: {file}:1:29: outbounds[0].protocol: is no outbound protocol",
        f"reachline: {file}:2:35: observatory.probeInterval: must be a duration in quotes, with its unit",
    ]


def test_a_directory_is_read_as_xrays_confdir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(tmp_path / "01_base.json", '{"outbounds": [{"tag": "a", "protocol": "freedom"}]}')
    _write(tmp_path / "02_more.jsonc", '{"observatory": {"subjectSelector": ["a"]}} // b')
    _write(tmp_path / "notes.txt", "no document")

    assert main(["config", "check", str(tmp_path), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["outbounds"], found["observed"]) == (1, 1)


def test_an_empty_directory_holds_no_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", str(tmp_path)]) == 2
    assert "holds no document" in capsys.readouterr().err


def test_what_xray_would_read_and_we_do_not_is_refused_not_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path / "01.json", '{"outbounds": []}')
    _write(tmp_path / "02.yaml", "outbounds: []")

    assert main(["config", "check", str(tmp_path)]) == 2
    assert "02.yaml: is a part of the document for Xray, and only JSON is read here" in capsys.readouterr().err


def test_one_of_a_list_is_named_by_its_remarks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _write(
        tmp_path / "list.json", '[{"remarks": "home", "outbounds": []}, {"remarks": "work", "outbounds": []}]'
    )

    assert main(["config", "check", file]) == 2
    assert "there are 'home', 'work'" in capsys.readouterr().err
    assert main(["config", "check", file, "--remarks", "work"]) == 0


def test_strictly_both_observatories_are_taken_as_xray_takes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = {"observatory": {"subjectSelector": ["a"]}, "burstObservatory": {"subjectSelector": ["a"], "pingConfig": {}}}
    file = _write(tmp_path / "xray.json", json.dumps({"outbounds": [{"tag": "a", "protocol": "freedom"}], **both}))

    assert main(["config", "check", file]) == 2
    assert "excludes burstObservatory" in capsys.readouterr().err
    assert main(["config", "check", file, "--compat", "strict"]) == 0
    assert main(["config", "check", file, "--compat", "loose"]) == 2


def test_options_of_xrays_documents_are_refused_for_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _write(tmp_path / "a.yaml", "clusters: {a: {lines: ['tcp://h:1']}}")

    assert main(["config", "check", file, "--remarks", "x"]) == 2
    assert "are for documents of Xray" in capsys.readouterr().err


_CORE: Final = {"core": {"socks": "127.0.0.1:10808", "password": "hush"}}


def test_what_a_core_is_given_reaches_each_outbound_that_only_it_speaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own: dict[str, Any] = {
        "outbounds": [{"tag": "p-near", "protocol": "freedom"}, {"tag": "p-far", "protocol": "vless"}],
        "routing": {"domainStrategy": "AsIs", "rules": [{"network": "tcp", "outboundTag": "p-near"}]},
        "reachline": _CORE,
    }
    (tmp_path / "01.json").write_text(json.dumps(own))

    assert main(["config", "relay", str(tmp_path)]) == 0

    text = capsys.readouterr().out
    found = json.loads(text)
    (inbound,) = found["inbounds"]
    (account,) = inbound["settings"]["accounts"]
    assert (inbound["listen"], inbound["port"], inbound["protocol"]) == ("127.0.0.1", 10808, "socks")
    assert found["routing"]["domainStrategy"] == "AsIs"
    assert found["routing"]["rules"] == [
        {"inboundTag": [inbound["tag"]], "user": [account["user"]], "outboundTag": "p-far"},
        *own["routing"]["rules"],
    ]
    (tmp_path / "99.json").write_text(text)
    assert main(["config", "check", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"outbounds": [{"tag": "v", "protocol": "vless"}]}, "reachline.core: is needed"),
        ({"outbounds": [{"tag": "f", "protocol": "freedom"}], "reachline": _CORE}, "outbounds: need no core"),
    ],
)
def test_where_no_core_is_named_or_needed_it_is_said(
    document: dict[str, object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "relay", _write(tmp_path / "xray.json", json.dumps(document))]) == 2

    assert words in capsys.readouterr().err
