"""Every parser, and what it may raise. A target is a function of bytes; it asserts what must hold of what comes back."""

from __future__ import annotations

from typing import Final

from tests.fuzz.envoys import envoys_targets, proxies_targets
from tests.fuzz.messages import answers_targets, bodies_targets, whole_targets
from tests.fuzz.multiplexed import multiplexed_targets
from tests.fuzz.passages import passages_targets
from tests.fuzz.planes import evidence_targets, followers_targets, planes_targets
from tests.fuzz.talks import conversations, talks_targets
from tests.fuzz.target import ROOT, Target
from tests.fuzz.texts import texts_targets

__all__ = ["ROOT", "TARGETS", "Target", "conversations"]

TARGETS: Final[dict[str, Target]] = {
    each.name: each
    for each in (
        *talks_targets(),
        *whole_targets(),
        *answers_targets(),
        *bodies_targets(),
        *planes_targets(),
        *followers_targets(),
        *evidence_targets(),
        *texts_targets(),
        *envoys_targets(),
        *proxies_targets(),
        *multiplexed_targets(),
        *passages_targets(),
    )
}
