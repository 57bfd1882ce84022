"""A center with an authority, in whole processes: agents join by token, report as themselves alone, and go when they are shut out."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reachline.testing.parts import free_port, is_open
from reachline.testing.wait import eventually

pytestmark = pytest.mark.e2e

DOCUMENT = """
preset: quick_recovery
clusters: {{shop: {{lines: {{a: "tcp://127.0.0.1:{target}"}}}}}}
center: {{grpc: "127.0.0.1:{grpc}", http: "127.0.0.1:{http}", journal: {at}/journal, ca: {at}/ca}}
"""


class Site:
    """A center and whoever joins it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.ca = directory, directory / "ca"
        self.grpc, self.http = free_port(), free_port()
        self.target = free_port()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        text = DOCUMENT.format(grpc=self.grpc, http=self.http, target=self.target, at=directory)
        (directory / "reachline.yaml").write_text(text)

    def reachline(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "reachline", *words)
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=self.directory)

    def start(self, name: str, *words: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen((sys.executable, *words), stdout=log, stderr=log, cwd=self.directory)

    def start_center(self) -> None:
        self.start("center", "-m", "reachline", "center", "reachline.yaml")
        eventually(lambda: is_open(self.http) and is_open(self.grpc), within=60, what="the center")

    def join(self, name: str, *more: str) -> None:
        token = self.reachline("ca", "token", name, "--ca", "ca").stdout.strip()
        at = ("--join-at", f"https://127.0.0.1:{self.http}", "--state", f"state-{name}")
        self.start(name, *self.agent(name), "--join", token, *at, *more)

    def agent(self, name: str) -> tuple[str, ...]:
        return ("-m", "reachline", "agent", "--id", name, "--center", f"127.0.0.1:{self.grpc}")

    def get(self, path: str) -> Any:
        trusting = ssl.create_default_context(cafile=self.ca / "ca.pem")
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{self.http}{path}", timeout=30, context=trusting) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def agents(self) -> set[str]:
        """Who is attached."""
        rows = json.loads(self.get("/api/v1/agents") or '{"agents": []}')["agents"]
        return {row["agent"] for row in rows if row["state"] == "attached"}

    def said(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(30)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    assert made.reachline("ca", "init", "--domain", "demo.example", "--ca", "ca").returncode == 0
    made.start("target", "-m", "http.server", "--bind", "127.0.0.1", str(made.target))
    made.start_center()
    yield made
    made.stop()


def test_agents_join_by_token_and_their_votes_count(site: Site) -> None:
    for name in ("a1", "a2"):
        site.join(name)

    eventually(lambda: site.agents() == {"a1", "a2"}, within=60, what="both attached")
    eventually(lambda: '"health":"healthy"' in site.get("/api/v1/lines"), within=60, what="the line is judged")


def test_an_agents_certificate_does_not_report_as_another(site: Site) -> None:
    eventually(lambda: "a1" in site.agents(), within=60)
    own = site.directory / "state-a1"
    stolen = ("--ca", str(own / "ca.pem"), "--cert", str(own / "member.pem"), "--key", str(own / "member.pem"))

    refused = site.reachline(*site.agent("b")[2:], *stolen)

    assert refused.returncode == 2
    assert "its certificate is agent a1's, not agent b's" in refused.stderr
    assert 'reachline_frames_refused_total{reason="identity"} 1' in site.get("/metrics")
    assert "b" not in site.agents()


def test_a_state_directory_is_one_agents(site: Site) -> None:
    refused = site.reachline(*site.agent("b")[2:], "--state", "state-a1")

    assert refused.returncode == 2
    assert "belongs to a1, not to b; one directory for each agent" in refused.stderr


def test_who_has_no_certificate_does_not_get_in(site: Site) -> None:
    site.start("stranger", *site.agent("stranger"), "--ca", "ca/ca.pem")

    eventually(lambda: "center_not_reached" in site.said("stranger"), within=60)
    assert "stranger" not in site.agents()


def test_a_token_of_another_authority_is_not_used(site: Site, tmp_path: Path) -> None:
    site.reachline("ca", "init", "--domain", "other.example", "--ca", str(tmp_path / "other"))
    token = site.reachline("ca", "token", "c", "--ca", str(tmp_path / "other")).stdout.strip()
    at = ("--join-at", f"https://127.0.0.1:{site.http}", "--state", str(tmp_path / "c"))

    refused = site.reachline(*site.agent("c")[2:], "--join", token, *at)

    assert refused.returncode == 2
    assert "is not the center of this token" in refused.stderr
    assert not (tmp_path / "c").exists()


def test_a_member_that_is_shut_out_goes_and_does_not_come_back(site: Site) -> None:
    eventually(lambda: "a2" in site.agents(), within=60)

    assert site.reachline("ca", "revoke", "a2", "--ca", "ca").returncode == 0

    assert site.running["a2"].wait(60) == 2
    assert "agent a2 was shut out" in site.said("a2")
    eventually(lambda: site.agents() == {"a1"}, within=60)


def test_after_a_restart_members_come_again_without_a_token(site: Site) -> None:
    for name in ("center", "a1"):
        site.running[name].terminate()
        assert site.running[name].wait(30) == 0
    site.start_center()

    site.start("a1", *site.agent("a1"), "--state", "state-a1")

    eventually(lambda: site.agents() == {"a1"}, within=60)
