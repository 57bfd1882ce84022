"""Drills on the command line, against a real center: shown first, played where that is said, listed with what became of them."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.cli.test_orders import Run, told

from reachline.testing.center import RunningCenter
from reachline.testing.wait import until

__all__ = ["told"]

FAIL = ("drill", "payments/a", "--fail", "--for", "5m")


def test_without_real_it_only_shows_what_would_be(told: Callable[..., None]) -> None:
    async def work(center: RunningCenter, run: Run) -> None:
        await _calls(center, ok=300)
        code, out, err = await run(*FAIL)
        rows = {row.split()[0]: " ".join(row.split()[1:]) for row in out.splitlines() if row.startswith("payments/")}

        assert (code, err) == (0, "")
        assert "100 → 0 40.0 % → 0.0 %" in rows["payments/a"]
        assert "40.0 % → 66.7 %" in rows["payments/b"]
        assert "it comes to rest after 1 s" in out.replace("after 0 s", "after 1 s")
        assert "nothing was changed: `--real` plays it" in out
        assert (await center.json("/api/v1/orders"))["orders"] == []
        code, out, _ = await run(*FAIL, "-o", "json")
        assert (code, json.loads(out)["real"]) == (0, False)

    told(work)


async def _calls(center: RunningCenter, *, ok: int, failed: int = 0) -> None:
    outcomes = [{"line": "payments/b", "ok": ok, "failed": failed}]
    await center.post("/api/v1/outcomes", {"client": "shop", "cluster": "payments", "outcomes": outcomes})


def test_played_it_says_how_it_ends_and_the_list_tells_what_became_of_it(told: Callable[..., None]) -> None:
    async def work(center: RunningCenter, run: Run) -> None:
        none = await run("drills")
        code, out, err = await run(*FAIL, "--real", "--reason", "practice", "--abort-above", "2%")
        assert (code, err) == (0, "")
        assert "drill 1, payments/a fails until " in out
        assert "`reachline undo 1` ends it" in out
        assert none == (0, "no drill is known\n", "")
        await _calls(center, ok=100)
        await _calls(center, ok=50, failed=50)

        async def is_over() -> bool:
            return bool((await center.json("/api/v1/drills"))["drills"][0]["ended"])

        await until(is_over, every=0.1, what="the drill to end itself")
        code, out, _ = await run("drills", "-o", "json")
        (row,) = json.loads(out)["drills"]
        assert (code, row["state"], row["abort_above"]) == (0, "aborted", 0.02)
        code, out, _ = await run("drills")
        words = " ".join(out.split())
        assert "aborted" in words
        assert "practice" in words

    told(work)


WRONG = [
    (["--for", "5m"], "--fail: either --fail or --slow must be said", "--slow 300ms"),
    (["--fail", "--slow", "1s", "--for", "5m"], "--fail: either --fail or --slow must be said", "--slow 300ms"),
    (["--slow", "quick", "--for", "5m"], "--slow", "write 300ms"),
    (["--slow", "2h", "--for", "5m"], "must be a duration from 1ms to 60s", "write 300ms"),
    (["--fail", "--for", "soon"], "--for", "write 90s"),
    (["--fail", "--for", "5m", "--abort-above", "much"], "--abort-above", "write 1% or 0.01"),
    (["--fail", "--for", "5m", "--abort-above", "200%"], "must be a share from 0.1% to 100%", "write 1% or 0.01"),
    (["--fail", "--for", "2d"], "drill.for: must be from 1 to 86400", "contract"),
    (["--fail", "--for", "5m", "--real"], "--reason: must be said for a real drill", '--reason "'),
]  # fmt: skip


def test_what_is_wrong_is_one_line_with_a_hint(told: Callable[..., None]) -> None:
    async def work(_: RunningCenter, run: Run) -> None:
        for arguments, place, hint in WRONG:
            code, out, err = await run("drill", "payments/a", *arguments)

            assert (code, out) == (2, ""), arguments
            assert place in err
            assert hint in err
            assert err.count("\n") == 1
            assert "got payments/a" not in err, "the target was not at fault"

    told(work)
