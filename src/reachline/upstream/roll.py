"""The endpoints of a kept cluster with all that is known of each: what discovery, checks and outliers say, joined to one health.

State by address outlives updates: who stays, or moves, keeps what checks made of it. Pure but for its own rows; knows no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from reachline.core.checking import NEW, Check
from reachline.core.pick import Member as Seat
from reachline.core.pick.member import is_degraded, is_healthy
from reachline.members import Member, Membership
from reachline.model import Health, LineId
from reachline.upstream.care import Care
from reachline.upstream.listing import Pick
from reachline.upstream.settings import ClusterSettings

__all__ = ["Roll", "Row", "Sums", "Why", "standing"]

_FILTER: Final = "envoy.lb"
"""Whose metadata balancing reads."""
_OUT: Final = (Health.UNHEALTHY, Health.DRAINING, Health.TIMEOUT)


class Why(NamedTuple):
    """What holds an endpoint out or back; all false: nothing does."""

    failed_discovery: bool = False
    failed_check: bool = False
    ejected: bool = False
    degraded: bool = False
    excluded: bool = False

    @property
    def health(self) -> Health:
        """Any of three holds it out; each clears only what it set itself."""
        if self.failed_discovery or self.failed_check or self.ejected:
            return Health.UNHEALTHY
        return Health.DEGRADED if self.degraded else Health.HEALTHY


def standing(said: Health, check: Check | None, *, ejected: bool) -> Why:
    """Discovery's word, what checks made of it (None: it is not checked) and outlier detection's flag, joined as in Envoy."""
    return Why(
        failed_discovery=said in _OUT,
        failed_check=check is not None and check.failed,
        ejected=ejected,
        degraded=said is Health.DEGRADED or (check is not None and check.degraded),
        excluded=said is Health.DRAINING or (check is not None and (check.pending or check.excluded)),
    )


class Row:
    """One endpoint. Written by its roll."""

    __slots__ = (
        "check",
        "is_ejected",
        "is_known",
        "is_leaving",
        "key",
        "member",
        "openings",
        "seat",
        "since_ms",
        "why",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        """`address:port`."""
        self.member: Member
        self.seat: Seat[Pick]
        self.check: Check | None = None
        self.is_known = self.is_ejected = False
        self.is_leaving = False
        """Discovery names it no more; it serves on until a check fails."""
        self.why = Why()
        self.since_ms: int | None = None
        """When it became healthy; None while it is not."""
        self.openings = 0
        """How often it was ejected or failed its checks: connections of before are not to be used again."""


class Sums(NamedTuple):
    """Endpoints counted, by Envoy's words."""

    total: int = 0
    healthy: int = 0
    degraded: int = 0
    excluded: int = 0


class Roll:
    """Written under its cluster's lock."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings: Final = settings
        self._rows: dict[str, Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def row(self, key: str) -> Row | None:
        """An endpoint by its `address:port`; None: it is not here."""
        return self._rows.get(key)

    def seats(self) -> list[Seat[Pick]]:
        """What a picker is built of."""
        return [row.seat for row in self._rows.values()]

    def priorities(self) -> dict[str, int]:
        """What outlier detection needs of the endpoints."""
        return {key: row.member.priority for key, row in self._rows.items()}

    def sums(self) -> Sums:
        """The endpoints of now, counted."""
        seats = self.seats()
        return Sums(
            len(seats), sum(map(is_healthy, seats)), sum(map(is_degraded, seats)), sum(seat.excluded for seat in seats)
        )

    def replace(self, membership: Membership, now_ms: int) -> bool:
        """Take the endpoints as they are now; whether the set of them is another."""
        # Put in place at the end: a fork in the middle leaves the child the endpoints of before.
        before, rows = self._rows, dict[str, Row]()
        hostnames = Counter(each.hostname for each in membership.members) if self._settings.hash_hostnames else {}
        # By object first: of many endpoints few differ, and putting an address into text is most of looking one up.
        known = {id(row.member): row for row in before.values() if not row.is_leaving}
        for member in membership.members:
            row = known.get(id(member))
            if row is not None:
                rows[row.key] = row
                continue
            key = str(member.address)
            row = before.get(key)
            rows[key] = row = row or Row(key)
            if not row.is_known or row.member.check.is_off is not member.check.is_off:
                row.check = self._unchecked(member)
            row.member, row.is_leaving, row.is_known = member, False, True
            self._seat(row, now_ms, hostnames)
        for key, row in before.items():
            if key not in rows and self._stays(row):
                row.is_leaving = True
                rows[key] = row
        self._rows = rows
        return before.keys() != rows.keys()

    def checked(self, key: str, check: Check, now_ms: int) -> bool:
        """Take what checks made of an endpoint; whether pickers see a difference."""
        row = self._rows.get(key)
        if row is None or row.member.check.is_off:
            return False
        row.check = check
        if row.is_leaving and check.failed:
            del self._rows[key]
            return True
        return self._restood(row, now_ms)

    def eject(self, key: str, ejected: bool, now_ms: int) -> bool:
        """Set or clear outlier detection's flag; whether pickers see a difference."""
        row = self._rows.get(key)
        if row is None or row.is_ejected is ejected:
            return False
        row.is_ejected = ejected
        return self._restood(row, now_ms)

    def eject_only(self, keys: Collection[str], now_ms: int) -> None:
        """These are out, and no others."""
        for row in self._rows.values():
            if row.is_ejected or row.key in keys:
                self.eject(row.key, row.key in keys, now_ms)

    def _unchecked(self, member: Member) -> Check | None:
        if self._settings.check is None or member.check.is_off:
            return None
        return NEW._replace(pending=self._settings.waits_for_check)

    def _stays(self, row: Row) -> bool:
        if not self._settings.stays_while_healthy or row.check is None or row.check.failed:
            return False
        return row.member.health not in (Health.UNHEALTHY, Health.TIMEOUT)

    def _restood(self, row: Row, now_ms: int) -> bool:
        """Join what is known anew; whether pickers see a difference."""
        before, was_out = row.seat, _is_out(row.why)
        self._join(row, now_ms)
        item = before.item
        if _is_out(row.why) and not was_out:
            row.openings += 1
            item = item._replace(care=Care(row.openings))
        row.seat = before._replace(
            item=item, health=row.why.health, excluded=row.why.excluded, healthy_since_ms=self._started(row.since_ms)
        )
        return row.seat != before

    def _join(self, row: Row, now_ms: int) -> None:
        row.why = standing(row.member.health, row.check, ejected=row.is_ejected)
        if row.why.health is not Health.HEALTHY:
            row.since_ms = None
        elif row.since_ms is None:
            row.since_ms = now_ms

    def _seat(self, row: Row, now_ms: int, hostnames: Mapping[str, int]) -> None:
        member = row.member
        self._join(row, now_ms)
        metadata = _texts(member.metadata.get(_FILTER))
        is_named = bool(member.hostname) and hostnames.get(member.hostname) == 1
        hashed = metadata.get("hash_key") or (member.hostname if is_named else row.key)
        pick = _pick(self._settings, member, row.key, hashed)
        row.seat = Seat(
            pick if not row.openings else pick._replace(care=Care(row.openings)),
            hashed,
            member.weight,
            row.why.health,
            row.why.excluded,
            member.priority,
            member.locality,
            metadata,
            self._started(row.since_ms),
        )

    def _started(self, since_ms: int | None) -> int | None:
        """Only slow start reads it: without, a new moment must not look like a difference."""
        return None if self._settings.policy.slow_start is None else since_ms


def _is_out(why: Why) -> bool:
    """Whether what was seen holds an endpoint out, not what discovery says."""
    return why.ejected or why.failed_check


def _texts(block: object) -> dict[str, str]:
    if not isinstance(block, Mapping):
        return {}
    return {str(name): value for name, value in block.items() if isinstance(value, str)}


def _pick(settings: ClusterSettings, member: Member, key: str, hashed: str) -> Pick:
    url = f"{settings.scheme}://{key}" if settings.scheme else key
    host, port = member.address
    return Pick(
        LineId(f"{settings.name}/{key}"), (host, port), url, "direct", key, hostname=member.hostname, key=hashed
    )
