"""A loop for proxies, one for endpoints."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.proxy.world import Endpoint, Loop


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture(scope="module")
def far_loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def endpoint(far_loop: Loop) -> Iterator[Endpoint]:
    made = Endpoint(far_loop)
    yield made
    made.close()


@pytest.fixture
def another(far_loop: Loop) -> Iterator[Endpoint]:
    made = Endpoint(far_loop, b"two")
    yield made
    made.close()
