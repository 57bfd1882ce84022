"""A center's address that no other test has."""

from __future__ import annotations

import pytest
from tests.agent.peer import Center


@pytest.fixture
def center(tmp_path):
    return Center(f"unix:{tmp_path}/center.sock")


@pytest.fixture
def other(tmp_path):
    return Center(f"unix:{tmp_path}/other.sock")
