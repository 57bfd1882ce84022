"""One call on one line: picked on the way in, timed, and judged by how the block ends on the way out.

Nothing here waits, so the same object serves `with` and `async with` under any event loop. Exceptions pass untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import modules
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from reachline.model import Failure, LineId, Seconds
from reachline.upstream.outcome import (
    Column,
    FailureName,
    code_of,
    column_of,
    column_of_status,
    column_of_word,
    failure_of,
    status_of,
)
from reachline.upstream.spans import annotate

if TYPE_CHECKING:
    from reachline.upstream.circuit import Circuit
    from reachline.upstream.cluster import Cluster
    from reachline.upstream.kept import KeptCluster
    from reachline.upstream.listing import Key, Pick
    from reachline.upstream.tally import Tally

__all__ = ["HIGH", "RETRY", "RETRYABLE", "USUAL", "Attempt"]

USUAL: Final = 0
HIGH: Final = 1
"""Counted apart, by the thresholds of high priority."""
RETRY: Final = 2
"""A further try of one call. To be or-ed."""

_CANCELLATIONS: Final = ("CancelledError", "Cancelled")
RETRYABLE: Final = frozenset({502, 503, 504})
"""Statuses that say: not this one, or not now. Any other server error is the answer to this call, wherever it is made."""
_ERRORS_FROM: Final = 500
_OK, _ERRORS = Column.OK, Column.ERRORS
"""By name here: looking a member up in its Enum costs as much as the whole pick on Python 3.11."""


class Attempt:
    """A call in the making; used once. `line` and `address` are None where the cluster has no line to offer.

    Written by the one thread or task that entered it.
    """

    __slots__ = (
        "_choice", "_circuit", "_cluster", "_code", "_column", "_ended", "_key", "_mark", "_started", "_subset", "_tally",
        "_until", "pick",
    )  # fmt: skip

    pick: Pick | None
    """The chosen line with all it says, or None."""

    def __init__(
        self,
        cluster: Cluster | KeptCluster,
        key: Key = None,
        subset: Mapping[str, str] | None = None,
        *,
        choice: Pick | None = None,
        until: Seconds | None = None,
        mark: int = USUAL,
    ) -> None:
        """`choice`: the line is chosen already, by `another`. `until`: a deadline on the monotonic clock, for `remaining`. `mark`: what it counts as in a `Circuit`."""
        self._cluster: Final = cluster
        self._key: Final = key
        self._subset: Final = subset
        self._choice: Final = choice
        self._until: Final = until
        self._mark: Final = mark
        self._circuit: Circuit | None = None
        """Of a call that is counted there, and is to leave."""
        self._code: int | None = None
        self._column: Column | None = None
        self._ended: Seconds | None = None
        self.pick = None

    @property
    def elapsed(self) -> Seconds | None:
        """How long the block took, or the answer to begin; None until then."""
        return None if self._ended is None else self._ended - self._started

    @property
    def remaining(self) -> Seconds | None:
        """What is left of the deadline that `attempts` or `call` was given, for the call's own timeout; None without one."""
        return None if self._until is None else max(self._until - monotonic(), 0.0)

    @property
    def is_retryable(self) -> bool:
        """Once it has ended: whether it failed in a way that another line might not."""
        column = self._column
        if column is _ERRORS:
            return self._code is None or self._code in RETRYABLE
        return column is Column.FAILED or column is Column.LATE

    @property
    def line(self) -> LineId | None:
        """`cluster/line[@origin]`."""
        return self.pick.line if self.pick else None

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port, as `socket.create_connection` takes them."""
        return self.pick.address if self.pick else None

    @property
    def url(self) -> str | None:
        """Scheme, host and port without a path, e.g. `https://a.example:8443`."""
        return self.pick.url if self.pick else None

    @property
    def via(self) -> str | None:
        """How to leave: `direct`, or the URL of a proxy."""
        return self.pick.via if self.pick else None

    def __bool__(self) -> bool:
        """Whether there is a line to call."""
        return self.pick is not None

    def ok(self) -> None:
        """The call went well, whatever the block raises."""
        self._column = Column.OK

    def fail(self, failure: FailureName | Failure = "reset") -> None:
        """The call failed so, though nothing was raised. A name that we do not know counts as a transport failure."""
        self._say(column_of_word(failure), "fail", failure)

    def status(self, code: int) -> None:
        """The call was answered with this HTTP status: 500 and above is a server error, all else is well."""
        if type(code) is int and code < _ERRORS_FROM:
            self._column, self._code = _OK, code
            return
        column = column_of_status(code)
        self._say(column, "status", code)
        self._code = None if column is None else code

    def answered(self, code: int | None = None) -> None:
        """The answer begins now, with this status: what is read of it from here on is not the line's delay."""
        self._ended = monotonic()
        if type(code) is int and code < _ERRORS_FROM:
            self._column, self._code = _OK, code
        elif code is not None:
            self.status(code)

    def heed(self, answer: object) -> None:
        """Take the HTTP status of an answer that any library made; nothing where it has none, or the caller has said more."""
        if self._column is None and (code := status_of(answer)) is not None:
            self.status(code)
        self.heed_load(answer)

    def heed_load(self, answer: object) -> None:
        """Take the load that an answer of any library reports among its headers, where the cluster weighs by it."""
        headers = None if self._cluster.told is None else getattr(answer, "headers", None)
        if isinstance(headers, Mapping):
            self.load(headers.get)

    def load(self, header: Callable[[str], str | bytes | None]) -> None:
        """What the endpoint reports of its load (ORCA), among an answer's headers: `call.load(answer.headers.get)`.

        For policies that weigh by it; for others, and where there is none or it cannot be read, nothing.
        """
        told, pick = self._cluster.told, self.pick
        if told is None or pick is None:
            return
        from reachline.wire.orca import report_in  # noqa: PLC0415  (only who weighs by reports needs it)

        report = report_in(header)
        if report is not None:
            told(pick, report)

    def _say(self, column: Column | None, method: str, argument: object) -> None:
        """The last word so far; one that makes no sense leaves what was said before, or what the block's end says."""
        if column is None:
            self._cluster.misused(method, argument)
        else:
            self._column, self._code = column, None

    def __enter__(self) -> Self:
        cluster = self._cluster
        self._tally: Tally = cluster.tally
        if cluster.circuit is None:
            self.pick = cluster.begin(self._key, self._subset, self._choice)
        else:
            self.pick = self._limited(cluster.circuit)
        self._started: Seconds = monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended, pick = self._ended, self.pick
        # After a fork the child has a circuit of its own: another thread of the parent's may hold the lock of this one for ever.
        if self._circuit is not None and self._circuit is self._cluster.circuit:
            self._circuit.leave(self._mark)
        if ended is None:
            ended = self._ended = monotonic()
        if pick is None:
            return
        column = self._column
        if column is None:
            column = self._column = _OK if error is None else self._inferred(error, monotonic() - self._started)
        # After a fork the child has a tally of its own: a call that began in the parent is the parent's to count.
        if self._tally is self._cluster.tally:
            self._cluster.finish(pick, column, ended - self._started, self._code)
        if "opentelemetry.trace" in modules:
            annotate(self._cluster.name, pick.line, column)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _limited(self, circuit: Circuit) -> Pick | None:
        """A line, if one more call may be under way; raises Overflow, or whatever a pick does. A call without a line is not under way."""
        circuit.enter(self._mark)
        try:
            pick = self._cluster.begin(self._key, self._subset, self._choice)
        except BaseException:
            circuit.leave(self._mark)
            raise
        if pick is None:
            circuit.leave(self._mark)
        else:
            self._circuit = circuit
        return pick

    def _inferred(self, error: BaseException, elapsed: Seconds) -> Column:
        """A caller that gave up waiting has seen a late call; one that was cancelled early has seen nothing."""
        if _is_cancellation(error):
            return Column.LATE if elapsed >= self._cluster.patience else Column.NONE
        column = column_of(failure_of(error))
        if column is _ERRORS:
            self._code = code_of(error)
        return column


def _is_cancellation(error: BaseException) -> bool:
    """asyncio's or trio's; by name, so that neither is imported for a caller who uses the other or none."""
    return any(kind.__name__ in _CANCELLATIONS for kind in type(error).__mro__)
