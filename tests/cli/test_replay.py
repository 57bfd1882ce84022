"""`reachline replay`: its numbers, its exit codes, and one line for what it cannot read."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from reachline.cli.main import main
from reachline.store.journal import Journal
from reachline.store.segment import listed
from reachline.testing.storm import Tick, act, begin, perform


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    directory = tmp_path / "journal"
    opened = Journal.open(directory, segment=60)
    ledgers = begin(opened.epoch)
    opened.follow(ledgers)
    for number in range(200):
        done = act(3, number, number * 500)
        if isinstance(done, Tick):
            opened.append(perform(ledgers, done))
        else:
            opened.append(done)
            perform(ledgers, done)
    opened.close()
    return directory


def flip(path: Path) -> int:
    """One bit of one sample; its sequence number."""
    connection = sqlite3.connect(path)
    seq, body = connection.execute("SELECT seq, body FROM records WHERE kind = 2 ORDER BY seq DESC").fetchone()
    connection.execute("UPDATE records SET body = ? WHERE seq = ?", (body[:-1] + bytes([body[-1] ^ 1]), seq))
    connection.commit()
    connection.close()
    return int(seq)


def test_an_untouched_journal_is_equal(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(journal), "-o", "json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["equal"], told["difference"], told["segments"]) == (True, None, len(listed(journal)))
    assert (told["ticks"] > 40, told["decisions"] > 20, told["readings"] > 200) == (True, True, True)


def test_the_table_says_it_for_people(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(journal)]) == 0

    told = capsys.readouterr().out
    assert [word for word in ("segments", "line reports", "ticks", "decisions", "all equal") if word not in told] == []


@pytest.mark.parametrize("output", ["table", "json"])
def test_one_flipped_sample_is_exit_1_and_named(journal: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    path = listed(journal)[1]
    seq = flip(path)

    assert main(["replay", str(journal), "-o", output]) == 1

    out, err = capsys.readouterr()
    assert err == f"reachline: {path.name}: evidence of seq {seq} was altered: its seal does not match\n"
    if output == "json":
        told = json.loads(out)["difference"]
        assert (told["segment"], told["seq"], told["field"]) == (path.name, seq, "evidence")


def test_one_segment_can_be_asked_for_alone(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(listed(journal)[0])

    assert main(["replay", str(listed(journal)[1]), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["segments"] == 1


@pytest.mark.parametrize("name", ["nothing", "empty", "file"])
def test_what_is_no_journal_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("not a journal\n" * 200)

    assert main(["replay", str(tmp_path / name)]) == 2

    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert str(tmp_path / name) in err
