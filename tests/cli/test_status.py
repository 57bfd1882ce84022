"""`reachline status`: what a person reads beside the lines."""

from __future__ import annotations

import pytest
from tests.cli.test_explain import center

from reachline.cli.main import main


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("0.1.0", "agent edge (0.1.0) is too old to probe dns, tls"),
        ("envoy 1.40.0 by HDS", "agent edge (envoy 1.40.0 by HDS) is an Envoy, and none can probe dns, tls"),
    ],
)
def test_a_vantage_that_cannot_do_all_it_is_wanted_for_is_told_with_why(
    release: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = {"agent": "edge", "release": release, "lacks": ["dns", "tls"]}
    answer = {"lines": [], "version": "1.1", "age": 0.5, "clusters": [], "agents": [agent]}
    with center(200, answer) as (url, _):
        assert main(["status", "--center", url]) == 0

    assert capsys.readouterr().out.splitlines()[-1] == said
