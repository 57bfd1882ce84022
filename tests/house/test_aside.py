"""`tools/aside` is the command it runs, behind everything else: its exit code, its output, and a signal ends both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

SAYS = "import os, sys; print(os.nice(0), os.getsid(0) != int(sys.argv[1])); sys.exit(7)"
WAITS = "import time; print('here', flush=True); time.sleep(60)"


def aside(root: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, root / "tools" / "aside", *command], stdout=subprocess.PIPE, text=True)


def test_the_command_runs_last_in_a_session_of_its_own_and_its_exit_code_is_told(root: Path) -> None:
    running = aside(root, sys.executable, "-c", SAYS, str(os.getsid(0)))

    said, _ = running.communicate(timeout=60)

    assert said.split() == ["19", "True"]
    assert running.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_too(root: Path, number: signal.Signals) -> None:
    running = aside(root, sys.executable, "-c", WAITS)
    out: IO[str] | None = running.stdout
    assert out is not None
    assert out.readline() == "here\n"

    running.send_signal(number)
    running.communicate(timeout=60)  # ends only once the command has closed its side

    assert running.returncode != 0


def test_without_a_command_it_says_how_to_use_it(root: Path) -> None:
    done = subprocess.run([sys.executable, root / "tools" / "aside"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "tools/aside COMMAND" in done.stderr
