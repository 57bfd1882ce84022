"""The authority on disk: who may join by which token, once, until when; who is shut out; nothing readable by others."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reachline.errors import ConfigError, RemoteProtocolError
from reachline.store.authority import AGENT_LIFE, JOIN_LIFE, Authority, parsed
from reachline.wire.certificates import Identity, certified, make_request

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
LATER = timedelta(minutes=1)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "ca"


@pytest.fixture
def ca(home: Path) -> Authority:
    return Authority.create(home, "prod.example", now=NOW)


def joined(ca: Authority, text: str, name: str = "fra-1", now: datetime = NOW) -> Identity | None:
    return certified(ca.redeem(text, make_request(name).shown, name=name, now=now)).identity


def test_a_token_lets_in_one_agent_once(ca: Authority):
    text = ca.token(role="agent", name="fra-1", by="ann", now=NOW)

    assert joined(ca, text) == Identity("prod.example", "agent", "fra-1")
    with pytest.raises(PermissionError, match="used up"):
        joined(ca, text)


def test_a_token_for_several_lets_in_so_many_under_names_of_their_own(ca: Authority):
    text = ca.token(role="agent", uses=2, by="ann", now=NOW)

    assert joined(ca, text, "a") == Identity("prod.example", "agent", "a")
    with pytest.raises(PermissionError, match="a is a member already"):
        joined(ca, text, "a")
    assert joined(ca, text, "b") is not None
    with pytest.raises(PermissionError, match="used up"):
        joined(ca, text, "c")


@pytest.mark.parametrize("name", ["", "-a", "a/b", "x" * 64, "a\nb"])
def test_a_name_that_cannot_be_is_refused_and_the_token_stays(ca: Authority, name: str):
    text = ca.token(role="agent", by="ann", now=NOW)

    with pytest.raises(PermissionError, match="must say a name"):
        joined(ca, text, name)
    assert joined(ca, text, "a") is not None


def test_a_token_for_one_name_lets_in_no_other(ca: Authority):
    text = ca.token(role="agent", name="fra-1", by="ann", now=NOW)

    with pytest.raises(PermissionError, match="lets in fra-1, not ams-1"):
        joined(ca, text, "ams-1")


def test_a_token_ends_with_its_time(ca: Authority):
    text = ca.token(role="agent", by="ann", now=NOW)

    with pytest.raises(PermissionError, match="is over"):
        joined(ca, text, now=NOW + JOIN_LIFE)
    assert ca.tokens(NOW + JOIN_LIFE) == []


def test_a_request_that_is_none_does_not_use_up_the_token(ca: Authority):
    text = ca.token(role="agent", by="ann", now=NOW)

    with pytest.raises(RemoteProtocolError):
        ca.redeem(text, b"junk", name="a", now=NOW)
    assert joined(ca, text, "a") is not None


def test_a_token_of_another_secret_is_unknown(ca: Authority):
    text = ca.token(role="agent", by="ann", now=NOW)
    prefix, token_id, secret, print_ = text.split("-")

    for forged in (
        f"{prefix}-{token_id}-{'0' * len(secret)}-{print_}",
        f"{prefix}-00000000-{secret}-{print_}",
        "junk",
        "",
    ):
        with pytest.raises(PermissionError, match=r"nobody knows|not a token"):
            joined(ca, forged)


def test_no_file_tells_a_token_or_is_open_to_others(ca: Authority, home: Path):
    text = ca.token(role="agent", by="ann", now=NOW)

    assert not any(parsed(text).secret in file.read_text() for file in home.iterdir())
    for name in ("ca.key", "state.json"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_a_key_that_others_may_read_is_refused(ca: Authority, home: Path):
    (home / "ca.key").chmod(0o640)

    with pytest.raises(ConfigError, match="may be read by others; chmod 600"):
        Authority.open(home)


def test_an_authority_is_never_written_over(ca: Authority, home: Path):
    with pytest.raises(ConfigError, match="holds an authority already"):
        Authority.create(home, "prod.example", now=NOW)
    assert Authority.open(home).fingerprint == ca.fingerprint


def test_where_there_is_none_the_error_says_how_to_make_one(tmp_path: Path):
    with pytest.raises(ConfigError, match="holds no authority; make one with `reachline ca init`"):
        Authority.open(tmp_path)


@pytest.mark.parametrize("domain", ["", "Prod", "a b", "-a", "a/b"])
def test_a_domain_that_cannot_be_is_refused(tmp_path: Path, domain: str):
    with pytest.raises(ConfigError, match="is no trust domain"):
        Authority.create(tmp_path, domain, now=NOW)


def test_a_member_is_renewed_and_another_domains_is_not(ca: Authority):
    joined(ca, ca.token(role="agent", by="ann", now=NOW))
    who = Identity("prod.example", "agent", "fra-1")

    said = certified(ca.renew(who, make_request("x").shown, now=NOW + AGENT_LIFE / 2))

    assert (said.identity, said.ends) == (who, NOW + AGENT_LIFE * 1.5)
    with pytest.raises(PermissionError, match="not a member"):
        ca.renew(who._replace(domain="other.example"), make_request("x").shown, now=NOW)
    with pytest.raises(PermissionError, match="not a member"):
        ca.renew(who._replace(name="ams-1"), make_request("x").shown, now=NOW)


def test_who_was_shut_out_is_neither_renewed_nor_lets_itself_in_again(ca: Authority):
    joined(ca, ca.token(role="agent", by="ann", now=NOW))
    who = Identity("prod.example", "agent", "fra-1")
    again = ca.token(role="agent", name="fra-1", by="ann", now=NOW)

    assert ca.shut_out("agent", "fra-1").is_out

    with pytest.raises(PermissionError, match="was shut out"):
        ca.renew(who, make_request("x").shown, now=NOW)
    with pytest.raises(PermissionError, match="was shut out"):
        joined(ca, again)
    ca.shut_out("agent", "fra-1", is_out=False)
    assert joined(ca, again) == who


def test_a_token_made_for_a_members_name_lets_it_in_again(ca: Authority):
    for _ in range(2):
        assert joined(ca, ca.token(role="agent", name="fra-1", by="ann", now=NOW)) is not None
    assert [member.name for member in ca.members()] == ["fra-1"]


def test_each_certificate_leaves_a_line(ca: Authority, home: Path):
    joined(ca, ca.token(role="agent", by="ann", now=NOW))
    ca.issue("center", "c1", make_request("c1").shown, hosts=("c1.example",), life=LATER, by="ann", now=NOW)

    lines = [json.loads(line) for line in (home / "issued.jsonl").read_text().splitlines()]
    assert [line["identity"] for line in lines] == [
        "spiffe://prod.example/agent/fra-1",
        "spiffe://prod.example/center/c1",
    ]
    assert lines[0]["by"].endswith(" of ann")
    assert {member.name: member.serial for member in ca.members()} == {
        "fra-1": lines[0]["serial"],
        "c1": lines[1]["serial"],
    }


def test_who_join_at_the_same_time_are_all_remembered(ca: Authority, home: Path):
    text = ca.token(role="agent", uses=8, by="ann", now=NOW)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: joined(Authority.open(home), text, f"a{number}"), range(8)))

    assert None not in found
    assert len(ca.members()) == 8
    assert ca.tokens(NOW) == []


def test_a_damaged_state_is_told_by_its_file(ca: Authority, home: Path):
    (home / "state.json").write_text("{")

    with pytest.raises(ConfigError, match=r"state\.json: is damaged"):
        ca.members()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_what_root_changes_in_another_ones_directory_stays_that_ones(ca: Authority, home: Path):
    for path in (home, *home.iterdir()):
        os.chown(path, 12_345, 12_345)

    joined(ca, ca.token(role="agent", by="root", now=NOW))

    assert {file.stat().st_uid for file in home.iterdir()} == {12_345}
