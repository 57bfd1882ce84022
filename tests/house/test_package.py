"""The wheel: what a user installs, with the console inside and nothing compiled."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return next(directory.glob("*.whl"))


def test_the_wheel_is_pure_and_typed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert wheel.name.endswith("-py3-none-any.whl")
    assert "reachline/py.typed" in names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_the_wheel_carries_the_whole_console(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    console = ROOT / "src/reachline/console"
    there = {
        f"reachline/{path.relative_to(console.parent)}"
        for path in console.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert "reachline/console/index.html" in there
    assert there <= names


def test_a_base_install_runs_and_says_what_it_lacks(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    # -I -S: neither this environment's packages nor the source tree.
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from reachline.cli.main import main; sys.exit(main(['status']))"

    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (2, "reachline: this command needs typer: pip install 'reachline[cli]'\n")


def test_a_base_install_has_the_client(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import reachline; print(reachline.connect_sync.__name__)"
    )

    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "connect_sync\n", "")
