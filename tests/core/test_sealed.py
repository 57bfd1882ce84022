"""The bytes of a row that seal a tick."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from reachline.core.cusum import Asked
from reachline.core.row import Row
from reachline.core.sealed import packed
from reachline.model import LineId

_LINE = LineId("payments/a")
_ROW = Row(asked=Asked((1, 2, 3), 1), recent=(4, 5))


def _others(value: Any) -> Iterator[Any]:
    """The value with one of its parts another."""
    if isinstance(value, Enum):
        yield next(one for one in type(value) if one is not value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, str):
        yield f"{value}x"
    elif hasattr(value, "_fields"):
        for name in value._fields:
            yield from (value._replace(**{name: other}) for other in _others(getattr(value, name)))
    else:
        for place, part in enumerate(value):
            yield from ((*value[:place], other, *value[place + 1 :]) for other in _others(part))


def test_whatever_differs_in_a_row_differs_in_its_bytes() -> None:
    rows = [_ROW, *_others(_ROW)]

    assert len({packed(_LINE, row) for row in rows}) == len(rows) > len(Row._fields)


def test_sums_of_zero_are_not_no_sums() -> None:
    assert packed(_LINE, Row(asked=Asked((0, 0)))) != packed(_LINE, Row())


def test_text_moved_from_one_field_to_the_next_is_other_text() -> None:
    assert packed(_LINE, Row(reason="ab", guard="c")) != packed(_LINE, Row(reason="a", guard="bc"))
    assert packed(_LINE, Row(guard="c", incident="d")) != packed(_LINE, Row(guard="cd"))
