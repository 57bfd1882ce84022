"""Orders on the command line, against a real center: shown before they are given, refused with what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from reachline.cli.main import main
from reachline.testing.center import RunningCenter, running_center

Run = Callable[..., Coroutine[None, None, tuple[int, str, str]]]


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """`told(work)`: `work(center, run)` with a running center; `run(*arguments)` gives exit code, output and errors."""

    def with_center(work: Callable[[RunningCenter, Run], Coroutine[None, None, None]]) -> None:
        async def all_of_it() -> None:
            async with asyncio.timeout(30), running_center(tmp_path) as center:

                async def run(*arguments: str) -> tuple[int, str, str]:
                    code = await asyncio.to_thread(main, [*arguments, "--center", center.http])
                    return code, *capsys.readouterr()

                await work(center, run)

        asyncio.run(all_of_it())

    return with_center


def test_an_order_is_shown_before_it_is_given_and_says_how_it_ends(told: Callable[..., None]) -> None:
    async def work(center: RunningCenter, run: Run) -> None:
        code, out, err = await run("drain", "payments/a", "--for", "2h", "--reason", "fibre works")

        rows = {row.split()[0]: row.split()[1:] for row in out.splitlines() if row.startswith("payments/")}
        assert (code, err) == (0, "")
        assert rows["payments/a"][-8:] == ["100", "→", "0", "40.0", "%", "→", "0.0", "%"]
        assert rows["payments/b"][-5:] == ["40.0", "%", "→", "66.7", "%"]
        assert "order 1, drain payments/a until " in out
        assert "`reachline undo 1` ends it" in out
        assert len((await center.json("/api/v1/orders"))["orders"]) == 1

    told(work)


def test_a_dry_run_gives_no_order(told: Callable[..., None]) -> None:
    async def work(center: RunningCenter, run: Run) -> None:
        code, out, _ = await run("weight", "payments/a", "20", "--dry-run", "-o", "json")

        lines = json.loads(out)["effects"][0]["lines"]
        assert code == 0
        assert [(row["before"]["weight"], row["after"]["weight"]) for row in lines] == [(100, 20), (100, 100), (50, 50)]
        assert (await center.json("/api/v1/orders"))["orders"] == []

    told(work)


def test_orders_are_listed_and_undone_by_their_id(told: Callable[..., None]) -> None:
    async def work(center: RunningCenter, run: Run) -> None:
        await run("standby", "payments/a", "--yes", "--reason", "tests")
        await run("close", "payments/b", "--yes", "--for", "1h")
        _, listed, _ = await run("orders")
        undone, out, _ = await run("undo", "1", "--yes", "--reason", "done")
        _, later, _ = await run("orders")
        _, everything, _ = await run("orders", "--all")

        assert [row.split()[:3] for row in listed.splitlines() if "payments/" in row] == [
            ["2", "close", "payments/b"], ["1", "standby", "payments/a"]
        ]  # fmt: skip
        assert (undone, out.startswith("order 1, standby payments/a: ended, within ")) == (0, True)
        assert "payments/a" not in later
        assert "by local: done" in everything

    told(work)


REFUSED = [
    (("drain", "payments/aa"), "no line, cluster, provider or group is named 'payments/aa'; did you mean payments/a"),
    (
        ("drain", "payments/a", "--for", "2"),
        "drain: --for: must be a duration; write 90s, 30m, 2h, 1d or 1h30m (got 2)",
    ),
    (("drain", "payments/a", "--for", "1ms"), "drain: --for: must be a second or more"),
    (("drain", "payments/a", "--for", "999d"), "drain: order.for: must be from 1 s to a year"),
    (("weight", "payments/a", "0"), "weight: POINTS: must be 1 or more; `drain` takes all traffic away (got 0)"),
    (
        ("drain", "payments"),
        "no line of payments would carry traffic any more; say `force` (`--force` on the command line) if that is meant",
    ),
    (("undrain", "payments/a"), "undrain: no order drains payments/a"),
    (("undo", "9"), "undo: there is no order 9; in force: none"),
]


def test_what_cannot_be_is_refused_in_one_line_by_exit_code_2(told: Callable[..., None]) -> None:
    async def work(_: RunningCenter, run: Run) -> None:
        for arguments, expected in REFUSED:
            code, _out, err = await run(*arguments)

            assert (code, err.count("\n")) == (2, 1), arguments
            assert expected in err, arguments

    told(work)
