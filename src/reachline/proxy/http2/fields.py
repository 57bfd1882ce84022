"""Header lists to heads of requests and responses: RFC 9113, 8, as strict as Envoy 1.40. What is malformed is `MalformedError`."""

from __future__ import annotations

import re
from typing import Final

from reachline.proxy.http2.compress import HOP
from reachline.proxy.http2.events import Answered, Asked, Field

__all__ = ["MalformedError", "request", "response", "trailers"]

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_ODD: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|^[ \t]|[ \t]$", re.MULTILINE)
"""In values joined by line breaks: what no value has, and blanks around one."""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_AUTHORITY: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:%\[\]-]+")
"""No user's name: RFC 9113, 8.3.1."""
_NO_PATH: Final = re.compile(rb"[\x00-\x20\x7f]")
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*")
_SPECIAL: Final = HOP | {b"host", b"content-length", b"te", b"cookie"}
_PSEUDO: Final = frozenset({b":method", b":scheme", b":authority", b":path", b":protocol"})
_DIGITS: Final = 18
"""Of a length: one more may be beyond 63 bits."""
_names: Final[set[bytes]] = set()
"""Names found right; as many as are asked of us in the field, and no more than…"""
_NAMES: Final = 512


class MalformedError(Exception):
    """A message that is none; says why."""


def request(stream: int, fields: list[Field], *, allow_connect: bool) -> Asked:
    """A request's head."""
    pseudo, regular = _parted(fields)
    if not pseudo.keys() <= _PSEUDO:
        raise MalformedError("a pseudo-header that is none of a request's")
    headers, special = _sorted(regular)
    authority = _authority(pseudo, special)
    method, protocol = pseudo.get(b":method", b""), pseudo.get(b":protocol", b"")
    scheme, path = pseudo.get(b":scheme"), pseudo.get(b":path")
    if _METHOD.fullmatch(method) is None:
        raise MalformedError("method")
    if method == b"CONNECT" and b":protocol" not in pseudo:
        if scheme is not None or path is not None:
            raise MalformedError("CONNECT with a path or a scheme")
        return Asked(stream, method, b"", authority, b"", b"", headers, _length(special))
    if b":protocol" in pseudo and not (allow_connect and method == b"CONNECT" and protocol):
        raise MalformedError(":protocol")
    if scheme is None or _SCHEME.fullmatch(scheme) is None:
        raise MalformedError("scheme")
    if not path or _NO_PATH.search(path) or (path[:1] != b"/" and not (path == b"*" and method == b"OPTIONS")):
        raise MalformedError("path")
    return Asked(stream, method, scheme, authority, path, protocol, headers, _length(special))


def response(stream: int, fields: list[Field]) -> Answered:
    """A response's head, or an interim one."""
    pseudo, regular = _parted(fields)
    status = pseudo.pop(b":status", b"")
    if pseudo or len(status) != 3 or not status.isdigit() or status < b"100" or status == b"101":
        raise MalformedError("status")
    headers, special = _sorted(regular)
    headers += ((name, value) for name, values in special.items() if name == b"host" for value in values)
    length = _length(special)
    if length is not None and status == b"204":
        if length:
            raise MalformedError("a length of nothing")  # RFC 9110, 8.6
        headers = [each for each in headers if each[0] != b"content-length"]
    return Answered(stream, int(status), headers, length)


def trailers(fields: list[Field]) -> list[Field]:
    """What follows a body."""
    pseudo, regular = _parted(fields)
    if pseudo:
        raise MalformedError("a pseudo-header behind a body")
    return _sorted(regular)[0]


def _parted(fields: list[Field]) -> tuple[dict[bytes, bytes], list[Field]]:
    pseudo: dict[bytes, bytes] = {}
    at = 0
    for name, value in fields:
        if name[:1] != b":":
            break
        if name in pseudo:
            raise MalformedError("a pseudo-header twice")
        pseudo[name] = value
        at += 1
    regular = fields[at:]
    values = b"\n".join([value for _, value in fields])
    if _ODD.search(values) or values.count(b"\n") >= max(len(fields), 1):
        regular = _stripped(pseudo, regular)
    return pseudo, regular


def _stripped(pseudo: dict[bytes, bytes], regular: list[Field]) -> list[Field]:
    """Without blanks around values, which mean nothing; MalformedError where a value cannot be one."""
    if any(_CONTROL.search(value) for value in pseudo.values()):
        raise MalformedError("a pseudo-header's value")
    if any(_CONTROL.search(value) for _, value in regular):
        raise MalformedError("a header's value")
    return [(name, value.strip(b" \t")) for name, value in regular]


def _sorted(regular: list[Field]) -> tuple[list[Field], dict[bytes, list[bytes]]]:
    """(headers as they are passed on, values of `_SPECIAL` ones)."""
    headers: list[Field] = []
    special: dict[bytes, list[bytes]] = {}
    for field in regular:
        name = field[0]
        if name in _SPECIAL:
            _take(name, field[1], special)
            if name in {b"te", b"content-length"}:
                headers.append(field)
        else:
            if name not in _names:
                _learn(name)
            headers.append(field)
    if b"cookie" in special:
        headers.append((b"cookie", b"; ".join(special[b"cookie"])))
    return headers, special


def _learn(name: bytes) -> None:
    if _NAME.fullmatch(name) is None:
        raise MalformedError("a header's name")
    if len(_names) < _NAMES:
        _names.add(name)


def _take(name: bytes, value: bytes, special: dict[bytes, list[bytes]]) -> None:
    if name in HOP or (name == b"te" and value.lower() != b"trailers"):
        raise MalformedError("a header of one HTTP/1.1 connection")
    special.setdefault(name, []).append(value)


def _authority(pseudo: dict[bytes, bytes], special: dict[bytes, list[bytes]]) -> bytes:
    hosts = special.get(b"host", [])
    authority = pseudo.get(b":authority")
    if len(hosts) > 1 or (authority is None and not hosts):
        raise MalformedError("no authority, or more than one")
    found = hosts[0] if authority is None else authority
    if any(_AUTHORITY.fullmatch(each) is None for each in {found, *hosts}):
        raise MalformedError("authority")
    return found


def _length(special: dict[bytes, list[bytes]]) -> int | None:
    lengths = special.get(b"content-length")
    if lengths is None:
        return None
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > _DIGITS:
        raise MalformedError("content-length")
    return int(lengths[0])
