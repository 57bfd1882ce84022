"""What every test may ask for, and how a run is shared out: parts of ours that need the machine alone run last."""

from __future__ import annotations

import random
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: a worker that got one last would keep the others waiting."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
