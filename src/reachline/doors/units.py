"""Durations, shares and sizes as people write them in a document, and back. Refuses to guess a unit that is missing."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

__all__ = [
    "Duration",
    "Share",
    "Size",
    "duration",
    "refuse",
    "seconds",
    "share",
    "size",
    "text_of_seconds",
    "text_of_share",
    "text_of_size",
]

_UNITS: Final = {
    "us": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_PART: Final = r"[0-9]{1,12}(?:\.[0-9]{1,6})?\s?(?:us|ms|s|m|h|d)"
_DURATION: Final = re.compile(rf"\s*{_PART}(?:\s?{_PART})*\s*")
_PARTS: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s?(us|ms|s|m|h|d)")
_PERCENT: Final = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s?%\s*")
_SIZE: Final = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,3})?)\s?(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)\s*")
_BYTES: Final = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}


def refuse(rule: str, hint: str = "") -> PydanticCustomError:
    """What a validator raises: a rule in words, and what to do about it."""
    return PydanticCustomError("reachline", "{rule}", {"rule": rule, "hint": hint})


def seconds(text: str) -> float | None:
    """`5s`, `100ms`, `1m30s`, `1.5h` in seconds; None where it is no duration."""
    if not _DURATION.fullmatch(text):
        return None
    return float(sum(Decimal(number) * _UNITS[unit] for number, unit in _PARTS.findall(text)))


def duration(value: object) -> object:
    """Seconds of a duration as text. A bare number is refused: nobody knows whether it means seconds or milliseconds."""
    if isinstance(value, str):
        found = seconds(value)
        if found is not None:
            return found
        raise refuse("must be a duration", "write a number and a unit (us, ms, s, m, h, d): 5s, 100ms, 1m30s")
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refuse("must be a duration with its unit", f"did you mean {value:g}s or {value:g}ms?")
    return value


def share(value: object) -> object:
    """A ratio 0…1 from `1%` or from a number, which is taken as it stands."""
    if isinstance(value, str):
        if found := _PERCENT.fullmatch(value):
            return float(Decimal(found[1]) / 100)
        raise refuse("must be a share", "write 0.01 or 1%")
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 < value <= 100:
        raise refuse("must be a share between 0 and 1", f"did you mean {value:g}%?")
    return value


def size(value: object) -> object:
    """Bytes of a size as text."""
    if isinstance(value, str):
        if found := _SIZE.fullmatch(value):
            return int(Decimal(found[1]) * _BYTES[found[2]])
        raise refuse("must be a size", "write a number and a unit (kB, MB, GB, KiB, MiB, GiB): 2GB")
    if isinstance(value, int) and not isinstance(value, bool):
        raise refuse("must be a size with its unit", f"did you mean {value}MB?")
    return value


def text_of_seconds(value: float) -> str:
    """The shortest text that `seconds` reads back as the same value, to the microsecond."""
    micros = round(value * 1_000_000)
    for unit in ("d", "h", "m"):
        step = int(_UNITS[unit] * 1_000_000)
        if micros and micros % step == 0:
            return f"{micros // step}{unit}"
    for unit, step in (("s", 1_000_000), ("ms", 1_000)):
        if micros % step == 0 or (micros > step and micros % (step // 1_000) == 0):
            number = Decimal(micros) / step
            return f"{number.normalize():f}{unit}"
    return f"{micros}us"


def text_of_share(value: float) -> str:
    """A ratio as percent, to a millionth: `0.4%`, `50%`, `66.6667%`."""
    return f"{Decimal(repr(round(value * 100, 4))).normalize():f}%"


def text_of_size(value: int) -> str:
    """Bytes in the largest unit that divides them."""
    for unit, step in sorted(_BYTES.items(), key=lambda item: -item[1]):
        if value and value % step == 0:
            return f"{value // step}{unit}"
    return f"{value}B"


Duration = Annotated[
    float,
    BeforeValidator(duration),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?\s?(us|ms|s|m|h|d)\s?)+\s*$", "examples": ["5s", "100ms"]}
    ),
]
"""Seconds inside, `5s` or `100ms` in the document."""

Share = Annotated[
    float,
    BeforeValidator(share),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s?%\s*$"}]}),
]
"""0…1 inside, `0.01` or `1%` in the document."""

Size = Annotated[
    int,
    BeforeValidator(size),
    WithJsonSchema({"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s?([kMGT]?B|[KMGT]iB)\s*$", "examples": ["2GB"]}),
]
"""Bytes inside, `2GB` in the document."""
