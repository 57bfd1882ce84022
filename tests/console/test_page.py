"""What a person sees and does: by role and text, by keyboard alone, on every width, and when the center is away."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.console.chromium import visit
from tests.measured import best_of

from reachline.testing.stage import ASSETS, Stage, line_row

pytestmark = pytest.mark.browser

EAST, WEST, SEA = "payments/east", "payments/west", "payments/sea"
VOTES = [
    {"vantage": "edge-1", "zone": "failed", "metric": "http.timeout", "numerator": 7, "denominator": 50, "limit": 50},
    {"vantage": "edge-2", "zone": "failed", "metric": "http.timeout", "numerator": 6, "denominator": 50, "limit": 50},
    {"vantage": "edge-3", "zone": "healthy", "metric": "http.loss", "numerator": 0, "denominator": 50, "limit": 10},
]


def three() -> Stage:
    return Stage([line_row(EAST), line_row(WEST, p95=0.025), line_row(SEA, p95=0.031)])


def row(page: Page, line: str) -> Locator:
    return page.locator(f'[role="row"][data-line="{line}"]')


def trip(stage: Stage, line: str = EAST) -> None:
    stage.put(
        line, rule="vote.timeout.failed", votes=VOTES, health="unhealthy", breaker="open", weight=0, raw=0.0, score=0,
        reason="vote.timeout.failed", timeout=0.14, p95=None, next=time.time() + 30,
    )  # fmt: skip


def test_every_line_is_a_row_with_its_figures(page: Page) -> None:
    with three() as stage:
        visit(page, stage.url)

        expect(row(page, WEST)).to_contain_text("healthy")
        expect(row(page, WEST)).to_contain_text("25.0 ms")
        expect(row(page, WEST)).to_contain_text("100")
        expect(page.get_by_role("heading", name="Lines 3")).to_be_visible()
        expect(page.get_by_label("Incidents now")).to_contain_text("no incident")
        expect(page.locator("#freshness")).to_contain_text("live · 3 vantages")


def test_a_vantage_that_doubts_itself_is_counted_and_says_why(page: Page) -> None:
    with three() as stage:
        stage.agents[0] |= {"doubt": 2, "doubts": ["own timers fired 0.43 s late"]}
        visit(page, stage.url)

        expect(page.locator("#freshness")).to_contain_text("live · 3 vantages, 1 in doubt")
        expect(page.locator("#freshness")).to_have_attribute(
            "title", "edge-1 doubts itself (2 of 7): own timers fired 0.43 s late"
        )


def test_a_decision_shows_at_once_with_weights_and_reason(page: Page) -> None:
    with three() as stage:
        visit(page, stage.url)
        expect(row(page, EAST)).to_contain_text("healthy")

        trip(stage)

        expect(row(page, EAST)).to_contain_text("open")
        expect(row(page, EAST)).to_contain_text("100 → 0")
        expect(row(page, EAST)).to_contain_text("timeouts: most vantages call it failed")
        expect(row(page, EAST)).to_contain_text("14 %")
        expect(page.get_by_label("Incidents now")).to_contain_text("a half-open trial may begin in")
        expect(page.get_by_label("Cluster payments")).to_contain_text("1 open")
        expect(page.get_by_role("img", name="Share of new calls: east 0 %, sea 50 %, west 50 %")).to_be_visible()


def test_no_state_is_told_by_colour_alone(page: Page) -> None:
    states: list[dict[str, Any]] = [
        {"health": "healthy"}, {"health": "degraded"}, {"breaker": "open"}, {"breaker": "half_open"}, {"breaker": "ramp"},
        {"drained": True}, {"blind": True}, {"health": "unknown"}, {"health": "unhealthy"},
    ]  # fmt: skip
    with Stage([line_row(f"c/{number}", **state) for number, state in enumerate(states)]) as stage:
        visit(page, stage.url)
        expect(page.locator("[data-line] .chip .sign").nth(8)).not_to_be_empty()

        chips = [text.split() for text in page.locator("[data-line] .chip").all_inner_texts()]

        assert len({sign for sign, *_ in chips}) == len(states)
        assert len({word for _, word, *_ in chips}) == len(states)


def test_the_whole_page_works_by_keyboard_alone(page: Page) -> None:
    with three() as stage:
        visit(page, stage.url)
        expect(row(page, WEST)).to_contain_text("healthy")

        page.keyboard.press("/")
        page.keyboard.type("WEST")
        expect(page.get_by_role("heading", name="Lines 1 of 3")).to_be_visible()
        page.keyboard.press("Enter")
        expect(row(page, WEST)).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=WEST)).to_be_focused()
        page.keyboard.press("Escape")
        expect(row(page, WEST)).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("heading", name="Lines 3")).to_be_visible()
        page.keyboard.press("ArrowUp")
        expect(row(page, SEA)).to_be_focused()
        page.keyboard.press("k")
        expect(row(page, EAST)).to_be_focused()
        page.keyboard.press("End")
        expect(row(page, WEST)).to_be_focused()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


def test_sorting_by_key_and_by_heading(page: Page) -> None:
    with Stage([line_row("c/a", weight=5), line_row("c/b", weight=90), line_row("c/c", weight=50)]) as stage:
        visit(page, stage.url)
        lines = page.locator("[data-line]")
        expect(lines.first).to_have_attribute("data-line", "c/a")

        page.keyboard.press("s")  # the next column after the line's name is the weight, largest first
        expect(page.get_by_role("columnheader", name="Weight")).to_have_attribute("aria-sort", "descending")
        assert order(page) == ["c/b", "c/c", "c/a"]

        page.get_by_role("button", name="Weight").click()
        assert order(page) == ["c/a", "c/c", "c/b"]


def order(page: Page) -> list[str]:
    found = page.locator("[data-line]").evaluate_all("rows => rows.map(row => row.dataset.line)")
    return [str(line) for line in found]


GREY = 5_000
"""Milliseconds within which a viewer must know that what is shown is old."""


@pytest.mark.alone  # five seconds are promised on a machine that is not busy otherwise
def test_a_killed_center_greys_the_page_within_five_seconds_and_it_comes_back_by_itself(page: Page) -> None:
    def killed() -> int:
        """The port of a center that is no more."""
        with three() as stage:
            visit(page, stage.url)
            expect(page.locator("#freshness")).to_contain_text("live")
            port = int(stage.url.rsplit(":", 1)[1].strip("/"))
        expect(page.locator("body[data-stale]")).to_be_attached(timeout=GREY)
        return port

    port = best_of(3, killed)
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"What you see is \d+ s old"))
    expect(row(page, EAST)).to_contain_text("healthy")  # the last word stays readable

    with Stage([line_row(EAST, weight=42), line_row("payments/new")], port=port, epoch=2):
        expect(page.locator("body[data-stale]")).not_to_be_attached(timeout=30_000)
        expect(row(page, EAST)).to_contain_text("42")
        expect(row(page, "payments/new")).to_be_visible()
        expect(row(page, WEST)).not_to_be_attached()


@pytest.mark.alone  # as above
def test_a_center_that_hangs_greys_the_page_too(page: Page) -> None:
    with three() as stage:

        def hangs() -> None:
            stage.is_silent = False
            visit(page, stage.url)
            expect(page.locator("#freshness")).to_contain_text("live")
            stage.is_silent = True
            expect(page.locator("body[data-stale]")).to_be_attached(timeout=GREY)

        best_of(3, hangs)

        stage.is_silent = False
        expect(page.locator("body[data-stale]")).not_to_be_attached(timeout=30_000)


def test_a_delta_that_does_not_follow_on_the_last_one_brings_a_new_snapshot(page: Page) -> None:
    with three() as stage:
        visit(page, stage.url)
        expect(row(page, EAST)).to_contain_text("healthy")

        stage.is_silent = True
        stage.put(EAST, weight=33)  # said to nobody
        stage.is_silent = False
        stage.put(WEST, weight=44)

        expect(row(page, EAST)).to_contain_text("33")
        expect(row(page, WEST)).to_contain_text("44")


def test_a_line_that_leaves_the_document_leaves_the_page(page: Page) -> None:
    with three() as stage:
        visit(page, stage.url)
        expect(row(page, SEA)).to_be_visible()

        stage.remove(SEA)

        expect(row(page, SEA)).not_to_be_attached()
        expect(page.get_by_role("heading", name="Lines 2")).to_be_visible()


def test_loss_is_visible_in_the_sparkline(page: Page) -> None:
    clean = [[0.01, 0.0]] * 60
    lossy = [*clean[:50], *[[None, 0.02]] * 5, *clean[:5]]
    with Stage([line_row("c/clean", spark=clean), line_row("c/lossy", spark=lossy)]) as stage:
        visit(page, stage.url)
        expect(row(page, "c/lossy")).to_contain_text("healthy")

        assert reds(page, "c/clean") == 0
        assert reds(page, "c/lossy") > 20
        expect(page.get_by_role("img", name="worst loss 2.0 %")).to_be_visible()


def reds(page: Page, line: str) -> int:
    """Pixels of a sparkline that are clearly red."""
    script = """canvas => { const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let red = 0; for (let at = 0; at < data.length; at += 4) red += data[at] > 150 && data[at + 1] < 100 && data[at + 3] > 120;
      return red; }"""
    return int(row(page, line).locator("canvas").evaluate(script))


def test_a_lines_page_names_votes_with_counts_decisions_and_what_comes_next(page: Page) -> None:
    with three() as stage:
        stage.page(EAST, votes=VOTES, readings=[], history=history())
        trip(stage)
        visit(page, f"{stage.url}#/line/payments%2Feast")

        votes = page.get_by_role("region", name="Votes now")
        expect(votes.get_by_role("row", name="edge-1")).to_contain_text("HTTP timeouts: 7 of 50 = 14 % (limit 5.0 %)")
        expect(votes.get_by_role("row", name="edge-3")).to_contain_text("healthy")
        decisions = page.get_by_role("region", name="Decisions")
        expect(decisions.get_by_role("listitem").first).to_contain_text("healthy → open, weight 100 → 0")
        expect(decisions).to_contain_text("edge-2: 6 of 50 = 12 % (limit 5.0 %)")
        expect(page.get_by_text("Next: a half-open trial may begin in")).to_be_visible()
        expect(page.get_by_role("region", name="Why")).to_contain_text("stands as the stage was told")


def test_a_lines_page_draws_charts_with_decisions_marked(page: Page, charts: None) -> None:
    with three() as stage:
        stage.page(EAST, votes=VOTES, history=history())
        trip(stage)
        visit(page, f"{stage.url}#/line/payments%2Feast")

        expect(page.get_by_role("region", name="Charts").locator("canvas")).to_have_count(3)
        expect(page.get_by_role("region", name="Charts")).to_contain_text("Weight, with its decisions")


def test_without_its_chart_library_the_page_works_without_charts(page: Page, tmp_path: Path) -> None:
    assets = tmp_path / "console"
    shutil.copytree(ASSETS, assets, ignore=shutil.ignore_patterns("vendor"))
    with Stage([line_row(EAST)], assets=assets) as stage:
        stage.page(EAST, votes=VOTES, history=history())
        visit(page, f"{stage.url}#/line/payments%2Feast")

        expect(page.get_by_role("region", name="Charts")).to_contain_text("No charts")
        expect(page.get_by_role("region", name="Votes now")).to_contain_text("7 of 50")


def history() -> list[dict[str, float | None]]:
    now = time.time()
    return [
        {"at": now - 2 * (60 - at), "p50": 0.01, "p95": 0.02, "loss": 0.0, "timeout": 0.0, "weight": 100.0}
        for at in range(60)
    ]


def test_an_unknown_line_is_said_in_words(page: Page) -> None:
    with three() as stage:
        visit(page, f"{stage.url}#/line/payments%2Fnowhere")

        expect(page.get_by_role("region", name="Why")).to_contain_text("no line payments/nowhere")


def test_markup_in_a_name_is_text(page: Page) -> None:
    name = "c/<img src=x onerror=alert(1)>"
    with Stage([line_row(name, reason="<b>bold</b>")]) as stage:
        visit(page, stage.url)

        expect(page.get_by_role("grid")).to_contain_text("<img src=x onerror=alert(1)>")
        expect(page.locator("#lines-grid img, #lines-grid b")).to_have_count(0)


@pytest.mark.parametrize("width", [360, 414, 768, 1024, 1440])
def test_nothing_is_cut_off_on_any_width(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    with three() as stage:
        stage.page(EAST, votes=VOTES, history=history())
        trip(stage)
        for address in (stage.url, f"{stage.url}#/line/payments%2Feast"):
            visit(page, address)
            expect(page.locator("#freshness")).to_contain_text("live")

            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_demos_words_stand_on_top(page: Page) -> None:
    with three() as stage:
        stage.demo = {
            "title": "east begins to jitter", "text": "Watch P95 climb.", "phase": "jitter", "elapsed": 31, "next": "more in 9 s",
            "steps": [{"phase": "calm", "title": "Calm"}, {"phase": "jitter", "title": "Jitter"}],
            "calls": {"rates": {EAST: 70.0, WEST: 85.0}, "failed": 0.0},
        }  # fmt: skip
        visit(page, stage.url)

        demo = page.get_by_role("region", name="Demo")
        expect(demo.get_by_role("heading", name="east begins to jitter")).to_be_visible()
        expect(demo).to_contain_text("155 real calls/s: east 70 · west 85, none failing")
        expect(demo.locator('[aria-current="step"]')).to_have_text("Jitter")


def test_without_a_demo_there_is_no_banner(page: Page) -> None:
    with three() as stage:
        visit(page, stage.url)
        expect(row(page, EAST)).to_contain_text("healthy")

        expect(page.locator("#demo")).to_be_hidden()


def test_dark_and_light_follow_the_system_and_the_button(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    with three() as stage:
        visit(page, stage.url)
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ground)

        page.get_by_role("button", name="Switch between dark and light").click()
        light = page.evaluate(ground)
        assert dark != light

        visit(page)
        assert page.evaluate(ground) == light
