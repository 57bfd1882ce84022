"""The observatory door: an Xray document becomes settings, observers and balancers; what they know becomes Xray's own answers.

settings = read(text, name="xray.json")
made = machines(settings, now=now, rng=rng)
debug_vars(made.observer.statuses(now))
"""

from __future__ import annotations

from reachline.doors.observatory.changing import Changes, own_tags
from reachline.doors.observatory.document import read
from reachline.doors.observatory.lined import Lined, lined
from reachline.doors.observatory.merging import Source, looks_like_xray
from reachline.doors.observatory.relay import Core, account
from reachline.doors.observatory.relay import document as relay_document
from reachline.doors.observatory.ruling import Machines, Rules, machines, observed, rules
from reachline.doors.observatory.shown import OutboundStatus, debug_vars, show
from reachline.doors.observatory.values import Balancer, Observatory, Outbound, Reach, Rule, Settings

__all__ = [
    "Balancer",
    "Changes",
    "Core",
    "Lined",
    "Machines",
    "Observatory",
    "Outbound",
    "OutboundStatus",
    "Reach",
    "Rule",
    "Rules",
    "Settings",
    "Source",
    "account",
    "debug_vars",
    "lined",
    "looks_like_xray",
    "machines",
    "observed",
    "own_tags",
    "read",
    "relay_document",
    "rules",
    "show",
]
