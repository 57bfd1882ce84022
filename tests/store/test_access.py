"""People and tokens in one file: who is let in as what, until when, and nothing readable in it but hashes."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reachline.errors import ConfigError
from reachline.store import audit
from reachline.store.access import ROLES, Access, Who, may
from reachline.store.audit import Audit, Deed

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
PASSWORD = "correct horse battery"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "access.json"


@pytest.fixture
def access(file: Path) -> Access:
    return Access(file)


def test_a_person_logs_in_by_its_password_alone(access: Access):
    access.set_person("ann", "operator", PASSWORD, now=NOW)

    assert access.person("ann", PASSWORD) == Who("ann", "operator")
    assert access.person("ann", "wrong horse battery") is None
    assert access.person("bob", PASSWORD) is None


def test_a_token_lets_in_until_its_time(access: Access):
    text = access.new_token("ci", "client", life=timedelta(hours=1), by="ann", now=NOW)

    assert access.bearer(text, NOW) == Who("ci", "client")
    assert access.bearer(text, NOW + timedelta(hours=1)) is None


@pytest.mark.parametrize(
    "forge", [lambda text: text[:-1], lambda text: text.replace("rlt1", "rlt2"), lambda _: "", lambda _: "rlt1--"]
)
def test_what_is_nobodys_token_lets_nobody_in(access: Access, forge):
    text = access.new_token("ci", "client", life=timedelta(hours=1), by="ann", now=NOW)

    assert access.bearer(forge(text), NOW) is None


def test_the_file_is_its_owners_and_tells_no_secret(access: Access, file: Path):
    access.set_person("ann", "admin", PASSWORD, now=NOW)
    text = access.new_token("ci", "client", life=timedelta(hours=1), by="ann", now=NOW)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PASSWORD not in file.read_text()
    assert text.rpartition("-")[2] not in file.read_text()
    assert json.loads(file.read_text())["people"]["ann"]["hash"].startswith("$argon2id$")


def test_who_is_removed_is_out_with_all_its_tokens(access: Access):
    access.set_person("ann", "admin", PASSWORD, now=NOW)
    text = access.new_token("ann", "client", life=timedelta(hours=1), by="ann", now=NOW)

    assert access.remove("ann") == 2
    assert access.person("ann", PASSWORD) is None
    assert access.bearer(text, NOW) is None
    assert access.remove("ann") == 0


def test_what_another_process_changes_is_in_force_at_once(access: Access, file: Path):
    text = Access(file).new_token("ci", "viewer", life=timedelta(hours=1), by="ann", now=NOW)

    assert access.bearer(text, NOW) == Who("ci", "viewer")


@pytest.mark.parametrize("password", ["", "short", "x" * 11, "x" * 1_001])
def test_a_password_that_is_too_short_or_long_is_refused(access: Access, password: str):
    with pytest.raises(ConfigError, match="12 to 1000 characters"):
        access.set_person("ann", "viewer", password, now=NOW)


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * 64, "a\n"])
def test_a_name_that_cannot_be_is_refused(access: Access, name: str):
    with pytest.raises(ConfigError, match="is no name"):
        access.set_person(name, "viewer", PASSWORD, now=NOW)
    with pytest.raises(ConfigError, match="is no name"):
        access.new_token(name, "viewer", life=timedelta(1), by="ann", now=NOW)


def test_a_damaged_file_is_refused_at_the_start_and_passed_over_later(access: Access, file: Path):
    text = access.new_token("ci", "viewer", life=timedelta(hours=1), by="ann", now=NOW)
    assert access.bearer(text, NOW)

    file.write_text("{")

    assert access.bearer(text, NOW) == Who("ci", "viewer")
    with pytest.raises(ConfigError, match="is damaged"):
        Access(file)


def test_each_role_may_what_those_before_it_may():
    for at, role in enumerate(ROLES):
        assert [may(role, needed) for needed in ROLES] == [place <= at for place in range(len(ROLES))]


def test_deeds_are_kept_in_order_over_a_line_half_written(tmp_path: Path):
    kept = Audit(tmp_path / "audit.jsonl")
    deeds = [Deed(at=NOW, who="ann", address="::1", what=f"POST /{number}", status=200) for number in range(3)]
    kept.note(deeds[0])
    with (tmp_path / "audit.jsonl").open("a") as file:
        file.write('{"at": "2026-\n')
    kept.note(deeds[1])
    kept.note(deeds[2])

    assert kept.newest(2) == [deeds[2], deeds[1]]
    assert kept.newest(10) == [deeds[2], deeds[1], deeds[0]]


def test_a_deed_that_cannot_be_written_is_counted(tmp_path: Path):
    kept = Audit(tmp_path / "none" / "audit.jsonl")

    kept.note(Deed(at=NOW, who="ann", address="", what="POST /", status=200))

    assert (kept.failed, kept.newest(1)) == (1, [])


def test_what_was_refused_pushes_out_nothing_that_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit, "_MOST", 1_000)
    kept = Audit(tmp_path / "audit.jsonl")
    done = Deed(at=NOW, who="ann", address="::1", what="POST /api/v1/orders", status=200)
    kept.note(done)

    for number in range(100):
        later = NOW + timedelta(seconds=number + 1)
        kept.note(Deed(at=later, who="", address="::2", what="POST /x", status=401))

    assert kept.newest(1_000)[-1] == done
    assert kept.newest(1)[0].at == NOW + timedelta(seconds=100)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 5_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_what_root_changes_stays_its_owners(tmp_path: Path):
    home = tmp_path / "etc"
    home.mkdir()
    os.chown(home, 12_345, 12_345)

    Access(home / "access.json").set_person("ann", "admin", PASSWORD, now=NOW)

    assert {file.stat().st_uid for file in home.iterdir()} == {12_345}


def test_a_lock_that_is_a_link_elsewhere_is_not_followed(access: Access, file: Path, tmp_path: Path):
    (tmp_path / "access.json.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic links"):
        access.set_person("ann", "admin", PASSWORD, now=NOW)

    assert not (tmp_path / "elsewhere").exists()
