"""Which bootstraps are taken: a real Envoy and the door say the same, but for one list of what we refuse by name."""

from __future__ import annotations

import copy
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.differential.bootstraps import LAXER, REFUSED, STRICTER, TAKEN, bootstrap, cluster
from tests.differential.routed import Plain
from tests.wanted import shows

from reachline.doors.envoy.whole import read
from reachline.errors import ConfigError

ALL = TAKEN | REFUSED | STRICTER | LAXER


def text_of(document: Plain | str) -> str:
    return document if isinstance(document, str) else json.dumps(document)


def why_not(document: Plain | str) -> str:
    """What the door says against a document; empty: nothing."""
    try:
        read(text_of(document))
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", list(ALL))
def test_the_door_takes_what_it_says_it_takes(name: str) -> None:
    said = why_not(ALL[name])

    assert bool(said) is (name in REFUSED or name in STRICTER), said


def is_plain(document: Plain | str) -> bool:
    """Whether it holds listeners and clusters alone."""
    return isinstance(document, dict) and set(document) == {"static_resources"}


def together(documents: list[Plain]) -> Plain:
    """All of them as one, so that one Envoy says yes to all."""
    found = bootstrap()["static_resources"]
    for number, document in enumerate(copy.deepcopy(documents)):
        resources = document["static_resources"]
        for at, each in enumerate(resources["listeners"]):
            socket = each["address"].get("socket_address")
            if socket is not None:
                socket["port_value"] = 0
            found["listeners"].append(each | {"name": f"{number}.{at}"})
        found["clusters"] += [
            each | {"name": f"{each['name']}{number}.{at}"}
            for at, each in enumerate(resources["clusters"])
            if each != cluster()
        ]
    return {"static_resources": found}


@shows("stricter")
@shows("laxer")
@pytest.mark.real
def test_envoy_says_the_same(envoy_binary: Path, tmp_path: Path) -> None:
    def asked(item: tuple[int, Plain | str]) -> str:
        path = tmp_path / f"{item[0]}.yaml"
        path.write_text(text_of(item[1]))
        command: list[str | Path] = [
            envoy_binary,
            "--mode",
            "validate",
            "--concurrency",
            "1",
            "--use-dynamic-base-id",
            "-l",
            "critical",
            "-c",
            path,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return "" if done.returncode == 0 else (done.stderr or done.stdout).strip() or "refused without a word"

    alone = {name: each for name, each in ALL.items() if name in REFUSED | LAXER or not is_plain(each)}
    rest = {name: each for name, each in ALL.items() if name not in alone}
    alone["all that is taken"] = together([each for each in rest.values() if isinstance(each, dict)])
    with ThreadPoolExecutor(2) as pool:
        said = dict(zip(alone, pool.map(asked, enumerate(alone.values())), strict=True))

    wrong = [name for name, reason in said.items() if bool(reason) is not (name in REFUSED or name in LAXER)]
    assert not wrong, "\n".join(f"{name}: {said[name][-300:] or 'taken'}" for name in wrong)


def test_the_documents_are_a_hundred_and_more() -> None:
    assert len(ALL) == len(TAKEN) + len(REFUSED) + len(STRICTER) + len(LAXER) >= 100
