"""What CONTRIBUTING says of the seams is so: the tables it names are there, and each has a row for every probe kind."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from reachline.center import readings
from reachline.doors import heartbeat
from reachline.doors.addresses import SCHEMES
from reachline.doors.probing import Probes
from reachline.model import Kind
from reachline.talk import TABLE

ROW = re.compile(r"^\| `([\w/]+)\.py`: ((?:`\w+`(?:, )?)+) \|", re.MULTILINE)


def test_every_table_that_a_probe_kind_stands_in_is_where_contributing_says(root: Path) -> None:
    rows = ROW.findall((root / "CONTRIBUTING.md").read_text())

    missing = [
        f"{module}: {name}"
        for module, names in rows
        for name in re.findall(r"\w+", names)
        if not hasattr(importlib.import_module(f"reachline.{module.removesuffix('/__init__').replace('/', '.')}"), name)
    ]

    assert len(rows) == 7
    assert missing == []


def test_files_and_packages_that_contributing_links_to_are_there(root: Path) -> None:
    links = re.findall(r"\]\(([\w/.]+)\)", (root / "CONTRIBUTING.md").read_text())

    assert links
    assert [link for link in links if not (root / link).exists()] == []


@pytest.mark.parametrize("kind", list(TABLE))
def test_a_probe_kind_has_its_row_in_every_table(kind: Kind) -> None:
    lacking = {
        "doors Probes": kind.value not in Probes.model_fields,
        "doors SCHEMES": not any(kind in scheme.kinds for scheme in SCHEMES.values()),
        "doors heartbeat": heartbeat._KINDS.get(kind.value) is not kind,
        "center _TELLING": kind not in readings._TELLING,
    }

    assert [table for table, lacks in lacking.items() if lacks] == []
