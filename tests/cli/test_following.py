"""Documents that are followed from what was read of them, not from when somebody begins to look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from reachline.cli.following import followed
from reachline.errors import ConfigError, Problem
from reachline.testing.wait import until

T = TypeVar("T")


async def _first(known: Iterable[tuple[str, str]], read: Callable[[], T], *, then: Callable[[], None]) -> T:
    """What is told first, after `then` was done."""
    told: list[T] = []

    async def follow() -> None:
        async for each in followed(known, read):
            told[:] = [*told, each]

    task = asyncio.create_task(follow())
    then()
    await until(lambda: told, within=60)
    task.cancel()
    await asyncio.wait((task,))
    return told[0]


def test_what_changed_between_reading_and_watching_is_not_missed(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    one.write_text("{}")
    other.write_text("[2]")
    known = ((str(one), "{}"), (str(other), "[1]"))

    found = asyncio.run(_first(known, lambda: [each.read_text() for each in (one, other)], then=lambda: None))

    assert found == ["{}", "[2]"]


def test_what_is_as_it_was_read_is_told_when_it_changes_and_what_is_wrong_is_not(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text("{}")
    read: list[str] = []

    def text() -> str:
        read.append(file.read_text())
        if read[-1] == "wrong":
            file.write_text("[]")
            raise ConfigError(Problem(place="one.json", path="", value="wrong", rule="must not be"))
        return read[-1]

    def spoil() -> None:
        file.write_text("wrong")

    found = asyncio.run(_first([(str(file), "{}")], text, then=spoil))

    assert (found, read) == ("[]", ["wrong", "[]"])
