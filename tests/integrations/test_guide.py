"""The guide's own lines, run as they stand against real peers; only addresses, and a database that is not there, are the test's."""

from __future__ import annotations

import re
import sqlite3
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reachline.testing import parts
from reachline.testing.door import Peer, document, line, serving

CENTER = "http://127.0.0.1:7680"


@pytest.fixture
def peer() -> Iterator[Peer]:
    with serving() as made:
        # The peer is its own target: it answers what it does not know with 404, which is an answer.
        made.door.publish(document(line("a", 100, address=made.url)))
        yield made


def blocks(root: Path) -> dict[str, list[str]]:
    """Python by the heading it stands under."""
    page = (root / "docs/guide/integrations.md").read_text()
    sections = re.split(r"^#+ (.+)$", page, flags=re.MULTILINE)[1:]
    return {
        heading: re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for heading, text in zip(sections[::2], sections[1::2], strict=True)
    }


def run(root: Path, peer: Peer, heading: str, replace: dict[str, str] | None = None) -> dict[str, Any]:
    """What the first block and those under the heading leave behind; the client is open still."""
    found = blocks(root)
    names: dict[str, Any] = {"__name__": "guide"}
    for code in [*found["Clients by lines"], *found[heading]]:
        for old, new in ({CENTER: peer.url} | (replace or {})).items():
            code = code.replace(old, new)
        exec(compile(code, heading, "exec"), names)
    return names


@pytest.mark.parametrize("heading", ["httpx2 and httpx", "requests", "urllib3", "aiohttp"])
def test_each_client_makes_its_calls_through_a_line(
    root: Path, peer: Peer, heading: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = run(root, peer, heading)["client"]

    calls = client.stats().clusters["payments"].calls
    client.close()

    text = "\n".join(blocks(root)[heading])
    assert calls.ok == len(re.findall(r"http://payments/pay", text))
    assert "404" in capsys.readouterr().out


def test_every_block_is_of_a_section_that_is_run(root: Path) -> None:
    known = {"httpx2 and httpx", "requests", "urllib3", "aiohttp", "gRPC", "SQLAlchemy", "redis", "What all of them do"}

    assert {heading for heading, codes in blocks(root).items() if codes} == known | {"Clients by lines"}


def test_grpc_stubs_are_made_of_a_channel_by_lines(root: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")

    names = run(root, peer, "gRPC")

    names["client"].close()
    assert callable(names["get"])


def test_a_pool_of_sqlalchemy_connects_to_lines(root: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def connect(**settings: Any) -> sqlite3.Connection:
        asked.append(settings)
        return sqlite3.connect(":memory:", check_same_thread=False)

    stand_in = types.ModuleType("psycopg")
    stand_in.connect, stand_in.Connection = connect, sqlite3.Connection  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "psycopg", stand_in)

    names = run(root, peer, "SQLAlchemy", {"postgresql+psycopg://": "sqlite://"})
    with names["engine"].connect() as connection:
        connection.exec_driver_sql("select 1")

    names["engine"].dispose()
    names["client"].close()
    assert [(each["host"], each["port"]) for each in asked] == [("127.0.0.1", int(peer.url.rpartition(":")[2]))]


@pytest.mark.real
def test_redis_connects_to_lines(root: Path, peer: Peer, tmp_path: Path) -> None:
    with parts.redis(tmp_path) as server:
        peer.door.publish(document(line("a", 100, address=f"tcp://127.0.0.1:{server.port}"), version="1.2"))
        names = run(root, peer, "redis")

        assert names["store"].ping()

        names["store"].connection_pool.disconnect()
        calls = names["client"].stats().clusters["payments"].calls
        names["client"].close()
        assert calls.ok >= 1


def test_metrics_are_printed(root: Path, peer: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    run(root, peer, "What all of them do")["client"].close()

    assert "reachline_client_calls_total" in capsys.readouterr().out
