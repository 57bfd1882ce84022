"""Active checks of one cluster: a task for each endpoint that asks, hears, and waits as the state machine says.

Standard library only, on any event loop. `core.checking` decides, `talk.checked` knows what is asked, `net.dialogue` carries it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from reachline.core.checking import NEW, After, Check, Fault, Verdict, failed_by_call, heard
from reachline.core.checking_rules import CheckRules, checked, first_wait_ms
from reachline.errors import ConfigError, Problem
from reachline.net.dialogue import Dialogue
from reachline.net.tls import Contexts
from reachline.talk.asking import Asked

__all__ = ["Checks", "Listener", "Questions", "Target"]

_log: Final = logging.getLogger(__name__)
_MS: Final = 1_000


class Target(NamedTuple):
    """Whom to check. `key` is what the endpoint is known by, `address:port`; `host` and `port` are where its checks go."""

    key: str
    host: str
    port: int
    hostname: str = ""
    """Whom it is asked as; empty: as the cluster."""


class Questions(Protocol):
    """One endpoint's way to be asked: `net.dialogue.Dialogue`, or whatever stands for it."""

    @property
    def lost(self) -> asyncio.Event:
        """Set where a connection that was kept has failed between two checks."""

    async def ask(self) -> Verdict | None:
        """What one check came to, or None: a fault of our own."""

    def close(self) -> None:
        """Let go of whatever is held."""


class Listener(Protocol):
    """Hears of every result; must not block, raise or await."""

    def __call__(self, key: str, after: After, verdict: Verdict, /) -> None:
        """`after.turn` says whether health changed, `after.check.health` to what, `after.events` what to log."""


class _Watched:
    """One endpoint that is checked. Written by its task, and by `failed_by_call` between its awaits."""

    __slots__ = ("check", "task")

    def __init__(self, check: Check) -> None:
        self.check = check
        self.task: asyncio.Task[None] | None = None


class Checks:
    """Checks of one cluster. All of it is used from the one thread that runs `run`."""

    def __init__(
        self,
        cluster: str,
        check: Asked,
        rules: CheckRules,
        *,
        seed: int,
        told: Listener,
        has_traffic: Callable[[], bool] = lambda: True,
        questions: Callable[[Target], Questions] | None = None,
    ) -> None:
        """ConfigError where rules or TLS cannot be. `has_traffic`: whether anybody ever called the cluster; until then checks are rare. `questions` stands in for the network."""
        self.cluster: Final = cluster
        self._rules: Final = checked(rules, place=f"clusters.{cluster}.health_check")
        self._check: Final = check
        self._seed: Final = seed
        self._told: Final = told
        self._has_traffic: Final = has_traffic
        self._contexts: Final = Contexts()
        self._questions: Final = questions or self._dialogue
        self._check_tls()
        self._targets: dict[str, Target] = {}
        self._watched: dict[str, _Watched] = {}
        self._group: asyncio.TaskGroup | None = None
        self._voids = 0

    @property
    def is_settled(self) -> bool:
        """Whether every endpoint of now has had its first result; those that left keep nobody waiting."""
        return not any(each.check.first for each in self._watched.values())

    @property
    def voids(self) -> int:
        """Checks that could not be made for a fault of this machine."""
        return self._voids

    def of(self, key: str) -> Check | None:
        """What checks made of an endpoint so far; None: it is not checked."""
        watched = self._watched.get(key)
        return None if watched is None else watched.check

    def replace(self, targets: Iterable[Target], *, pending: bool = False) -> None:
        """The endpoints to check, as they are now. Who stays keeps its state, who leaves is let go of at once.

        One whose checks go elsewhere now is checked anew. `pending`: new ones are left out of sums until their first result.
        """
        wanted = {each.key: each for each in targets}
        for key in [key for key, known in self._targets.items() if wanted.get(key) != known]:
            self._drop(key)
        for key, target in wanted.items():
            if key not in self._targets:
                self._targets[key] = target
                self._watched[key] = _Watched(NEW._replace(pending=pending))
                self._start(key)

    def failed_by_call(self, key: str) -> None:
        """A real call to the endpoint was answered with the header of immediate failure. Its next check stays when it is due."""
        watched = self._watched.get(key)
        if watched is not None:
            after = failed_by_call(watched.check, self._rules)
            watched.check = after.check
            self._told(key, after, Verdict(Fault.PASSIVE, excluded=True, note="said so on a call"))

    async def run(self) -> None:
        """Check until cancelled; then every connection is closed and every task over."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for key in self._watched:
                    self._start(key)
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            for each in self._watched.values():
                each.task = None

    def _start(self, key: str) -> None:
        watched = self._watched[key]
        if self._group is not None and watched.task is None:
            watched.task = self._group.create_task(self._watch(self._targets[key], watched))

    def _drop(self, key: str) -> None:
        del self._targets[key]
        task = self._watched.pop(key).task
        if task is not None:
            task.cancel()

    def _dialogue(self, target: Target) -> Dialogue:
        return Dialogue(
            self._check,
            target.host,
            target.port,
            authority=target.hostname or self.cluster,
            reuse=self._rules.reuse_connection,
            contexts=self._contexts,
            name=target.hostname,
        )

    def _check_tls(self) -> None:
        """ConfigError where it cannot be set up: better at start than at each check."""
        secure = self._check.secure
        if secure is None:
            return
        try:
            self._contexts.of(secure, verify=secure.verify)
        except OSError as error:
            place, rule = f"clusters.{self.cluster}.health_check", f"TLS cannot be set up: {error}"
            raise ConfigError(Problem(place=place, path="tls", value=secure.ca, rule=rule)) from error

    async def _watch(self, target: Target, watched: _Watched) -> None:
        questions = self._questions(target)
        wait = first_wait_ms(self._rules, line=target.key, seed=self._seed)
        try:
            while True:
                if await _ended_within(questions.lost, wait):
                    questions.lost.clear()
                    verdict: Verdict | None = Verdict(Fault.NETWORK, note="closed between two checks")
                else:
                    verdict = await self._asked(questions)
                wait = self._rules.interval_ms if verdict is None else self._take(target.key, watched, verdict)
        finally:
            questions.close()

    async def _asked(self, questions: Questions) -> Verdict | None:
        try:
            async with asyncio.timeout(self._rules.timeout_ms / _MS):
                verdict = await questions.ask()
        except TimeoutError:
            return Verdict(Fault.NETWORK_TIMEOUT, note=f"no answer within {self._rules.timeout_ms} ms")
        if verdict is None:
            self._voids += 1
            if self._voids == 1:
                _log.warning("check_void", extra={"cluster": self.cluster})
        return verdict

    def _take(self, key: str, watched: _Watched, verdict: Verdict) -> int:
        """Believe a verdict; how long to wait now, in ms."""
        after = heard(watched.check, verdict, self._rules, line=key, has_traffic=self._has_traffic(), seed=self._seed)
        watched.check = after.check
        self._told(key, after, verdict)
        return self._rules.interval_ms if after.wait_ms is None else after.wait_ms


async def _ended_within(lost: asyncio.Event, wait: int) -> bool:
    """Wait for so many ms; True: the connection was lost before they were over."""
    if not wait:
        return False
    try:
        async with asyncio.timeout(wait / _MS):
            await lost.wait()
    except TimeoutError:
        return False
    return True
