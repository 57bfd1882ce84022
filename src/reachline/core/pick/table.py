"""The policies by name: one file each, one line here."""

from __future__ import annotations

from random import Random
from typing import Final, Protocol, TypeVar

from reachline.core.pick.least_request import least_request
from reachline.core.pick.maglev import maglev
from reachline.core.pick.member import Memory, Picker, Source
from reachline.core.pick.peak_ewma import peak_ewma
from reachline.core.pick.policy import Policy
from reachline.core.pick.ring import ring_hash
from reachline.core.pick.round_robin import round_robin
from reachline.core.pick.uniform import uniform
from reachline.core.pick.weighted import weighted_random

__all__ = ["HASHING", "TABLE", "Make"]

T = TypeVar("T")


class Make(Protocol):
    """Makes the picker of one source of members; `policy` is read for what the picker's own file names."""

    def __call__(self, source: Source[T], policy: Policy, memory: Memory, rng: Random) -> Picker[T]: ...


TABLE: Final[dict[str, Make]] = {
    "weighted_random": weighted_random,
    "round_robin": round_robin,
    "client_side_weighted_round_robin": round_robin,
    "least_request": least_request,
    "peak_ewma": peak_ewma,
    "random": uniform,
    "ring_hash": ring_hash,
    "maglev": maglev,
}

HASHING: Final = frozenset({"ring_hash", "maglev"})
"""Those that keep callers together by key; their sources' weights are shares of 1."""
