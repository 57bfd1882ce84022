"""What the reference says of outliers and checks is the code's."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from reachline.core.checking_rules import CheckRules
from reachline.core.outlier_rules import ENVOY, NATIVE, Detector, OutlierRules
from reachline.talk.checked import TABLE, GrpcCheck, HttpCheck, RedisCheck, TcpCheck


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs/reference/outliers.md").read_text()


def test_every_setting_and_detector_and_kind_is_told(page: str) -> None:
    named = set(re.findall(r"`(\w+)`", page))

    assert {*OutlierRules._fields, *CheckRules._fields, *TABLE, *(each.value for each in Detector)} <= named


def test_the_differences_between_both_sets_of_defaults_are_those_in_bold(page: str) -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]+ \| \*\*[^|]+\*\* \|", page, re.MULTILINE)

    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert told == {name for name in OutlierRules._fields if getattr(ENVOY, name) != getattr(NATIVE, name)}


def test_numbers_of_the_table_are_the_defaults(page: str) -> None:
    settings: dict[str, Any] = OutlierRules()._asdict()
    for names, envoy in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\d[\d ]*) \|", page, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            if name in settings:
                assert settings[name] == int(envoy.replace(" ", "")), name


def test_kinds_tell_their_own_settings(page: str) -> None:
    named = set(re.findall(r"`(\w+)`", page))

    judging = {"expected_statuses", "retriable_statuses", "receive", "response_buffer_size", "key", "service_name"}
    assert judging <= named
    assert judging <= {each.name for kind in (HttpCheck, TcpCheck, GrpcCheck, RedisCheck) for each in fields(kind)}
