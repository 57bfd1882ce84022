"""One SDK instance under virtual time: production's cluster, picker, local breaker and tally; only the calls are the world's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import add
from random import Random
from typing import Final, NamedTuple

from reachline.model import Failure, LineId, Outcome
from reachline.simulate.contender import Called, Choice
from reachline.simulate.reach.document import CLUSTER, name_of
from reachline.upstream import Cluster
from reachline.upstream.listing import LineList, Pick
from reachline.upstream.outcome import Column, column_of

__all__ = ["Client", "Post"]

_new: Final = tuple.__new__  # what a named tuple's own constructor calls, without the call: of millions in a run
_SPACING_MS: Final = 200
"""Between two posts, however many breakers move (`client.post`)."""
_KEEP_MS: Final = 10_000
"""Outcomes that found no center are dropped after this (`client.post`)."""


class Post(NamedTuple):
    """What one client tells the center."""

    client: str
    rows: tuple[Outcome, ...]
    made_ms: int


class Client:
    """One instance. Written by the contender."""

    def __init__(
        self,
        name: str,
        service: str,
        *,
        rng: Random,
        clock: Callable[[], float],
        flush_ms: int,
        number: int,
        stirred: set[int],
    ) -> None:
        """`stirred` gets its number whenever there is something to do for it at once."""
        self.name, self.service = name, service
        self.choice = Choice(0, {})
        self._clock = clock
        self._moved = False
        self.cluster = Cluster(CLUSTER, clock=clock, rng=rng, moved=self._note)
        self.cluster.wake()
        self._picks: dict[str, Pick] = {}
        self._history: deque[tuple[int, dict[str, Pick]]] = deque()
        self._flush_ms = flush_ms
        self._post_ms = flush_ms + number * flush_ms // 20
        self._spaced_ms = 0
        self._hurried = False
        self._pending: deque[tuple[int, tuple[Outcome, ...]]] = deque()
        self._waiting: list[Post] = []
        """Due already, and taken along by the next one."""
        self.due_ms: int | None = None
        """When a breaker's wait is over."""
        self.number, self._stirred = number, stirred
        self.wake_ms = 0
        """Nothing is to be done before."""

    def _stir(self) -> None:
        self.wake_ms = 0
        self._stirred.add(self.number)

    def _note(self) -> None:
        self._moved = self._hurried = True
        self._stir()

    def _rest_until(self) -> None:
        """Work out when there is something to do again."""
        due = self._post_ms if self.due_ms is None else min(self.due_ms, self._post_ms)
        self.wake_ms = min(due, self._spaced_ms) if self._hurried else due

    # -- lists and timers ------------------------------------------------------------------------------------------------------------

    def take(self, lines: LineList, now_ms: int) -> bool:
        """A list from the center; False where it is older than the one there is."""
        taken = self.cluster.replace(lines, source="center")
        if taken:
            self.cluster.heard()
        self._renew(now_ms)
        return taken

    def heard(self, now_ms: int) -> None:
        """The center stands by the list."""
        self.cluster.heard()
        self._renew(now_ms)

    def turn(self, now_ms: int) -> None:
        """A wait is over."""
        self.cluster.turn()
        self._renew(now_ms)

    def _renew(self, now_ms: int) -> None:
        """Look anew at what the picker offers."""
        self._moved = False
        offers = self.cluster.offers
        weights = {name_of(pick.line): share for pick, share in offers}
        trials = frozenset(name_of(pick.line) for pick, _ in offers if pick.is_trial)
        picks = {name_of(pick.line): pick for pick, _ in offers}
        if picks != self._picks:
            self._picks = {**self._picks, **picks}
            self._history.append((now_ms, self._picks))
        if (weights, trials) != (self.choice.weights, self.choice.trials):
            marks = tuple(
                round(1e6 * each) for each in (self.cluster.published.slow, self.cluster.published.crawl) if each
            )
            self.choice = Choice(self.choice.number + 1, weights, trials, marks)
        due = self.cluster.deadline()
        self.due_ms = None if due is None else round(1_000 * due)
        self._stir()

    # -- calls -------------------------------------------------------------------------------------------------------------------------

    def claim(self, line: str, now_ms: int) -> None:
        """A call on a line that is open to one only has begun."""
        if (pick := self._picks.get(line)) is not None:
            self.cluster.claim(pick)
        self._renew(now_ms)

    def called(self, called: Called, now_ms: int, timeout_ms: int) -> None:
        """Calls on one line ended."""
        pick = self._picks.get(called.line)
        if pick is None:
            return
        if not called.order and not (called.failed or called.late or called.errors):
            self._count(pick, called, called.ok)
            if self._moved:
                self._renew(now_ms)
            return
        told_ok = called.order.count(None)
        self._count(pick, called, called.ok - told_ok)
        for failure in called.order:
            begun = pick
            if failure is Failure.TIMEOUT:
                begun = self._pick_at(called.line, now_ms - timeout_ms) or pick
            self.cluster.record(begun, column_of(failure))
        told = called.failed + called.late + called.errors
        if told > len(called.order) - told_ok:
            self._rest(pick, called)
        if self._moved:
            self._renew(now_ms)
        elif called.order:
            due = self.cluster.deadline()
            self.due_ms = None if due is None else round(1_000 * due)
            self._stir()

    def _count(self, pick: Pick, called: Called, ok: int) -> None:
        """Those that went well, by how fast they were."""
        if ok <= 0:
            return
        if not called.over:
            self.cluster.tally.add(pick.line, pick.window, Column.OK, ok)
            return
        slow = min(ok, called.over[0])
        self.cluster.tally.add_timed(pick.line, pick.window, ok, slow, min(slow, called.over[-1]))

    def _rest(self, pick: Pick, called: Called) -> None:
        """Those of very many that no order tells of."""
        late, errors = called.order.count(Failure.TIMEOUT), called.order.count(Failure.STATUS)
        failed = len(called.order) - called.order.count(None) - late - errors
        for column, calls in (
            (Column.FAILED, called.failed - failed),
            (Column.LATE, called.late - late),
            (Column.ERRORS, called.errors - errors),
        ):
            if calls > 0:
                self.cluster.tally.add(pick.line, pick.window, column, calls)

    def _pick_at(self, line: str, at_ms: int) -> Pick | None:
        """The pick of a call that began then."""
        while len(self._history) > 1 and self._history[1][0] <= at_ms:
            self._history.popleft()
        return self._history[0][1].get(line) if self._history else None

    # -- posts -------------------------------------------------------------------------------------------------------------------------

    def post(self, now_ms: int, *, is_heard: bool, may_wait: Callable[[int], bool]) -> list[Post]:
        """What is due for the center now; kept for a while where none hears.

        `may_wait(until_ms)` says that nobody can tell whether this post comes now, or with the next one then.
        """
        if now_ms < self._post_ms and not (self._hurried and now_ms >= self._spaced_ms):
            self._rest_until()
            return []
        if now_ms >= self._post_ms:
            self._post_ms += self._flush_ms
        self._spaced_ms, self._hurried = now_ms + _SPACING_MS, False
        self._rest_until()
        if rows := self.cluster.take(self.service):
            self._pending.append((now_ms, rows))
        while self._pending and now_ms - self._pending[0][0] > _KEEP_MS:
            self._pending.popleft()
        if not is_heard:
            return []
        if self._pending:
            batches = [batch for _, batch in self._pending]
            rows = _summed([row for batch in batches for row in batch]) if len(batches) > 1 else batches[0]
            self._waiting.append(Post(self.name, rows, now_ms))
            self._pending.clear()
        if not self._waiting or may_wait(self._post_ms):
            return []
        posts, self._waiting = self._waiting, []
        return [_joined(posts)] if _may_join(posts) else posts


def _may_join(posts: Sequence[Post]) -> bool:
    """Whether the center cannot tell these from one that says all of it with the last: then it heard no success of a line later."""
    last = {(row.line, row.window) for row in posts[-1].rows if row.ok}
    return all((row.line, row.window) in last for post in posts[:-1] for row in post.rows if row.ok)


def _joined(posts: Sequence[Post]) -> Post:
    last = posts[-1]
    return last if len(posts) == 1 else last._replace(rows=_summed([row for post in posts for row in post.rows]))


def _summed(rows: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """One row a line and window."""
    found: dict[tuple[LineId, int], Outcome] = {}
    for row in rows:
        key = row.line, row.window
        was = found.get(key)
        found[key] = row if was is None else _new(Outcome, (*row[:3], *map(add, was[3:], row[3:])))
    return tuple(found.values())
