"""Load reports that endpoints send with their answers (ORCA): the header `endpoint-load-metrics`, as text, JSON or protobuf.

What cannot be read is None, never an error: a report helps, and its lack harms nobody. Refuses to know what is made of it.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from reachline.core.pick.orca import Report

__all__ = ["BINARY", "HEADER", "SIZE_MOST", "load_report", "report_in"]

HEADER: Final = "endpoint-load-metrics"
BINARY: Final = "endpoint-load-metrics-bin"
"""The same as protobuf in base64, without a word before it."""
SIZE_MOST: Final = 8_192
"""Characters of a report: as much as servers put into all headers together."""
_NAMES: Final = {
    "rps_fractional": "qps", "eps": "eps", "application_utilization": "application", "cpu_utilization": "cpu",
    "rpsFractional": "qps", "applicationUtilization": "application", "cpuUtilization": "cpu",
    "rps": "qps", "mem_utilization": "memory", "memUtilization": "memory",
}  # fmt: skip
"""As in xds.data.orca.v3.OrcaLoadReport, and as protobuf's JSON writes them."""
_SHARES: Final = {"memory": "mem_utilization", "cpu": "cpu_utilization", "application": "application_utilization"}
"""What may be asked for by name as well, beside the maps."""
_MAPS: Final = {
    "named_metrics": "named_metrics", "namedMetrics": "named_metrics", "utilization": "utilization",
    "request_cost": "request_cost", "requestCost": "request_cost",
}  # fmt: skip
_NUMBERS: Final = {1: "cpu", 2: "memory", 6: "qps", 7: "eps", 9: "application"}
_MAP_NUMBERS: Final = {4: "request_cost", 5: "utilization", 8: "named_metrics"}
_RPS: Final = 3
"""Of older reporters, whole calls."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MORE: Final = 0x80
"""The bit of a byte that says that the number goes on."""
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}


def report_in(header: Callable[[str], str | bytes | None]) -> Report | None:
    """The report among an answer's headers; `header` looks one up by its name in lower case. None: there is none to be read."""
    said, is_binary = header(HEADER), False
    if said is None:
        said, is_binary = header(BINARY), True
    return None if said is None else load_report(said, is_binary=is_binary)


def load_report(text: str | bytes, *, is_binary: bool = False) -> Report | None:
    """A header's value: `TEXT a=1,b.c=2`, `JSON {…}` or `BIN base64`; without a word before it, base64 if `is_binary`, else text.

    Bytes are the protobuf itself, as gRPC hands out metadata whose name ends in `-bin`; of any other name, text.
    """
    if len(text) > SIZE_MOST:
        return None
    try:
        if isinstance(text, bytes) and is_binary:
            return _of_bytes(text)
        text = text.decode() if isinstance(text, bytes) else text
        kind, _, rest = text.strip().partition(" ")
        match kind:
            case _ if is_binary:
                return _of_bytes(_decoded(text.strip()))
            case "TEXT":
                return _of_text(rest)
            case "JSON":
                return _of_json(rest)
            case "BIN":
                return _of_bytes(_decoded(rest.strip()))
            case _:
                return _of_text(text)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _of_text(text: str) -> Report:
    """`key=value` pairs, those of maps as `map.key=value`."""
    numbers: dict[str, float] = {}
    named: dict[str, float] = {}
    for pair in text.split(","):
        key, has_value, value = pair.strip().partition("=")
        if not has_value:
            raise ValueError(pair)
        kind, _, inner = key.strip().partition(".")
        if inner and kind in _MAPS:
            named[f"{_MAPS[kind]}.{inner}"] = float(value)
        elif key.strip() in _NAMES:
            numbers[_NAMES[key.strip()]] = float(value)
        else:
            raise ValueError(key)
    return _report(numbers, named)


def _of_json(text: str) -> Report:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError(text)
    numbers: dict[str, float] = {}
    named: dict[str, float] = {}
    for key, value in found.items():
        if key in _MAPS and isinstance(value, dict):
            named.update((f"{_MAPS[key]}.{inner}", _number(each)) for inner, each in value.items())
        elif key in _NAMES:
            numbers[_NAMES[key]] = _number(value)
        else:
            raise ValueError(key)
    return _report(numbers, named)


def _number(value: object) -> float:
    """A number, also as protobuf's JSON writes large and odd ones: in quotes."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(value)
    return float(value)


def _of_bytes(data: bytes) -> Report:
    numbers: dict[str, float] = {}
    named: dict[str, float] = {}
    for number, kind, value in _fields(data):
        if kind == _FIXED64 and number in _NUMBERS:
            numbers[_NUMBERS[number]] = _double(value)
        elif kind == _VARINT and number == _RPS:
            numbers.setdefault("qps", float(int.from_bytes(value, "little")))
        elif kind == _BYTES and number in _MAP_NUMBERS:
            entry = {each: inner for each, _, inner in _fields(value)}
            name = entry.get(1, b"").decode()
            named[f"{_MAP_NUMBERS[number]}.{name}"] = _double(entry.get(2, bytes(8)))
    return _report(numbers, named)


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(field, wire type, its bytes; of a number, little endian) of one protobuf message; ValueError where it breaks off."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value.to_bytes(8, "little")
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("breaks off")
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, each in enumerate(data[at : at + 10]):
        value |= (each & 0x7F) << 7 * place
        if not each & _MORE:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + place + 1
    raise ValueError("no end of a number")


def _double(data: bytes) -> float:
    if len(data) != _SIZES[_FIXED64]:
        raise ValueError("no double")
    return float(struct.unpack("<d", data)[0])


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _report(numbers: Mapping[str, float], named: Mapping[str, float]) -> Report:
    return Report(
        qps=numbers.get("qps", 0.0),
        eps=numbers.get("eps", 0.0),
        application=numbers.get("application", 0.0),
        cpu=numbers.get("cpu", 0.0),
        named={**named, **{name: numbers[key] for key, name in _SHARES.items() if key in numbers}},
    )
