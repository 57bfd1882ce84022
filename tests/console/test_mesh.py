"""The ways between agents as a person sees them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.console.chromium import visit

from reachline.testing.stage import Stage, line_row

pytestmark = pytest.mark.browser


def way(vantage: str, peer: str, **more: object) -> dict[str, Any]:
    return {
        "vantage": vantage, "peer": peer, "told_by": vantage, "state": "heard", "age": 1.0, "silent": 0.1, "error": "",
        "rtt": 0.012, "sent": 1_000, "lost": 0, "loss": 0.0, "rise": 0.0, "sent_back": 1_000, "lost_back": 0,
        "loss_back": 0.0, "rise_back": 0.0, "losing": "", "delayed": "", "drift": 0.0, "stepped": False,
    } | more  # fmt: skip


def stage(names: list[str], *ways: dict[str, Any]) -> Stage:
    there = Stage([line_row("payments/east")])
    agents = [{"agent": name, "address": f"10.0.0.1:{7601 + at}"} for at, name in enumerate(names)]
    there.mesh = {"enabled": True, "every": 0.2, "agents": agents, "ways": list(ways)}
    return there


def test_the_matrix_tells_each_way_and_what_is_wrong_with_it_in_names_as_they_are(page: Page) -> None:
    with stage(
        ["ams", "fra", "<b>nyc</b>"],
        way("ams", "fra"),
        way("fra", "ams", losing="forward", loss=0.021, lost=21),
        way("ams", "<b>nyc</b>", delayed="forward", rise=0.09),
        way("<b>nyc</b>", "ams", losing="reverse", loss_back=0.05),
        way("fra", "<b>nyc</b>", state="silent", silent=42.0, losing="forward"),
        way("<b>nyc</b>", "fra", state="stale", age=75.0),
    ) as there:
        visit(page, there.url)
        table = page.get_by_role("table", name="Ways between agents")

        expect(table.get_by_role("columnheader")).to_have_text(["ams", "fra", "<b>nyc</b>"])
        assert page.locator("#mesh b").count() == 0, "a name is text and never markup"
        rows = table.locator("tbody tr")
        expect(rows.nth(0).locator("td")).to_have_text(["·", "12.0 ms", "▲ +90.0 ms"])
        expect(rows.nth(1).locator("td")).to_have_text(["▲ 2.1 % lost", "·", "✕ dead"])
        # The other way's loss is the other cell's to tell.
        expect(rows.nth(2).locator("td")).to_have_text(["12.0 ms", "◌ stale", "·"])
        expect(rows.nth(1).locator("td").nth(2)).to_have_attribute(
            "title", "fra → <b>nyc</b>: no answer for 42 s; nothing gets through this way"
        )
        expect(rows.nth(2).locator("td").nth(1)).to_have_attribute(
            "title", "<b>nyc</b> → fra: <b>nyc</b> last spoke of it 1 min 15 s ago"
        )


def test_many_agents_are_a_list_of_what_is_wrong(page: Page) -> None:
    names = [f"a{number:02}" for number in range(14)]
    ways = [way(one, other) for one in names for other in names if one != other]
    ways[0] = way("a00", "a01", losing="both", loss=0.03)
    with stage(names, *ways) as there:
        visit(page, there.url)
        section = page.get_by_role("region", name="Between agents")

        expect(section.get_by_role("listitem")).to_have_count(1)
        expect(section.get_by_role("listitem")).to_contain_text(
            "a00 → a01 loses: round trip 12.0 ms, 3.0 % lost of 1000"
        )


def test_without_any_way_nothing_is_shown(page: Page) -> None:
    with stage(["ams"]) as there:
        with page.expect_response("**/api/v1/mesh"):
            visit(page, there.url)
        expect(page.get_by_role("heading", name="Lines 1")).to_be_visible()

        expect(page.locator("#mesh")).to_be_hidden()
