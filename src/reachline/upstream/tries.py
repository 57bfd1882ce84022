"""One call, tried again where that helps: on another line, idempotent, within its deadline, paid from one budget of the process.

`Tries` decides and waits for nobody; `attempts` is the loop for people, which waits in the caller's own way: blocking, asyncio, trio.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

from reachline.core.budget import Budget, back_off_us
from reachline.model import Seconds
from reachline.net.forks import FORKS
from reachline.upstream.attempt import HIGH, RETRY, USUAL, Attempt

if TYPE_CHECKING:
    from reachline.upstream.circuit import Circuit
    from reachline.upstream.cluster import Cluster
    from reachline.upstream.kept import KeptCluster
    from reachline.upstream.listing import Key, Pick

__all__ = [
    "BUDGET",
    "IDEMPOTENT",
    "TRIES",
    "Plan",
    "SharedBudget",
    "Tries",
    "Try",
    "acall",
    "attempts",
    "call",
    "checked",
    "first",
]

T = TypeVar("T")

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""HTTP methods that may be sent twice (RFC 9110, 9.2.2)."""
TRIES: Final = 3
"""The first and two more: a third line that fails as well says that it is not the lines."""
_MICRO: Final = 1_000_000


class Plan(TypedDict, total=False):
    """What a caller says of one call."""

    idempotent: bool
    """Whether it may be made twice (False)."""
    tries: int
    """How often at most, the first included (3)."""
    deadline: Seconds | None
    """For all tries and the waits between them (None: no end)."""
    key: Key
    """For policies that keep callers together."""
    subset: Mapping[str, str] | None
    """Metadata that the endpoint must have, in clusters kept in process."""
    high: bool
    """Whether it counts by the thresholds of high priority, in clusters that have `circuit_breakers` (False)."""


_WORDS: Final = Plan.__annotations__.keys()


class SharedBudget:
    """The retries of one process. `_lock` guards all of it, and both are made anew in a forked child."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Nothing earned, nothing spent."""
        self._lock = threading.Lock()
        self._budget = Budget()
        self._rng = Random()
        self._second = self._calls = 0
        """Calls of this second, which the budget is told of once it is over or somebody asks."""

    def earn(self) -> None:
        """A call is made for the first time."""
        second = int(time.monotonic())
        with self._lock:
            if second != self._second:
                self._tell(second)
            self._calls += 1

    def spend(self) -> bool:
        """Whether one more try may be made now; if so, it is paid for."""
        with self._lock:
            self._tell(self._second)
            return self._budget.spend(_now_ms())

    def left(self) -> int:
        """How many tries could be made now."""
        with self._lock:
            self._tell(self._second)
            return self._budget.left(_now_ms())

    def _tell(self, second: int) -> None:
        """The budget hears of the calls that were made; those from now on are of this second. The lock is held."""
        if self._calls:
            self._budget.earn(self._second * 1_000, self._calls)
        self._second, self._calls = second, 0

    def wait(self, retries: int) -> Seconds:
        """Before the next try, by chance."""
        return back_off_us(retries, self._rng.randrange(_MICRO)) / _MICRO


BUDGET: Final = SharedBudget()
"""Of this process: several clients in it are one caller to the far side."""
FORKS.add(BUDGET.renew)


def checked(plan: Plan) -> Plan:
    """The plan; TypeError for a word that is none, as of any argument that a function does not have."""
    if not plan.keys() <= _WORDS:
        unknown = ", ".join(sorted(plan.keys() - _WORDS))
        raise TypeError(f"a call has no {unknown}; it may have {', '.join(_WORDS)}")
    return plan


def first(cluster: Cluster | KeptCluster, plan: Plan, budget: SharedBudget = BUDGET) -> Attempt:
    """The first try of a call without a deadline, on its way; a `Tries` for the others may be made once there is another."""
    budget.earn()
    return Attempt(cluster, plan.get("key"), plan.get("subset"), mark=HIGH if plan.get("high") else USUAL).__enter__()


class Tries:
    """The tries of one call, made one after the other: `begin`, end it, `again`, and from the start. Written by its one caller."""

    __slots__ = ("_avoided", "_budget", "_choice", "_cluster", "_held", "_plan", "_tried", "until")

    until: Seconds | None
    """The deadline, on the monotonic clock."""

    def __init__(self, cluster: Cluster | KeptCluster, plan: Plan, budget: SharedBudget = BUDGET) -> None:
        """`plan` is one that `checked` let pass."""
        self._cluster: Final = cluster
        self._budget: Final = budget
        self._plan: Final = plan
        deadline = plan.get("deadline")
        self.until = None if deadline is None else time.monotonic() + deadline
        self._tried: tuple[Pick, ...] = ()
        self._avoided: tuple[Pick, ...] = ()
        self._choice: Pick | None = None
        self._held: Circuit | None = None
        """Where the next try has its place already."""

    def begin(self) -> Attempt:
        """The next try, on its way; it ends like any other attempt. Raises `Shed` as a pick does, a further try `Overflow` alone."""
        plan, choice, circuit = self._plan, self._choice, self._cluster.circuit
        if choice is None:
            self._budget.earn()
        mark = self._mark | (RETRY if self._tried else USUAL)
        if self._tried and circuit is not None and self._held is not circuit:
            circuit.hold(mark)
        self._held = None
        call = Attempt(self._cluster, plan.get("key"), plan.get("subset"), choice=choice, until=self.until, mark=mark)
        return call.__enter__()

    def again(self, call: Attempt) -> Seconds | None:
        """After `call` has ended: how long to wait before the next try, or None where its end is the call's end.

        The next line is chosen here, so that there is one. Who is told to wait and gives up says so by `give_up`, and has wasted a retry.
        """
        if not self._plan.get("idempotent", False) or call.pick is None or not call.is_retryable:
            return None
        self._tried = (*self._tried, call.pick)
        if len(self._tried) >= self._plan.get("tries", TRIES):
            return None
        wait = self._budget.wait(len(self._tried) - 1)
        if self.until is not None and time.monotonic() + wait >= self.until:
            return None
        self._choice = self._other()
        circuit = self._cluster.circuit
        if self._choice is None or not (circuit is None or circuit.may_retry(self._mark)):
            return None
        self._held = circuit
        is_paid = self._budget.spend()
        self._cluster.tally.retried(is_paid=is_paid)
        if not is_paid:
            self.give_up()
        return wait if is_paid else None

    def give_up(self) -> None:
        """The next try, which `again` let pass, is not made; nothing where there is none."""
        held, self._held = self._held, None
        # In a forked child the place was the parent's.
        if held is not None and held is self._cluster.circuit:
            held.give_up(self._mark)

    def elsewhere(self, call: Attempt) -> bool:
        """Whether the next `begin` has another line than this call, which was never made; if there is none, it has the same.

        That is no retry: nobody was asked twice.
        """
        if call.pick is None:
            return False
        self._avoided = (*self._avoided, call.pick)
        found = self._other()
        self._choice = found or call.pick
        return found is not None

    @property
    def _mark(self) -> int:
        return HIGH if self._plan.get("high") else USUAL

    def _other(self) -> Pick | None:
        plan = self._plan
        return self._cluster.another(self._tried + self._avoided, plan.get("key"), plan.get("subset"))


class Try:
    """One try of `attempts`, for one `with` or `async with`. Its exception ends here if there is to be another."""

    __slots__ = ("_call", "_tries", "_wait", "next_wait")

    next_wait: Seconds | None
    """Before the next try; None where there is none."""

    def __init__(self, tries: Tries, wait: Seconds) -> None:
        self._tries: Final = tries
        self._wait: Final = wait
        self.next_wait = None

    def __enter__(self) -> Attempt:
        if self._wait:
            time.sleep(self._wait)
        self._call: Attempt = self._tries.begin()
        return self._call

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._call.__exit__(kind, error, trace)
        if error is not None and not isinstance(error, Exception):
            return False
        self.next_wait = self._tries.again(self._call)
        return self.next_wait is not None

    async def __aenter__(self) -> Attempt:
        if self._wait:
            await sleep(self._wait)
        self._call = self._tries.begin()
        return self._call

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, trace)


def attempts(cluster: Cluster | KeptCluster, **plan: Unpack[Plan]) -> Iterator[Try]:
    """Tries of one call until one of them is its end: `for each in …: with each as call:`."""
    tries, wait = Tries(cluster, checked(plan)), 0.0
    try:
        while True:
            each = Try(tries, wait)
            yield each
            if each.next_wait is None:
                return
            wait = each.next_wait
    finally:
        tries.give_up()


def call(cluster: Cluster | KeptCluster, function: Callable[[Attempt], T], **plan: Unpack[Plan]) -> T:
    """What `function` comes to, called with each try in turn. An answer that has an HTTP status is heeded."""
    tries, wait = Tries(cluster, checked(plan)), 0.0
    try:
        while True:
            each = Try(tries, wait)
            with each as attempt:
                answer = function(attempt)
                attempt.heed(answer)
            if each.next_wait is None:
                return answer
            wait = each.next_wait
    finally:
        tries.give_up()


async def acall(cluster: Cluster | KeptCluster, function: Callable[[Attempt], Awaitable[T]], **plan: Unpack[Plan]) -> T:
    """`call` for a function that is awaited."""
    tries, wait = Tries(cluster, checked(plan)), 0.0
    try:
        while True:
            each = Try(tries, wait)
            async with each as attempt:
                answer = await function(attempt)
                attempt.heed(answer)
            if each.next_wait is None:
                return answer
            wait = each.next_wait
    finally:
        tries.give_up()


async def sleep(wait: Seconds) -> None:
    """Under asyncio or trio, whichever runs the caller."""
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        await trio.sleep(wait)
    else:
        await asyncio.sleep(wait)


def _now_ms() -> int:
    return int(time.monotonic() * 1_000)
