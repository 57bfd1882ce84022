"""What every test may ask for, and how a run is shared out: by marks, files with slow tests first."""

from __future__ import annotations

import random
import re
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent

# Derandomised: a failing example is the same on every machine. A busy core must not fail a property.
settings.register_profile(
    "reachline", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("reachline")


@pytest.fixture
def rng() -> random.Random:
    """Chance of a fixed seed."""
    return random.Random(20_260_101)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root."""
    return ROOT


_SHARES = ("real", "e2e", "browser", "alone", "calm", "slow")
"""Marks by which `make test` shares a run out."""
_SHARE = re.compile(rf"\bmark\.({'|'.join(_SHARES)})\b")


@cache
def _named(path: Path) -> frozenset[str]:
    """The marks of these that a file names."""
    return frozenset(_SHARE.findall(path.read_text(encoding="utf-8")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file is not even imported where no marks that it names could let a test of it run: to import all takes 13 s, each time."""
    wanted = config.option.markexpr
    if not wanted or collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    names = sorted(_named(collection_path))
    for chosen in product((False, True), repeat=len(names)):
        try:
            if eval(
                wanted, {"__builtins__": {}}, dict.fromkeys(_SHARES, False) | dict(zip(names, chosen, strict=True))
            ):
                return None
        except (NameError, SyntaxError, TypeError):
            return None  # by another mark, too
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: a worker that got one last would keep the others waiting."""
    for item in items:
        for mark in _SHARES:
            if item.get_closest_marker(mark) and mark not in _named(item.path):
                raise pytest.UsageError(f"{item.nodeid}: marked {mark}, and its file does not say `mark.{mark}`")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
