"""The guide's own lines, run as they stand against a real peer; only the address and the wait are the test's."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reachline.testing.door import Peer, document, line, serving

ADDRESS = "http://127.0.0.1:7680"


@pytest.fixture
def peer() -> Iterator[Peer]:
    with serving() as made:
        # The peer is its own target: it answers what it does not know with 404, which is an answer.
        made.door.publish(document(line("a", 100, address=made.url)))
        yield made


def blocks(root: Path, kind: str) -> list[str]:
    page = (root / "docs/guide/sdk.md").read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def run(code: str, peer: Peer, root: Path, directory: Path) -> str:
    """What it prints; nothing may go wrong."""
    path = os.pathsep.join(filter(None, [str(root / "src"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code.replace(ADDRESS, peer.url)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_ten_lines_lead_from_nothing_to_a_counted_call(peer: Peer, root: Path, tmp_path: Path) -> None:
    first = blocks(root, "python")[0]
    assert len([row for row in first.splitlines() if row]) <= 10

    run(first, peer, root, tmp_path)

    assert peer.door.outcomes() == {"payments/a ok": 1}


def test_the_same_lines_without_a_center_leave_a_dead_endpoint(peer: Peer, root: Path, tmp_path: Path) -> None:
    first, own, *_ = blocks(root, "python")
    client = next(row for row in first.splitlines() if row.startswith("client = "))
    with socket.create_server(("127.0.0.1", 0)) as held:
        dead = f"http://127.0.0.1:{held.getsockname()[1]}"
    own = own.replace("http://10.0.0.1:8080", dead).replace("http://10.0.0.2:8080", peer.url)
    assert dead in own
    assert peer.url in own

    told = run(
        "\n".join([first.replace(client, own), *["print(client.stats().clusters['payments'].calls.ok)"]]),
        peer,
        root,
        tmp_path,
    )

    assert told.splitlines() == [f"404 payments/{peer.url.removeprefix('http://')}", "1"]


def test_the_asynchronous_twin_runs_and_keeps_its_cache(peer: Peer, root: Path, tmp_path: Path) -> None:
    run(blocks(root, "python")[3], peer, root, tmp_path)

    assert peer.door.outcomes() == {"payments/a ok": 1}
    assert (tmp_path / "lines.json").exists()


def test_calls_are_corrected_and_reported_as_told(peer: Peer, root: Path, tmp_path: Path) -> None:
    first, _, attempt, _, corrected, reported, called, looped, *_ = blocks(root, "python")

    run("\n".join([first, attempt, corrected, reported, called, looped]), peer, root, tmp_path)

    # The transport's, the attempt's, the one corrected last to ok, the one reported well, and the two that might be made again.
    assert peer.door.outcomes() == {"payments/a ok": 6, "payments/a failed": 1}


def test_every_setting_is_told_with_its_default(root: Path) -> None:
    from reachline.client.options import Settings

    told = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", (root / "docs/guide/sdk.md").read_text(), re.MULTILINE)

    assert told == list(Settings.__annotations__)


def test_curl_speaks_the_same_door(peer: Peer, tmp_path: Path, root: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    commands = blocks(root, "sh")[1].replace(ADDRESS, peer.url).replace("wait=30", "wait=0")

    done = subprocess.run(
        ["sh", "-e", "-c", commands], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0
    assert '"version": "1.1"' in done.stdout
    assert peer.door.posts[0]["client"] == "checkout-7"
    assert peer.door.outcomes() == {"payments/a ok": 97, "payments/a failed": 2, "payments/a late": 1}
