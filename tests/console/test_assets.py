"""The page's files as they are shipped: nothing inline, nothing from elsewhere, everything it names is there."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reachline.testing.stage import ASSETS

MODULES = sorted(ASSETS.glob("*.js"))
LONGEST = 400
"""Lines of a module: the same measure as for Python."""


class Tags(HTMLParser):
    """Every start tag with its attributes, and the text inside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.inline += data.strip()


def page() -> Tags:
    tags = Tags()
    tags.feed((ASSETS / "index.html").read_text())
    return tags


def test_the_page_holds_no_inline_script_and_no_inline_style() -> None:
    found = page()

    assert found.inline == ""
    assert [
        name for _, attributes in found.tags for name in attributes if name.startswith("on") or name == "style"
    ] == []


def test_everything_the_page_names_is_shipped_and_relative() -> None:
    named = [
        attributes.get("src") or attributes.get("href") or ""
        for tag, attributes in page().tags
        if tag in ("script", "link", "img")
    ]

    assert named
    for name in named:
        assert (ASSETS / name).is_file(), name


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_a_module_imports_only_its_neighbours_and_stays_short(module: Path) -> None:
    text = module.read_text()

    imported = re.findall(r'(?:from|import)\s*\(?"([^"]+)"', text)

    assert all(name.startswith("./") for name in imported)
    assert all((ASSETS / name).is_file() or name.startswith("./vendor/") for name in imported)
    assert len(text.splitlines()) <= LONGEST


def test_no_file_asks_anything_of_another_machine() -> None:
    for file in (*MODULES, ASSETS / "style.css", ASSETS / "index.html"):
        assert re.findall(r"https?://(?!www\.w3\.org/)|@import|url\(", file.read_text()) == [], file.name


def test_no_module_makes_elements_from_text() -> None:
    """Names and reasons come from documents and peers: they must stay text."""
    for file in MODULES:
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", file.read_text()
        ), file.name


def test_libraries_are_pinned_and_the_lock_names_no_registry(root: Path) -> None:
    wanted = json.loads((root / "package.json").read_text())["dependencies"]
    lock = (root / "package-lock.json").read_text()

    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    assert '"resolved"' not in lock
    assert "://" not in lock
    assert all(f"node_modules/{name}" in json.loads(lock)["packages"] for name in wanted)
