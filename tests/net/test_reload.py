"""A document on disk: read or refused in one line, and followed through every way in which files are replaced."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reachline.errors import ConfigError
from reachline.net.reload import MAX_BYTES, changes, text_of

DEADLINE = 10.0
"""Seconds until news of a file must have come, on a busy machine."""


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda _: None, "cannot be read: No such file or directory"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (lambda path: path.write_bytes(b"\x89PNG\r\n"), "is no UTF-8 text (byte 0)"),
        (lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), MAX_BYTES + 1), "is larger than 16 MiB"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path, make: Callable[[Path], None], rule: str) -> None:
    path = tmp_path / "r.yaml"
    make(path)

    with pytest.raises(ConfigError) as caught:
        text_of(path)

    assert str(caught.value).startswith(f"{path}: {rule}")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("a: 1")
    path.chmod(0)

    with pytest.raises(ConfigError, match="cannot be read: Permission denied; let this user read it"):
        text_of(path)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")

    assert text_of(path) == "a: 1\n"


class Follower:
    """What `changes` yields, awaited with a deadline."""

    def __init__(self, path: Path, known: str) -> None:
        self._news = changes(path, known=known, debounce=0.02)

    async def next(self) -> str | ConfigError:
        return await asyncio.wait_for(anext(self._news), DEADLINE)

    async def close(self) -> None:
        await self._news.aclose()  # type: ignore[attr-defined]


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def by_rename(path: Path, text: str) -> None:
    fresh = path.with_suffix(".tmp")
    fresh.write_text(text)
    fresh.replace(path)


def away_and_back(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


@pytest.mark.parametrize("write", [in_place, by_rename, away_and_back])
def test_each_new_content_comes_once(tmp_path: Path, write: Callable[[Path, str], None]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("v: 0")

    async def follow() -> list[str | ConfigError]:
        follower, seen = Follower(path, "v: 0"), []
        for number in (1, 2, 3):
            write(path, f"v: {number}")
            seen.append(await follower.next())
        await follower.close()
        return seen

    assert asyncio.run(follow()) == ["v: 1", "v: 2", "v: 3"]


def test_the_symlink_swap_of_a_config_map_is_seen(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "r.yaml").write_text(f"v: {number}")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "r.yaml").symlink_to("..data/r.yaml")

    async def follow() -> list[str | ConfigError]:
        follower, seen = Follower(tmp_path / "r.yaml", "v: 1"), []
        for number in (2, 3):
            (tmp_path / "..fresh").symlink_to(f"..{number}")
            (tmp_path / "..fresh").replace(tmp_path / "..data")
            seen.append(await follower.next())
        await follower.close()
        return seen

    assert asyncio.run(follow()) == ["v: 2", "v: 3"]


def test_a_pipe_in_the_files_place_is_no_content_and_holds_nothing_up(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("v: 0")

    async def follow() -> str | ConfigError:
        follower = Follower(path, "v: 0")
        path.unlink()
        os.mkfifo(path)
        news = asyncio.ensure_future(follower.next())
        (tmp_path / "other").write_text("a stir, so that the directory is looked at")
        await asyncio.wait({news}, timeout=1.0)
        path.unlink()
        path.write_text("v: 1")
        try:
            return await news
        finally:
            await follower.close()

    assert asyncio.run(follow()) == "v: 1"


def test_the_same_content_again_is_no_news(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("v: 0")

    async def follow() -> str | ConfigError:
        follower = Follower(path, "v: 0")
        by_rename(path, "v: 0")
        first = asyncio.ensure_future(follower.next())
        by_rename(path, "v: 0")
        by_rename(path, "v: 1")
        news = await first
        await follower.close()
        return news

    assert asyncio.run(follow()) == "v: 1"


def test_a_content_that_is_no_text_comes_as_its_error_and_the_next_one_as_text(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("v: 0")

    async def follow() -> list[str | ConfigError]:
        follower = Follower(path, "v: 0")
        path.write_bytes(b"\xff\xfe\x00")
        broken = await follower.next()
        path.write_text("v: 1")
        whole = await follower.next()
        await follower.close()
        return [broken, whole]

    broken, whole = asyncio.run(follow())
    assert isinstance(broken, ConfigError)
    assert whole == "v: 1"


def test_following_ends_with_its_task(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("v: 0")

    async def follow() -> bool:
        async def forever() -> None:
            async for _ in changes(path, known="v: 0"):
                pass

        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=DEADLINE)
        return task.cancelled()

    assert asyncio.run(follow())


def test_a_directory_that_cannot_be_watched_is_looked_at(tmp_path: Path) -> None:
    """With two descriptors left a file can be read, and the kernel gives no watch."""
    script = """
import asyncio, contextlib, os, pathlib, resource, sys
from reachline.net.reload import changes
path = pathlib.Path(sys.argv[1])
async def main():
    news = changes(path, known="a: 1")
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with contextlib.suppress(OSError):
        while True:
            last = os.open("/dev/null", os.O_RDONLY)
    os.close(last)
    os.close(last - 1)
    first = await anext(news)
    path.write_text("a: 3")
    print(first, await anext(news))
import anyio, watchfiles, anyio._backends._asyncio
asyncio.run(main())
"""
    path = tmp_path / "r.yaml"
    path.write_text("a: 2")

    said = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False, timeout=60)

    assert said.stdout == "a: 2 a: 3\n", said.stderr
    assert "config_not_watched" in said.stderr
