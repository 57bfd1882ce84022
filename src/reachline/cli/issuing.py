"""What the commands share that give out certificates and tokens: who gives them out, when, and for how long."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime, timedelta

from reachline.doors.units import seconds
from reachline.errors import ConfigError, Problem

__all__ = ["moment", "now", "span", "user"]


def now() -> datetime:
    """The wall clock, UTC."""
    return datetime.now(UTC)


def moment(unix: float) -> str:
    """Unix seconds as people and scripts read them."""
    return f"{datetime.fromtimestamp(unix, UTC):%Y-%m-%dT%H:%M:%SZ}"


def user() -> str:
    """Who gives something out, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"


def span(text: str) -> timedelta:
    """What `--for` says; ConfigError where it is no length of time."""
    found = seconds(text)
    if not found:
        rule, hint = "is no length of time", "for example 30m, 12h, 90d"
        raise ConfigError(Problem(place="--for", path="", value=repr(text), rule=rule, hint=hint))
    return timedelta(seconds=found)
