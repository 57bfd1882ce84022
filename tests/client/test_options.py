from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import reachline
from reachline.client.options import DEFAULT_CENTER, Settings, checked
from reachline.errors import ConfigError


def problems(center: Any = DEFAULT_CENTER, clusters: Any = ("payments",), **settings: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        checked(center, clusters, settings)  # type: ignore[arg-type]
    return [f"{each.path}: {each.rule}" for each in caught.value.problems]


def test_the_smallest_call_has_a_default_for_everything_else() -> None:
    options = checked(DEFAULT_CENTER, "payments", {})

    assert options.clusters == ("payments",)
    assert options.centers[0][1:] == ("127.0.0.1", 7680, False, "")
    assert (options.wait, options.patience, options.local_breaker, options.cache) == (5.0, 1.0, True, None)


def test_several_centers_prefixes_and_ipv6_are_read() -> None:
    options = checked(["https://a.example/reach/", "http://[::1]:7680"], ["a", "b"], {})

    assert [each[1:] for each in options.centers] == [("a.example", 443, True, "/reach"), ("::1", 7680, False, "")]
    assert options.tls is not None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"center": "127.0.0.1:7680"}, "center: must be an http or https URL"),
        ({"center": "ftp://a"}, "center: must be an http or https URL"),
        ({"center": "http://"}, "center: must be an http or https URL"),
        ({"center": "http://a:99999"}, "center: is not a URL: Port out of range 0-65535"),
        ({"center": "http://u:secret@a"}, "center: a URL must not carry a user or password"),
        ({"center": "http://a/?x=1"}, "center: must end with its path"),
        ({"center": "http://a/ b"}, "center: must end with its path"),
        ({"center": []}, "center: at least one address is needed"),
        ({"clusters": []}, "clusters: at least one name is needed: only named clusters are fetched"),
        ({"clusters": ["a/b"]}, "clusters: must be letters, digits, '.', '_' or '-'"),
        ({"clusters": ["a", "a"]}, "clusters: is named twice"),
        ({"wait": -1.0}, "wait: must be seconds, 0 or more"),
        ({"wait": 10**400}, "wait: must be seconds, 0 or more"),
        ({"patience": float("nan")}, "patience: must be seconds, 0 or more"),
        ({"name": "a\nb"}, "name: must be printable text of at most 128 characters"),
        ({"service": "x" * 129}, "service: must be printable text of at most 128 characters"),
        ({"token": "abc\n"}, "token: must be printable ASCII"),
        ({"tls": "/no/such/file.pem"}, "tls: no certificates can be read there: No such file or directory"),
        ({"static": {"other": ["tcp://a:1"]}}, "static.other: is none of `clusters`"),
        ({"static": {"payments": ["tcp://a"]}}, "static.payments: must name host and port"),
        ({"static": {"payments": {"tcp://a:1": -1}}}, "static.payments: must be a whole number, 0…1000000"),
        ({"cash": "x"}, "cash: is no setting of connect()"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_its_place(arguments: dict[str, Any], problem: str) -> None:
    assert problem in problems(**arguments)


NAMES = ("center", "clusters", *Settings.__annotations__)
ODD: tuple[Any, ...] = (5.5, [5], b"x", ..., {5: 5}, "\0", "x", None)
FITTING: dict[str, list[Any]] = {name: [5.5] for name in ("wait", "patience")} | {
    name: ["x"] for name in ("clusters", "service", "name", "token")
}
FITTING |= {"cache": ["x", None], "static": [None], "tls": [None], "seed": [None]}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in NAMES for value in ODD if value not in FITTING.get(name, ())],
    ids=repr,
)
def test_a_value_of_the_wrong_kind_is_one_problem_of_its_setting(name: str, value: Any) -> None:
    found = problems(**{name: value})

    assert {re.split(r"[.:]", each)[0] for each in found} == {name}


@pytest.mark.parametrize("name", ["wait", "patience", "seed"])
def test_true_is_no_number(name: str) -> None:
    assert problems(**{name: True})[0].startswith(f"{name}: must be ")


@pytest.mark.parametrize("lines", [5, "tcp://a:1", [5], {5: 5}, {"tcp://a:1": "many"}, {"tcp://a:1": None}], ids=repr)
def test_static_lines_of_the_wrong_kind_are_named(lines: Any) -> None:
    assert problems(static={"payments": lines})[0].startswith("static.payments: must be ")


def test_a_token_of_the_wrong_kind_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        checked(DEFAULT_CENTER, "payments", {"token": b"s3cret"})  # type: ignore[typeddict-item]

    assert "s3cret" not in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    assert len(problems(center="x", clusters=["a b"], wait=-1.0, servise="x")) == 4


def test_a_near_miss_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean cache"):
        checked(DEFAULT_CENTER, "payments", {"cash": "x"})  # type: ignore[typeddict-unknown-key]


def test_a_secret_is_never_part_of_a_message_or_a_repr() -> None:
    with pytest.raises(ConfigError) as caught:
        checked("http://me:secret@a", "payments", {"token": "secret\n"})

    assert "secret" not in str(caught.value)
    assert "secret" not in repr(checked(DEFAULT_CENTER, "payments", {"token": "secret"}))


def test_connect_itself_refuses_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(reachline.ConfigError, match="clusters"):
        reachline.connect_sync(clusters=[], cache=tmp_path / "x")
