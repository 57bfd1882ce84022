"""Lines by way of proxies in the whole house: judged like any other, and their passwords nowhere to be seen."""

from __future__ import annotations

import signal
import urllib.request
from pathlib import Path

import pytest
from tests.e2e.upped import Upped

from reachline.testing import parts, proxies
from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.real]

PASSWORD = "ge,h/eim"
DOCUMENT = """
judge: {{heartbeat: 1s, tick: 1s}}
probes: {{tcp: {{every: 500ms, burst: 10}}, http: {{every: 500ms, burst: 10}}}}
limits: {{p95: {slow}, ewma: {slow}, jitter: {slow}}}
clusters:
  shop:
    lines:
      signed-in: {{to: "http://127.0.0.1:{web}/", via: "socks5h://bob:${{file:{secret}}}@127.0.0.1:{socks}"}}
      chain:
        to: http://localhost:{web}/
        via: ["socks5://bob:ge%2Ch%2Feim@127.0.0.1:{socks}", "http://127.0.0.1:{tiny}"]
      refused: {{to: "tcp://127.0.0.1:{web}", via: "socks5://bob:falsch@127.0.0.1:{socks}"}}
"""
SLOW = "{degraded: 20s, exit: 20s, failed: 20s, failed_exit: 20s}"
"""A busy machine is slow; that is not what is asked here."""
SECRETS = (PASSWORD, "ge%2Ch%2Feim", "falsch")


def healthy(running: Upped) -> set[str]:
    lines = ("signed-in", "chain", "refused")
    return {name for name in lines if running.line(f"shop/{name}")["health"] == "healthy"}


def test_lines_by_proxy_are_judged_and_their_passwords_stay_hidden(tmp_path: Path) -> None:
    for name in ("web", "socks", "tiny", "house"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret").write_text(PASSWORD + "\n")
    document, journal = tmp_path / "shop.yaml", tmp_path / "house" / "journal"
    with (
        parts.nginx(tmp_path / "web") as web,
        proxies.microsocks(tmp_path / "socks", user="bob", password=PASSWORD) as socks,
        proxies.tinyproxy(tmp_path / "tiny") as tiny,
    ):
        document.write_text(
            DOCUMENT.format(web=web.port, socks=socks.port, tiny=tiny.port, secret=tmp_path / "secret", slow=SLOW)
            + f"center: {{journal: {journal}}}\n"
        )
        with Upped(str(document), "--port", "0", "--agents-port", "0", directory=tmp_path / "house") as running:
            eventually(lambda: healthy(running) == {"signed-in", "chain"}, within=60, what="both lines by proxy")
            eventually(
                lambda: "refuses the user or the password" in str(running.line("shop/refused")),
                within=60,
                what="why not",
            )
            refused = running.line("shop/refused")
            pages = [running.get("api/v1/lines"), *(running.line(f"shop/{name}") for name in ("signed-in", "chain"))]
            with urllib.request.urlopen(running.url + "metrics", timeout=5) as answer:
                metrics = answer.read().decode()
            running.end(signal.SIGINT)

    assert refused["health"] != "healthy"
    assert refused["via"] == f"socks5://bob@127.0.0.1:{socks.port}"
    for page in pages[1:]:
        for reading in page["readings"]:
            assert 0 < reading["phases"]["proxy"] <= reading["phases"]["total"]
            assert reading["phases"]["rest"] >= 0
    kept = b"".join(path.read_bytes() for path in journal.rglob("*") if path.is_file())
    seen = f"{pages} {refused} {metrics} {running.said} {kept!r}"
    assert [secret for secret in SECRETS if secret in seen] == []
