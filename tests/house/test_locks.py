"""What is installed is pinned by hash and says nothing of where it comes from; nothing committed names a machine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted(path for path in (ROOT / "requirements").glob("*.txt") if not path.name.startswith("debian"))


def pins(path: Path) -> dict[str, str]:
    """Distribution and the version it is pinned to."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", path.read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_pin_has_hashes_and_no_address(path: Path) -> None:
    text = path.read_text()
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n|^    #.*\n", "", text, flags=re.MULTILINE).strip())

    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert not re.search(r"://|index|find-links|@ ", text)


def test_there_is_a_lock_for_every_need() -> None:
    assert [path.name for path in LOCKS] == ["dev.txt", "docs.txt", "envoy.txt", "node.txt", "run.txt"]


def test_what_developers_run_is_what_users_run() -> None:
    run, dev = pins(ROOT / "requirements/run.txt"), pins(ROOT / "requirements/dev.txt")

    assert run.items() <= dev.items()


def test_the_lock_holds_what_the_project_asks_for(project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]
    asked = [re.split(r"[>=\[]", each)[0].lower() for name in ("cli", "agent", "center") for each in extras[name]]

    assert {name for name in asked if name != "reachline"} <= {
        name.lower() for name in pins(ROOT / "requirements/run.txt")
    }


def test_a_base_install_has_no_dependency(project: dict[str, Any]) -> None:
    assert project["project"]["dependencies"] == []
    assert set(project["project"]["optional-dependencies"]) == {
        "cli", "agent", "center", "proxy", "xds", "otel", "analytics", "k8s", "nats", "all",
    }  # fmt: skip


def test_front_end_libraries_are_pinned_without_an_address() -> None:
    lock = (ROOT / "package-lock.json").read_text()

    assert '"integrity": "sha512-' in lock
    assert "resolved" not in lock


def committed() -> list[Path]:
    """Text files under version control; empty in an unpacked source archive."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    suffixes = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".json", ".js", ".html", ".css", ".svg", ".sh", ""}
    return [path for each in done.stdout.split() if (path := ROOT / each).suffix in suffixes and path.is_file()]


def test_nothing_committed_names_a_machine_or_a_registry() -> None:
    place = re.compile(
        r"""(^|[\s"'=(])/(work|root|farm|home)/|https?://[^\s"']+/(simple|packages)/|--(extra-)?index-url"""
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in committed()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if place.search(line)
    ]

    assert found == []


def test_no_third_party_code_is_committed() -> None:
    assert [path for path in committed() if {"vendor", "node_modules"} & set(path.relative_to(ROOT).parts)] == []
    assert [path for path in committed() if path.stat().st_size > 500_000] == []
