"""Headers taken away and set as routes say, before a request goes on and before an answer goes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reachline.doors.envoy.routes import Append, HeaderAdd, Mutations
from reachline.proxy.message import Headers
from reachline.proxy.telling import text_of

if TYPE_CHECKING:
    from reachline.proxy.exchange import Exchange

__all__ = ["request_changes", "response_changes"]


def request_changes(headers: Headers, changes: Sequence[Mutations], exchange: Exchange) -> Headers:
    """A request's headers, changed level by level."""
    for level in changes:
        headers = _changed(headers, level.request_remove, level.request_add, exchange)
    return headers


def response_changes(headers: Headers, changes: Sequence[Mutations], exchange: Exchange) -> Headers:
    """An answer's headers, changed level by level."""
    for level in changes:
        headers = _changed(headers, level.response_remove, level.response_add, exchange)
    return headers


def _changed(headers: Headers, gone: Sequence[str], added: Sequence[HeaderAdd], exchange: Exchange) -> Headers:
    found = list(headers)
    if gone:
        names = {each.encode() for each in gone}
        found = [each for each in found if each[0] not in names]
    for each in added:
        value = text_of(each.value, exchange, unsaid="").encode("latin-1", "replace")
        if value or each.keep_empty:
            _add(found, each.name.encode(), value, each.append)
    return found


def _add(headers: Headers, name: bytes, value: bytes, append: Append) -> None:
    is_there = any(each == name for each, _ in headers)
    if (append is Append.ADD_IF_ABSENT and is_there) or (append is Append.OVERWRITE_IF_EXISTS and not is_there):
        return
    if append in (Append.OVERWRITE_IF_EXISTS, Append.OVERWRITE_OR_ADD):
        headers[:] = [each for each in headers if each[0] != name]
    headers.append((name, value))
