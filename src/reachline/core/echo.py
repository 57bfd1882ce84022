"""What is said of many lines in the same words, made once: values that are equal are one. Decides nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from reachline.core.evidence import TRUST, Evidence, Said
from reachline.core.quorum import Ballot
from reachline.model import Kind, VantageId, Vote, Zone

__all__ = ["FAILED", "LOSS", "brought", "calm_ballot", "word"]

LOSS: Final = {kind: f"{kind}.loss" for kind in Kind}
FAILED: Final = {kind: f"{kind}.failed" for kind in Kind}
"""The metrics that a vote without complaint names."""


@lru_cache(maxsize=1 << 12)
def calm_ballot(vantage: VantageId, said: tuple[str, int, int], received_ms: int, doubt: int) -> Ballot:
    """A ballot without any complaint: metric, bad ones and of how many. A heartbeat brings the same of most lines."""
    return Ballot(Zone.H, received_ms, doubt, Vote(vantage, Zone.H, *said, 0))


@lru_cache(maxsize=1 << 12)
def brought(attempts: int, failed: int, slow: int, crawl: int) -> Evidence:
    """What one reading brings; most bring the same few attempts and nothing else."""
    return Evidence(attempts, failed, slow, crawl)


@lru_cache(maxsize=1 << 12)
def word(seen: Evidence, before: int = 0) -> Said:
    """That a vantage saw this, and how much it complained before. A tick lets go of fifty thousand of them at once: of few there is
    little to free, and those who say the same of lines that are alike are heard once (`core.hearing`).
    """
    return Said(TRUST, seen, before)
