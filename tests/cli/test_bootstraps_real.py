"""What `envoy bootstrap` prints is taken by a real Envoy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.differential.real import VARIABLE, binary, refused

from reachline.cli.bootstraps import Way, envoy
from reachline.model import Locality

pytestmark = pytest.mark.real

WAY = Way(node="edge-1", center="center.example:7600", locality=Locality(region="r1", zone="az1"), token="secret")


@pytest.mark.parametrize(
    "options",
    [{}, {"delta": True, "hds": True, "lrs": True, "als": True, "admin": "127.0.0.1:9901"}],
    ids=["plain", "everything"],
)
@pytest.mark.parametrize(
    "more", [{}, {"tls": True}, {"center": "10.0.0.1:1", "tls": True}, {"center": "unix:/run/r.sock"}]
)
def test_a_real_envoy_takes_it(options: dict[str, Any], more: dict[str, Any], tmp_path: Path) -> None:
    found = binary()
    if found is None:
        pytest.skip(f"no Envoy: `make envoy`, or {VARIABLE} names its binary")

    assert refused(found, envoy(dataclasses.replace(WAY, **more), **options), tmp_path) == ""
