"""Public is what is listed: in `__all__`, in the reference, in `--help`, alike."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import reachline
from reachline.cli.main import COMMANDS
from reachline.core import pick
from reachline.model import Kind
from reachline.talk import TABLE


def headings(page: Path, *, level: int = 2) -> list[str]:
    return re.findall(rf"^#{{{level}}} (.+)$", page.read_text(), re.MULTILINE)


def loaded_by(code: str) -> set[str]:
    """Modules in a fresh interpreter after `code`."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_reachline_imports_nothing_else() -> None:
    new = loaded_by("import reachline") - loaded_by("import __future__, importlib, typing")

    assert new == {"reachline"}


def test_the_client_needs_nothing_but_the_standard_library() -> None:
    new = {each.partition(".")[0] for each in loaded_by("import reachline; reachline.connect") - loaded_by("")}

    assert new - sys.stdlib_module_names == {"reachline"}


def test_public_names_are_those_of_the_reference(root: Path) -> None:
    page = (root / "docs/reference/python.md").read_text()

    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(reachline.__all__)
    assert all(hasattr(reachline, name) for name in reachline.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(reachline, "conect")


def test_every_command_is_in_the_reference(root: Path) -> None:
    assert headings(root / "docs/reference/cli.md") == list(COMMANDS)


def test_every_probe_kind_is_in_the_reference(root: Path) -> None:
    told = [heading for heading in headings(root / "docs/reference/probes.md") if heading in set(Kind)]

    assert set(Kind) == {*TABLE, Kind.PASSIVE}
    assert told == [kind.value for kind in Kind]


def test_every_probe_option_is_in_the_reference(root: Path) -> None:
    page = (root / "docs/reference/probes.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    for kind, probe in TABLE.items():
        said = re.search(r"Options: ([\w, ;\n]+)\.", probe.__doc__ or "")
        assert said, f"{kind.value}: its settings do not list their options"
        options = set(re.findall(r"\w+", said[1])) - {"with", "TLS", "also"}

        missing = {option for option in options if f"`{option}`" not in sections[kind.value]}
        assert not missing, f"{kind.value}: {missing}"


def test_every_picker_is_in_the_reference(root: Path) -> None:
    assert set(headings(root / "docs/reference/python.md", level=3)) == set(pick.TABLE)


def test_every_route_of_the_center_is_in_the_reference(root: Path) -> None:
    sources = sorted((root / "src/reachline/center/api").glob("*.py"))
    route = re.compile(r"""@(router|app)\.(get|post|put|delete|websocket)\(\s*"([^"]+)\"""")
    served = {
        (
            verb.upper().replace("WEBSOCKET", "WS"),
            ("/api/v1" if owner == "router" else "") + path.replace(":path}", "}"),
        )
        for source in sources
        for owner, verb, path in route.findall(source.read_text())
    }

    told = set(re.findall(r"^\| `([A-Z]+) (/\S*)` \|", (root / "docs/reference/http.md").read_text(), re.MULTILINE))

    assert served == told
