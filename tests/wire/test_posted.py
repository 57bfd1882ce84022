from __future__ import annotations

from typing import Any

import pytest

from reachline.errors import RemoteProtocolError
from reachline.wire.posted import read_outcomes


def posted(**columns: int) -> dict[str, Any]:
    return {"client": "c", "cluster": "payments", "outcomes": [{"line": "payments/a", **columns}]}


def test_an_older_client_names_no_times() -> None:
    (row,) = read_outcomes(posted(ok=9)).outcomes

    assert (row.ok, row.timed, row.slow, row.crawl) == (9, 0, 0, 0)


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"ok": 3, "timed": 4}, "outcomes.0.timed: 4 of 3 ok"),
        ({"ok": 9, "timed": 4, "slow": 5}, "outcomes.0.slow: 5 of 4 timed"),
        ({"ok": 9, "timed": 4, "slow": 2, "crawl": 3}, "outcomes.0.crawl: 3 of 2 slow"),
    ],
)
def test_a_part_is_at_most_its_whole(columns: dict[str, int], field: str) -> None:
    with pytest.raises(RemoteProtocolError, match=field):
        read_outcomes(posted(**columns))
