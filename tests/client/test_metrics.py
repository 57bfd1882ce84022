from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

import reachline
from reachline.client import Client
from reachline.testing.door import pair, serving


@pytest.fixture
def client() -> Iterator[Client]:
    with serving(pair(60, 40)) as peer, reachline.connect_sync(peer.url, clusters=["payments"]) as made:
        yield made


def test_calls_are_counted_by_how_they_ended(client: Client) -> None:
    payments = client.cluster("payments")
    for code in (200, 200, 503):
        with payments.attempt() as call:
            call.status(code)

    found = client.metrics()

    assert 'reachline_client_calls_total{cluster="payments",outcome="ok"} 2\n' in found
    assert 'reachline_client_calls_total{cluster="payments",outcome="errors"} 1\n' in found
    assert 'reachline_client_lines{cluster="payments"} 2\n' in found
    assert "reachline_client_running 1\n" in found


def test_every_family_has_its_help_and_type_once_and_before_its_samples(client: Client) -> None:
    rows = client.metrics().splitlines()

    families = [row.split()[2] for row in rows if row.startswith("# TYPE")]
    assert len(set(families)) == len(families)
    seen: list[str] = []
    for row in rows:
        name = row.split()[2] if row.startswith("#") else re.split(r"[{ ]", row)[0]
        if not seen or seen[-1] != name:
            seen.append(name)
    assert seen == families


def test_promtool_finds_nothing_to_complain_of(client: Client) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")

    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=client.metrics(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
