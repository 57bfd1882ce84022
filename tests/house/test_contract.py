"""The HTTP contract for other languages, as docs/reference/http.md tells it, is the code's: fields, columns, limits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from reachline.center.api import serving
from reachline.store.records import RecordKind
from reachline.wire import listed, posted, view


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs/reference/http.md").read_text()


def section(page: str, heading: str) -> str:
    return page.split(f"### {heading}\n")[1].partition("\n## ")[0].partition("\n### ")[0]


def test_every_field_of_a_clusters_document_is_told_and_no_other(page: str) -> None:
    rows = re.findall(r"^\| (`.*?) \|", section(page, "The lines of a cluster"), re.MULTILINE)

    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    # The cluster is in the path; the epoch is the version's first part.
    assert told == set(get_type_hints(listed.ClusterDocument)) - {"cluster", "epoch"}


def test_fields_that_a_client_needs_are_fields_of_the_rows(page: str) -> None:
    text = section(page, "The lines of a cluster")
    line = set(re.findall(r"`(\w+)`", text.split("Of a line a client needs")[1].split("\n\n")[0])) - {"direct"}
    formula = re.findall(r"`(\w+)`", text.split("`local_rules.formula`")[1].split("\n\n")[0])

    assert line <= set(get_type_hints(view.LineRow))
    assert set(formula) == set(get_type_hints(listed.FormulaDocument)) | set(get_type_hints(listed.FormulaRow))
    assert f"after {serving._LONGEST_WAIT:.0f} s at most" in text
    assert f"every {serving._KEEP_ALIVE:.0f} s" in text


def test_the_outcomes_shown_are_taken_whole(page: str) -> None:
    text = section(page, "Outcomes")
    shown = json.loads(text.split("```json\n")[1].split("```")[0])

    taken = posted.read_outcomes(shown)

    assert set(shown) == set(get_type_hints(posted.OutcomesDocument))
    assert set(shown["outcomes"][0]) | {"service"} == set(get_type_hints(posted.OutcomeRow))
    (row,) = taken.outcomes
    assert (row.line, row.service, row.ok, row.failed, row.late, row.errors) == ("payments/a", "checkout", 97, 2, 1, 0)
    assert (taken.open, taken.shed) == (("payments/b",), 12)
    assert f"At most {posted.MAX_OUTCOMES:,} rows".replace(",", " ") in text


def test_every_kind_of_record_is_told_of_in_the_journals_page(root: Path) -> None:
    page = (root / "docs/concepts/journal.md").read_text().split("## Order")[0]

    told = re.findall(r"^\| (\w+) \|", page, re.MULTILINE)[1:]

    # Ticks without a change are told apart in the file alone.
    assert set(told) == {kind.name.lower() for kind in RecordKind} - {"decided"}
