"""Who follows a center by xDS, as a person sees it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from tests.cli.test_xds import document, stream, told
from tests.console.chromium import visit

from reachline.testing.stage import Stage, line_row

pytestmark = pytest.mark.browser


def stage(answer: object) -> Stage:
    there = Stage([line_row("payments/east")])
    there.xds = answer  # type: ignore[assignment]
    return there


def audience(kind: str, streams: int) -> dict[str, object]:
    return {"kind": kind, "locality": "", "streams": streams, "resources": {}, "bytes": 0}


def test_every_refusal_is_a_sentence_in_names_as_they_are(page: Page) -> None:
    streams = (
        stream("<b>e1</b>", told(refused={"pay": "pay: ring too large"}, nacks=1)),
        stream("e2", told("Listener", error="no", nacks=1)),
        stream("e3", told("ClusterLoadAssignment", waiting=True), heard=42.0),
        stream("e4", told()),
    )
    answer = document(*streams, audiences=[audience("envoy", 3), audience("grpc", 1), audience("envoy", 2)])
    with stage(answer) as there:
        visit(page, there.url)
        section = page.get_by_role("region", name="Who follows")

        expect(section.get_by_role("heading")).to_have_text("Who follows 5 Envoy, 1 gRPC")
        expect(section.get_by_role("listitem")).to_have_text(
            [
                "▲ <b>e1</b> refuses CDS pay: pay: ring too large",
                "▲ e2 refuses LDS: no",
                "▲ e3 takes nothing for 42 s",
            ]
        )
        assert page.locator("#followers b").count() == 0, "a name is text and never markup"


def test_while_nobody_refuses_it_is_one_line_and_without_anybody_nothing(page: Page) -> None:
    with stage(document(stream("e1", told()), audiences=[audience("envoy", 1)])) as there:
        visit(page, there.url)
        expect(page.get_by_role("region", name="Who follows")).to_contain_text("nobody refuses anything")
    with stage(document()) as there:
        with page.expect_response("**/api/v1/xds"):
            visit(page, there.url)
        expect(page.get_by_role("heading", name="Lines 1")).to_be_visible()

        expect(page.locator("#followers")).to_be_hidden()
