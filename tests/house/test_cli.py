"""The command line's frame: light help, one line an error, the right exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reachline import __version__
from reachline.cli.main import COMMANDS, main, report
from reachline.cli.render import Column, Output, milliseconds, percent, show, write_json
from reachline.errors import ConfigError, JournalError, Problem, RemoteProtocolError

HEAVY = {"apsw", "asyncio", "fastapi", "grpc", "msgspec", "pydantic", "rich", "textual", "uvicorn", "yaml"}


def run(*arguments: str, prelude: str = "") -> subprocess.CompletedProcess[str]:
    """The command in a fresh interpreter, after `prelude`."""
    program = f"{prelude}\nimport sys\nfrom reachline.cli.main import main\nsys.exit(main({list(arguments)!r}))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


def test_help_names_every_command_and_imports_no_heavy_library() -> None:
    tell = "import atexit, json, sys\natexit.register(lambda: print(json.dumps(sorted(sys.modules))))"

    done = run("--help", prelude=tell)
    *text, modules = done.stdout.splitlines()

    assert done.returncode == 0
    assert [line.split()[0] for line in text[text.index("Commands:") + 1 :] if line.startswith("  ")][
        : len(COMMANDS)
    ] == list(COMMANDS)
    loaded = set(json.loads(modules))
    assert not HEAVY & loaded
    assert not {entry.module for entry in COMMANDS.values()} & loaded


def test_every_command_has_help_that_comes_from_its_module_and_fits_the_reference(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (root / "docs/reference/cli.md").read_text()
    sections = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    for name in COMMANDS:
        code, text = main([name, "--help"]), capsys.readouterr().out
        told = re.findall(r"`(-{1,2}[a-z-]+)", sections[name])

        assert code == 0
        assert text.startswith(f"Usage: reachline {name}")
        assert not {option for option in told if option not in text}, f"{name}: options of the reference"


def test_version_is_told_without_any_extra() -> None:
    done = run("--version", prelude="import sys; sys.modules['typer'] = None")

    assert (done.returncode, done.stdout) == (0, f"reachline {__version__}\n")


@pytest.mark.parametrize(
    ("command", "extra"), [("status", "cli"), ("agent", "agent"), ("up", "center"), ("--help", "cli")]
)
def test_a_base_install_says_in_one_line_what_to_install(command: str, extra: str) -> None:
    done = run(command, prelude="import sys; sys.modules['typer'] = None")

    assert done.returncode == 2
    assert done.stderr == f"reachline: this command needs typer: pip install 'reachline[{extra}]'\n"


LACKING = {"at its import": "import apsw\ndef command(): pass", "when it runs": "def command():\n    import apsw.ext"}


@pytest.mark.parametrize("when", LACKING)
def test_a_missing_extra_is_named_in_one_line(when: str, tmp_path: Path) -> None:
    (tmp_path / "lacking.py").write_text(LACKING[when])
    prelude = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.modules['apsw'] = None
import reachline.cli.main as m; m.COMMANDS = {{'dig': m.Entry('lacking', 'Dig.', 'center')}}"""

    done = run("dig", prelude=prelude)

    assert (done.returncode, done.stderr) == (
        2,
        "reachline: this command needs apsw: pip install 'reachline[center]'\n",
    )


def test_an_unknown_command_is_usage_with_a_suggestion() -> None:
    done = run("statsu")

    assert done.returncode == 2
    assert "No such command 'statsu'. Did you mean 'status'?" in done.stderr
    assert "Traceback" not in done.stderr


PROBLEMS = (
    Problem(
        place="a.yaml:3:7",
        path="clusters.x.lines.a.to",
        value="ftp://a",
        rule="must be a URL of tcp, …",
        hint="did you mean",
    ),
    Problem(place="a.yaml:9:1", path="agnets", value="", rule="unknown key", hint="did you mean 'agents'?"),
)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError(*PROBLEMS), 2, "".join(f"reachline: {problem}\n" for problem in PROBLEMS)),
        (RemoteProtocolError("answer: no version"), 1, "reachline: answer: no version\n"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.yaml"), 2, "reachline: a.yaml: No such file or directory\n"),
        (OSError(errno.EADDRINUSE, "address 127.0.0.1:7680 already in use"), 2, "reachline: address 127.0.0.1:7680 already in use\n"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), 1, "reachline: Connection refused\n"),
        (ExceptionGroup("tasks", [JournalError("torn"), ExceptionGroup("", [ConfigError(PROBLEMS[1])])]), 2,
         f"reachline: torn\nreachline: {PROBLEMS[1]}\n"),
        (BaseExceptionGroup("tasks", [KeyboardInterrupt()]), 130, ""),
        (ImportError("xDS needs the extra `xds`"), 2, "reachline: xDS needs the extra `xds`\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)  # fmt: skip
def test_a_known_error_is_one_line_a_problem_and_a_code(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error) == code
    assert capsys.readouterr().err == text


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        ExceptionGroup("tasks", [JournalError("torn"), KeyError("x")]),
        ImportError("cannot import name 'x'", name="reachline.core"),
    ],
)
def test_a_bug_of_ours_keeps_its_traceback(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(error) is None
    assert capsys.readouterr().err == ""


def test_an_interrupt_is_130_without_a_word() -> None:
    done = run(
        "status", prelude="import reachline.cli.table as t\ndef stop(*_): raise KeyboardInterrupt\nt.load = stop"
    )

    assert (done.returncode, done.stderr) == (130, "")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    program = "import sys; from reachline.cli.main import main; sys.exit(main(['--help']))"

    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writes, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(writes)

    assert done.returncode in {1, 120}
    assert b"Traceback" not in done.stderr


ROWS: list[dict[str, Any]] = [
    {"line": "payments/a", "p95": 0.0123},
    {"line": "payments/a-line-with-a-name-longer-than-eighty-characters-" + "x" * 60, "p95": None},
]
COLUMNS: list[Column[dict[str, Any]]] = [
    Column(title="LINE", cell=lambda row: str(row["line"])),
    Column(title="P95", cell=lambda row: milliseconds(row["p95"]), align="right"),
]


def test_a_table_without_a_terminal_is_plain_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    show(Output.TABLE, ROWS, COLUMNS, document=ROWS)
    heading, *lines = capsys.readouterr().out.splitlines()

    assert heading.split() == ["LINE", "P95"]
    assert [line.split() for line in lines] == [["payments/a", "12.3", "ms"], [ROWS[1]["line"], "–"]]
    assert "\x1b" not in "".join(lines)


def test_json_is_the_document_itself(capsys: pytest.CaptureFixture[str]) -> None:
    show(Output.JSON, ROWS, COLUMNS, document=ROWS)
    assert json.loads(capsys.readouterr().out) == ROWS

    write_json({"naïve": [1]}, compact=True)
    assert capsys.readouterr().out == '{"naïve": [1]}\n'


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.0, "0.00 ms"), (0.000_43, "0.43 ms"), (0.0123, "12.3 ms"), (0.35, "350 ms"), (1.2, "1.20 s")],
)
def test_durations_read_as_people_say_them(seconds: float | None, text: str) -> None:
    assert milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(None, "–"), (0.0, "0 %"), (0.004, "0.4 %"), (0.12, "12 %"), (1.0, "100 %")]
)
def test_shares_read_as_percent(ratio: float | None, text: str) -> None:
    assert percent(ratio) == text


def test_the_module_runs_as_a_program(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reachline", "--version"], cwd=root, capture_output=True, text=True, check=True
    )

    assert done.stdout == f"reachline {__version__}\n"


def test_main_runs_in_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"reachline {__version__}\n"
