"""What a newcomer meets: README's commands exist, set-up refuses what cannot work in one line, links lead somewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from reachline.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
TARGETS = [
    "run",
    "test",
    "check",
    "fmt",
    "lint",
    "types",
    "imports",
    "sim",
    "simulate",
    "e2e",
    "fuzz",
    "docs",
    "bench",
    "bench-probe",
    "bench-decide",
    "bench-decisions",
    "bench-journal",
    "bench-sdk",
    "bench-retries",
    "bench-xds",
    "bench-door",
    "bench-people",
    "help",
    "unit",
    "lock",
    "wheel",
    "clean",
    "console",
    "envoy",
]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # MAKEFLAGS of a surrounding make would turn on its own options.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", TARGETS)
def test_make_knows_the_target(target: str) -> None:
    done = make("--dry-run", "VENV=/nonexistent/venv", target)

    assert done.returncode == 0, done.stderr


def test_help_lists_the_two_commands_first() -> None:
    assert [line.split()[:2] for line in make("help").stdout.splitlines()[1:3]] == [["make", "run"], ["make", "test"]]


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci/run"

    assert "make test" in script.read_text()
    assert os.access(script, os.X_OK)


def test_a_benchmark_that_is_not_built_says_so_by_name() -> None:
    unbuilt = [name for name in ("xds", "door", "people") if not (ROOT / f"benchmarks/{name}.py").exists()]
    recipe = make("--dry-run", *(f"bench-{name}" for name in unbuilt)).stdout

    assert all(f"bench-{name}: not built yet" in recipe for name in unbuilt)


def commands_of(page: Path) -> list[list[str]]:
    """The words of every command in the page's code blocks and code spans."""
    text = page.read_text()
    blocks = [
        body for kind, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if kind == "sh"
    ]
    spans = re.findall(r"`((?:make|reachline) [^`]+)`", text)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [
        line.split() for line in [*lines, *spans] if line.startswith(("make ", "reachline ", ".venv/bin/reachline "))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_exists(page: Path) -> None:
    for program, first, *_ in commands_of(page):
        if program == "make":
            assert first.rstrip(",") in TARGETS
        elif not first.startswith(("-", "COMMAND")):
            assert first in COMMANDS


def test_the_readme_begins_with_the_two_commands() -> None:
    assert [words[:2] for words in commands_of(ROOT / "README.md")[:2]] == [["make", "run"], ["make", "test"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_index_of_the_documentation_leads_to_every_page() -> None:
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([^)#\s]+)", (docs / "index.md").read_text()))

    assert {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - linked == {"index.md"}


def stand_in(directory: Path, version: str) -> Path:
    """A program that answers like a Python of that version."""
    path = directory / "python"
    major, minor = version.split(".")
    code = 0 if (int(major), int(minor)) >= (3, 11) else 1
    path.write_text(f"#!/bin/sh\ncase $2 in *print*) echo {version} ;; *exit*) exit {code} ;; *) exit 1 ;; esac\n")
    path.chmod(0o755)
    return path


def test_an_old_python_is_refused_in_one_line(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "3.9")

    done = subprocess.run([ROOT / "tools/venv", python, tmp_path / "v"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr == f"reachline: Python 3.11 or newer is needed, {python} is 3.9 (make PYTHON=… names another)\n"
    assert not (tmp_path / "v").exists()


def test_a_python_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "tools/venv", "python3.99", tmp_path / "v"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert done.stderr.startswith("reachline: python3.99 is not installed; Python 3.11 or newer is needed")
    assert done.stderr.count("\n") == 1


def test_parts_are_passed_over_where_there_is_no_debian(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to(shutil.which("sh") or "/bin/sh")

    done = subprocess.run(
        [ROOT / "tools/debian-parts", ROOT / "requirements/debian.txt"],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_parts_that_are_installed_are_not_asked_for_again(tmp_path: Path) -> None:
    query = tmp_path / "dpkg-query"
    query.write_text("#!/bin/sh\necho 'install ok installed'\n")
    query.chmod(0o755)
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    apt.chmod(0o755)

    done = subprocess.run(
        [ROOT / "tools/debian-parts", ROOT / "requirements/debian.txt"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, "")
    assert not (tmp_path / "asked").exists()
