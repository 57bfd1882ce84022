from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from reachline.client.cache import load, save
from reachline.model import Version
from reachline.testing.door import pair


def test_what_is_saved_is_loaded_with_its_age(tmp_path: Path) -> None:
    path = tmp_path / "lines.json"

    assert save(path, {"payments": (pair(70, 30, version="3.9"), 1_000.0)}) == ""
    found = load(path, ["payments", "other"], wall=1_060.0)

    lines, document, age = found["payments"]
    assert [each.weight for each in lines.lines] == [70, 30]
    assert (lines.version, age) == (Version(3, 9), 60.0)
    assert document == pair(70, 30, version="3.9") | {"issued": document["issued"]}  # type: ignore[index]
    assert set(found) == {"payments"}


def test_the_file_is_its_owners_alone_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    save(tmp_path / "lines.json", {"payments": (pair(), 1.0)})

    assert [each.name for each in tmp_path.iterdir()] == ["lines.json"]
    assert stat.S_IMODE((tmp_path / "lines.json").stat().st_mode) == 0o600


def test_a_clock_that_was_set_back_makes_no_list_from_the_future(tmp_path: Path) -> None:
    path = tmp_path / "lines.json"
    save(path, {"payments": (pair(), 5_000.0)})

    assert load(path, ["payments"], wall=1_000.0)["payments"][2] == 0.0


def test_a_missing_file_is_no_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load(tmp_path / "none", ["payments"], wall=1.0) == {}
    assert caplog.records == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 100,
        b"[]",
        b"{}",
        json.dumps({"format": 2, "clusters": {}}).encode(),
        json.dumps({"format": 1, "clusters": []}).encode(),
        json.dumps({"format": 1, "clusters": {"payments": 5}}).encode(),
        json.dumps({"format": 1, "clusters": {"payments": {"heard": "x", "answer": pair()}}}).encode(),
        json.dumps(
            {"format": 1, "clusters": {"payments": {"heard": 1.0, "answer": pair() | {"version": "x"}}}}
        ).encode(),
        json.dumps({"format": 1, "clusters": {"payments": {"heard": 1.0, "answer": pair()}}}).encode()[:-9],
    ],
    ids=lambda content: repr(content[:60]),
)
def test_a_garbage_file_is_ignored_with_an_event(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "lines.json"
    path.write_bytes(content)

    assert load(path, ["payments"], wall=1.0) == {}
    assert [each.message for each in caplog.records] == ["cache_ignored"]


def test_a_folder_in_its_place_is_ignored_and_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load(tmp_path, ["payments"], wall=1.0) == {}
    assert [each.message for each in caplog.records] == ["cache_ignored"]
    assert save(tmp_path / "no" / "folder", {}) == "No such file or directory"


@pytest.mark.parametrize(
    ("there", "ours", "stays"),
    [
        (("2.7", 1_000.0), ("2.6", 2_000.0), True),
        (("3.1", 1_000.0), ("2.6", 2_000.0), True),
        (("2.6", 2_000.0), ("2.6", 1_000.0), True),
        (("2.6", 1_000.0), ("2.6", 2_000.0), False),
        (("2.6", 2_000.0), ("2.7", 1_000.0), False),
    ],
)
def test_a_newer_list_of_another_process_is_never_overwritten(
    tmp_path: Path, there: tuple[str, float], ours: tuple[str, float], stays: bool
) -> None:
    path = tmp_path / "lines.json"
    save(path, {"payments": (pair(version=there[0]), there[1])})

    save(path, {"payments": (pair(version=ours[0]), ours[1]), "search": (pair(version="1.1"), 5.0)})

    entries = json.loads(path.read_text())["clusters"]
    version, heard = there if stays else ours
    assert (entries["payments"]["answer"]["version"], entries["payments"]["heard"]) == (version, heard)
    assert entries["search"]["heard"] == 5.0


def test_a_higher_version_that_cannot_be_read_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "lines.json"
    broken = pair(version="9.9") | {"lines": "none"}
    save(path, {"payments": (broken, 9_000.0)})

    save(path, {"payments": (pair(version="2.6"), 1.0)})

    assert load(path, ["payments"], wall=1.0)["payments"][0].version == Version(2, 6)
