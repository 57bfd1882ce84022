"""What a contender is: it asks for probes, sees what they and the calls came to, and says how each client spreads its calls.

A contender knows its lines and who sends, and nothing of the world behind them: what it believes, it learnt from `Seen`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, NamedTuple, Protocol

from reachline.model import Failure, Kind

__all__ = [
    "STEP_MS",
    "Called",
    "Choice",
    "Contender",
    "Event",
    "Maker",
    "Probed",
    "Run",
    "RunLine",
    "Seen",
    "What",
    "Wish",
]

STEP_MS: Final = 100
"""One step of the world: all that happens within it is told together, at its end."""


class RunLine(NamedTuple):
    """One line as everybody may know it."""

    name: str
    base: int = 100
    role: str = ""
    """`primary`, `backup`, `traffic`, `reserve`, or empty."""
    provider: str = ""
    capacity_rps: int | None = None


def _nowhere(_: Wish, __: int, ___: int) -> None:
    """There is no world to send into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that a contender is made of. `rng` is its own: whatever it draws changes nothing in the world."""

    lines: tuple[RunLine, ...]
    clients: tuple[str, ...]
    """`c0`, `c1`…: processes that make calls. Each may also probe, as a proxy with health checks of its own does."""
    vantages: tuple[str, ...]
    """`a1`, `a2`…: machines that only probe."""
    policy: str
    """`weighted`, `primary_backup` or `ab_groups`."""
    timeout_ms: int
    """A call that takes longer has failed for its caller."""
    seed: int
    rng: Random
    send: Callable[[Wish, int, int], None] = _nowhere
    """`send(wish, at_ms, token)`: one attempt of this kind at that moment, besides the wishes that repeat; not in the past. It comes
    back as `Probed` with the token."""


class Wish(NamedTuple):
    """A probe to be sent again and again: `burst` attempts at once, each from a source port of its own.

    `kind` is TCP (a connect), HTTP (GET of the health path on a new connection) or ICMP (one echo). `vantage` is one of
    the run's vantages or clients. `timeout_ms` is when an attempt is given up: slower ones end as TIMEOUT without an RTT.
    """

    vantage: str
    line: str
    kind: Kind
    every_ms: int
    timeout_ms: int
    phase_ms: int = 0
    """When the first one is sent."""
    burst: int = 1


class Probed(NamedTuple):
    """How one attempt of a wish ended, at `at_ms`. `failure` None: well. A STATUS or REFUSED one has an RTT all the same."""

    at_ms: int
    wish: Wish
    failure: Failure | None
    rtt_us: int | None
    """Of the connect for TCP, of connect and answer for HTTP, of the echo for ICMP."""
    syn_lost: int = 0
    """SYNs (or echoes) lost on the way of this attempt."""
    token: int = 0
    kernel_us: int | None = None
    """One round trip as the kernel of the prober timed it (TCP_INFO, receive stamps), for those who ask it."""


class Called(NamedTuple):
    """The calls of one client on one line that ended since it was last told of them: at once where one did not end well, else each second."""

    client: str
    line: str
    ok: int = 0
    failed: int = 0
    """Refused, reset, unreachable: known at once."""
    late: int = 0
    """Not answered within the run's timeout."""
    errors: int = 0
    """Answered with a 5xx."""
    mean_us: int = 0
    """Mean round trip of those that were answered, 5xx too; 0 where none was, and for a choice with `marks_us`."""
    over: tuple[int, ...] = ()
    """Of `ok`: those that took longer than each of the choice's `marks_us`."""
    order: tuple[Failure | None, ...] = ()
    """How they ended one after the other (None: well; STATUS: 5xx; TIMEOUT: late; RESET and REFUSED: failed): all of them while
    some did not end well and they are few, else only a sample in proportion. Empty: all were well."""


class Seen(NamedTuple):
    """What ended in the step before `now_ms`."""

    now_ms: int
    probes: Sequence[Probed] = ()
    calls: Sequence[Called] = ()
    trials: Sequence[tuple[str, str]] = ()
    """(client, line) of calls that began by a `Choice.trials`: no second one begins until the choice is another."""


class What(Enum):
    """What a contender did to a line, in words that can be scored alike for all of them."""

    CUT = "cut"
    """Its weight fell, but it still gets calls."""
    OPEN = "open"
    """It gets no calls, or trials only: ejected, tripped, dead, unhealthy."""
    TRIAL = "trial"
    """First calls on purpose after it was open."""
    CLOSE = "close"
    """Trusted with its full share again, or on the way there without further proof."""


class Event(NamedTuple):
    """One decision. `client` is empty for one that holds for all; a decision of one client's own names it."""

    at_ms: int
    line: str
    what: What
    client: str = ""


class Choice(NamedTuple):
    """How one client spreads its calls now: weights by line name, in any unit; a line that is missing has none.

    Whoever chooses otherwise (peak EWMA of two random ones, least ping) says the shares that this comes to. A choice must have
    another `number` whenever its weights are others: the world looks at weights only then.
    """

    number: int
    weights: Mapping[str, float]
    trials: frozenset[str] = frozenset()
    """Lines that get one single call, once chance picks them; until the next choice the others share what would go there."""
    marks_us: tuple[int, ...] = ()
    """Round trips of which the client counts the slower ones, rising: `Called.over` tells of them."""


class Contender(Protocol):
    """One way to steer, for one run. The world calls `step` every `STEP_MS`, then asks each client's `choice`."""

    def wishes(self) -> Sequence[Wish]:
        """The probes it wants, asked once."""
        ...

    def step(self, seen: Seen) -> Sequence[Event]:
        """Take in what ended, let timers take effect as of `seen.now_ms`, and say what was decided."""
        ...

    def choice(self, client: str) -> Choice:
        """How this client spreads its calls from now on."""
        ...


Maker = Callable[[Run], Contender]
"""What a table of contenders holds."""
