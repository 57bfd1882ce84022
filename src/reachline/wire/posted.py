"""Outcomes as clients post them, from JSON already parsed. Refuses by `RemoteProtocolError`, which names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, NotRequired, TypedDict

from reachline.errors import RemoteProtocolError
from reachline.model import LineId, Outcome

__all__ = ["MAX_OUTCOMES", "OutcomeRow", "OutcomesDocument", "Posted", "read_outcomes"]

MAX_OUTCOMES: Final = 1_000
"""Rows of one posted batch: a client sends each line and service once a second, and no cluster has more lines."""
_MAX_COUNT: Final = 10**9
"""Calls in one row. More in a second is a broken client, not a fast one."""
_MAX_TEXT: Final = 200
"""Characters of a client's, a service's or a line's name."""


class OutcomeRow(TypedDict):
    """Calls to one line in one second; `window` is the trial window the line's row named, 0 for none.

    `timed` of the `ok` were held against `local_rules.slow` and `.crawl` of the line list; so many of them took longer.
    """

    line: str
    service: NotRequired[str]
    window: NotRequired[int]
    ok: NotRequired[int]
    failed: NotRequired[int]
    late: NotRequired[int]
    errors: NotRequired[int]
    timed: NotRequired[int]
    slow: NotRequired[int]
    crawl: NotRequired[int]


class OutcomesDocument(TypedDict):
    """`POST /api/v1/outcomes`; `open` names the lines whose breaker in this client is open now.

    `shed` are calls that this client refused since its last batch, as the list's `plan` says: they are asked for all the same.
    """

    client: str
    cluster: str
    service: NotRequired[str]
    outcomes: list[OutcomeRow]
    open: NotRequired[list[str]]
    shed: NotRequired[int]


class Posted(NamedTuple):
    """A batch of outcomes as a client posted it."""

    client: str
    cluster: str
    outcomes: tuple[Outcome, ...]
    open: tuple[LineId, ...]
    """Lines whose local breaker is open now."""
    shed: int = 0
    """Calls that the client refused as the plan across regions says."""


def read_outcomes(document: object) -> Posted:
    """A posted batch; RemoteProtocolError names the field that is wrong. Unknown keys are a newer client's and skipped."""
    top = _object(document, "body")
    rows = _list(top.get("outcomes", []), "outcomes")
    if len(rows) > MAX_OUTCOMES:
        raise RemoteProtocolError(f"outcomes: {len(rows)} rows, at most {MAX_OUTCOMES} are taken in one batch")
    return Posted(
        client=_text(top.get("client"), "client", empty=False),
        cluster=_text(top.get("cluster"), "cluster", empty=False),
        outcomes=tuple(_outcome(row, f"outcomes.{at}", top.get("service", "")) for at, row in enumerate(rows)),
        open=tuple(
            LineId(_text(name, f"open.{at}", empty=False)) for at, name in enumerate(_list(top.get("open", []), "open"))
        ),
        shed=_count(top.get("shed", 0), "shed"),
    )


def _outcome(document: object, path: str, service: object) -> Outcome:
    row = _object(document, path)
    found = Outcome(
        line=LineId(_text(row.get("line"), f"{path}.line", empty=False)),
        service=_text(row.get("service", service), f"{path}.service"),
        window=_count(row.get("window", 0), f"{path}.window", 2**63 - 1),
        ok=_count(row.get("ok", 0), f"{path}.ok"),
        failed=_count(row.get("failed", 0), f"{path}.failed"),
        late=_count(row.get("late", 0), f"{path}.late"),
        errors=_count(row.get("errors", 0), f"{path}.errors"),
        timed=_count(row.get("timed", 0), f"{path}.timed"),
        slow=_count(row.get("slow", 0), f"{path}.slow"),
        crawl=_count(row.get("crawl", 0), f"{path}.crawl"),
    )
    for name, part, of, whole in (
        ("timed", found.timed, "ok", found.ok),
        ("slow", found.slow, "timed", found.timed),
        ("crawl", found.crawl, "slow", found.slow),
    ):
        if part > whole:
            raise RemoteProtocolError(f"{path}.{name}: {part} of {whole} {of} calls, must be at most as many")
    return found


def _object(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{path}: must be an object")
    return value


def _list(value: object, path: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise RemoteProtocolError(f"{path}: must be a list")
    return value


def _text(value: object, path: str, *, empty: bool = True) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT or not (value or empty):
        least = "" if empty else "1…"
        raise RemoteProtocolError(f"{path}: must be a text of {least}{_MAX_TEXT} characters")
    return value


def _count(value: object, path: str, most: int = _MAX_COUNT) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise RemoteProtocolError(f"{path}: must be a whole number, 0…{most}")
    return value
