"""Whose fault it is that calls on a line end badly: the line's, the service's on every line, or one caller's. Pure integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from reachline.model import Outcome

__all__ = [
    "ASPECTS",
    "NONE",
    "Cause",
    "Key",
    "Seen",
    "causes",
    "is_apart",
    "is_kept",
    "is_suspect",
    "of_outcome",
    "summed",
]

_new: Final = tuple.__new__
"""What a named tuple's own constructor calls, without the call."""


class Seen(NamedTuple):
    """Calls summed. Each is in `calls`; of those that went well and were timed, how many were slow."""

    calls: int = 0
    failed: int = 0
    """Transport failures."""
    late: int = 0
    errors: int = 0
    """Server errors."""
    timed: int = 0
    slow: int = 0
    """Of `timed`: above the line's degraded limit…"""
    crawl: int = 0
    """…and above its failed one."""

    def plus(self, other: Seen) -> Seen:
        """Both together."""
        calls, failed, late, errors, timed, slow, crawl = self
        more, fails, lates, errs, times, slows, crawls = other
        both = calls + more, failed + fails, late + lates, errors + errs, timed + times, slow + slows, crawl + crawls
        return _new(Seen, both)

    def minus(self, other: Seen) -> Seen:
        """What is left without those of `other`."""
        return Seen(*(one - two for one, two in zip(self, other, strict=True)))

    def of(self, aspect: str) -> tuple[int, int]:
        """What is bad by this aspect, and of how many."""
        match aspect:
            case "failed":
                return self.failed + self.late + self.errors, self.calls
            case "slow":
                return self.slow, self.timed
            case _:
                return self.crawl, self.timed


NONE: Final = Seen()
Key = tuple[str, str]
"""Client and service."""

ASPECTS: Final[Mapping[str, int]] = {"failed": 20, "slow": 50, "crawl": 50}
"""How calls can be bad, and from which share on (1/1000) it is asked whose fault it is: 2 % failed, 5 % slower than a limit."""
_FEW: Final = 20
"""Calls below which others are no measure."""


class Cause(NamedTuple):
    """Who is at fault instead of the line: `kind` is `service` or `client`, `aspect` what of its calls is not held against it."""

    kind: str
    name: str
    aspect: str


def of_outcome(row: Outcome) -> Seen:
    """One row as a client sent it."""
    _, _, _, ok, failed, late, errors, timed, slow, crawl = row
    return _new(Seen, (ok + failed + late + errors, failed, late, errors, timed, slow, crawl))


def summed(seen: Iterable[Seen]) -> Seen:
    """All together."""
    found = list(seen)
    if len(found) < 2:
        return found[0] if found else NONE
    return Seen(*map(sum, zip(*found, strict=True)))


def is_apart(mine: tuple[int, int], other: tuple[int, int], z_milli: int) -> bool:
    """Whether my share is above the other's by more than chance makes of equal ones: the two-proportion z test, in integers."""
    (hits, of), (other_hits, other_of) = mine, other
    ahead = hits * other_of - other_hits * of
    if ahead <= 0:
        return False
    bad, whole = hits + other_hits, of + other_of
    return ahead * ahead * whole * 1_000_000 >= z_milli * z_milli * of * other_of * bad * (whole - bad)


def is_suspect(seen: Seen) -> bool:
    """Whether these calls are bad enough in any aspect to ask whose fault it is."""
    return any(_is_bad(seen.of(aspect), enter) for aspect, enter in ASPECTS.items())


def causes(rows: Mapping[Key, Seen], services: Mapping[str, Seen], z_milli: int) -> tuple[Cause, ...]:
    """Who is at fault for what is bad in these calls of one line; empty where nothing is, or where it is the line.

    `services` are the same span's calls of each service over all lines. A service that is as bad on the other lines is at
    fault itself, and so is a caller without whom the line is well.
    """
    found: list[Cause] = []
    for aspect, enter in ASPECTS.items():
        if not _is_bad(summed(rows.values()).of(aspect), enter):
            continue
        own = _by(rows, 1)
        blamed = [
            Cause("service", name, aspect)
            for name, seen in sorted(own.items())
            if _is_everywhere(seen, services.get(name, NONE).minus(seen), aspect, z_milli)
        ]
        names = {cause.name for cause in blamed}
        rest = {key: seen for key, seen in rows.items() if key[1] not in names}
        found += [*blamed, *_one_caller(rest, aspect, z_milli)]
    return tuple(found)


def is_kept(key: Key, aspect: str, found: Iterable[Cause]) -> bool:
    """Whether calls of this client and service are held against the line in this aspect."""
    return not any(cause.aspect == aspect and cause.name == key[cause.kind == "service"] for cause in found)


def _is_bad(share: tuple[int, int], enter: int) -> bool:
    return 1_000 * share[0] >= enter * max(share[1], 1)


def _is_everywhere(mine: Seen, others: Seen, aspect: str, z_milli: int) -> bool:
    """As bad on the other lines: bad there too, and here by no more than chance makes of it."""
    enter, here, there = ASPECTS[aspect], mine.of(aspect), others.of(aspect)
    return there[1] >= _FEW and _is_bad(here, enter) and _is_bad(there, enter) and not is_apart(here, there, z_milli)


def _one_caller(rows: Mapping[Key, Seen], aspect: str, z_milli: int) -> list[Cause]:
    """The one client without whom the line is well, where there is one."""
    clients = _by(rows, 0)
    if len(clients) < 2 or not _is_bad(summed(rows.values()).of(aspect), ASPECTS[aspect]):
        return []
    worst = max(sorted(clients), key=lambda name: clients[name].of(aspect)[0])
    mine = clients[worst].of(aspect)
    rest = summed(seen for name, seen in clients.items() if name != worst).of(aspect)
    if rest[1] >= _FEW and not _is_bad(rest, ASPECTS[aspect]) and is_apart(mine, rest, z_milli):
        return [Cause("client", worst, aspect)]
    return []


def _by(rows: Mapping[Key, Seen], place: int) -> dict[str, Seen]:
    """Summed by client (0) or by service (1)."""
    found: dict[str, Seen] = {}
    for key, seen in rows.items():
        found[key[place]] = found[key[place]].plus(seen) if key[place] in found else seen
    return found
