"""The results file: every run that was ever made and still counts, one on a line, so that it grows, resumes and merges."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reachline.simulate.limits import Row
from reachline.simulate.ran import Figure

__all__ = ["Key", "Stored", "load", "merged", "of_row", "save"]

Key = tuple[str, str, int]
"""Scenario, contender, seed."""
_UNKEPT = frozenset({"said"})
"""Words of the decision log: pages long, and held against limits already."""


class Stored(NamedTuple):
    """One run, and where it comes from."""

    scenario: str
    contender: str
    seed: int
    digest: str
    commit: str
    at: str
    """When it ended, ISO 8601 in UTC."""
    metrics: Mapping[str, Figure]
    limits: Mapping[str, bool]

    @property
    def key(self) -> Key:
        """What it is a run of."""
        return self.scenario, self.contender, self.seed

    @property
    def row(self) -> Row:
        """As the simulator gave it."""
        return Row(self.scenario, self.contender, self.seed, self.metrics, self.limits)


def of_row(row: Row, *, digest: str, commit: str, at: str) -> Stored:
    """Figures to six digits, and without words."""
    kept = {name: _rounded(figure) for name, figure in row.metrics.items() if name not in _UNKEPT}
    return Stored(row.scenario, row.contender, row.seed, digest, commit, at, kept, dict(row.limits))


def _rounded(figure: Figure) -> Figure:
    return round(figure, 6) if isinstance(figure, float) else figure


def load(path: Path) -> dict[Key, Stored]:
    """What is there, or nothing where there is no file. ValueError for a file that is none of ours."""
    if not path.exists():
        return {}
    document: Any = json.loads(path.read_text(encoding="utf-8"))
    try:
        return merged({}, (Stored(**each) for each in document["runs"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a file of results: {error!r}; remove it, and it is made anew") from error


def merged(ours: Mapping[Key, Stored], theirs: Iterable[Stored]) -> dict[Key, Stored]:
    """Of two of the same run the later one."""
    found = dict(ours)
    for each in theirs:
        if each.key not in found or found[each.key].at <= each.at:
            found[each.key] = each
    return found


def save(path: Path, runs: Mapping[Key, Stored]) -> None:
    """All of them, in order, by way of a file beside it: whoever is stopped loses nothing that was stored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(runs[key]._asdict(), separators=(",", ":")) for key in sorted(runs))
    beside = path.with_suffix(".new")
    beside.write_text(f'{{"runs": [\n{lines}\n]}}\n', encoding="utf-8")
    beside.replace(path)
