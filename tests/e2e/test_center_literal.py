"""A dead line by the default rules, as the document has them: slow, so beside the others and not behind them."""

from __future__ import annotations

import time

import pytest
from tests.e2e.test_center import world

from reachline.testing.wait import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LITERAL = """
clusters:
  payments:
    lines: {a: "tcp://127.0.0.1:PORT_A", b: "tcp://127.0.0.1:PORT_B"}
center: {grpc: "127.0.0.1:GRPC", http: "127.0.0.1:0", journal: JOURNAL}
"""


@pytest.mark.timeout(600)
def test_by_the_default_rules_a_dead_line_is_at_weight_0_within_75_seconds(tmp_path):
    with world(tmp_path, LITERAL, "one", "two") as there:
        there.a.stop()
        died = time.monotonic()

        eventually(lambda: there.line("a")["weight"] == 0, within=75, every=0.5, what="weight 0")

        print(f"published weight 0 after {time.monotonic() - died:.1f} s")
        told = there.get("/api/v1/explain/payments/a")
        assert told["rule"].endswith(".failed")
        assert sorted(vote["vantage"] for vote in told["votes"]) == ["one", "two"]
