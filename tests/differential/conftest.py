"""What is compared with the real thing needs the real thing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.differential.real import VARIABLE, binary


@pytest.fixture(scope="session")
def envoy_binary() -> Path:
    """Envoy's binary; without it the test is skipped by name."""
    found = binary()
    if found is None:
        pytest.skip(f"no Envoy: `make envoy`, or {VARIABLE} names its binary")
    return found
