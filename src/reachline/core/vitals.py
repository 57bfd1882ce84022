"""What a host says of itself beside its probes, by name: from where on it is worth telling, and in which words.

Advice for people, never evidence: it says what else was wrong where a vantage stands. Knows no host and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from reachline.model import Seconds

__all__ = ["NAMES", "Beside", "is_told", "told"]


class Beside(NamedTuple):
    """What a vantage said of itself and its host at a moment, in words."""

    vantage: str
    at: Seconds
    """Unix time…"""
    when: str
    """…and as the clock shows it."""
    text: str


class _Vital(NamedTuple):
    at_least: int
    """Values below are nobody's news…"""
    share_milli: int
    """…nor those that are a smaller share of the whole, in 1/1000, where a whole is known."""
    words: Callable[[str, int, int], str]
    """From where, value and whole."""


def _percent(value: int) -> str:
    return f"{value / 10:.0f} %" if value >= 100 else f"{value / 10:.1f} %"


def _of(value: int, whole: int, what: str) -> str:
    return f"{value} of {whole} {what}" if whole else f"{value} {what}"


def _dbm(tenths: int) -> str:
    """Light in 1/10 µW as people measure it."""
    return f"{10 * math.log10(tenths / 10_000):.1f} dBm" if tenths else "no light"


NAMES: Final[Mapping[str, _Vital]] = {
    # A fifth of a core: packets begin to wait for the processor.
    "softirq": _Vital(200, 0, lambda where, value, _: f"softirq {_percent(value)} of {where or 'a core'}"),
    # A twentieth: a timer of 20 ms may be 1 ms late for it on the average, and much more at times.
    "steal": _Vital(50, 0, lambda _, value, __: f"the hypervisor took {_percent(value)} of the processors"),
    # A few frames of unknown protocols are dropped everywhere; one packet in a thousand is not those.
    "drops": _Vital(10, 1, lambda where, value, whole: f"{where} dropped {_of(value, whole, 'packets')}"),
    "errors": _Vital(1, 0, lambda where, value, whole: f"{where} had {_of(value, whole, 'packets')} with errors"),
    "carrier": _Vital(1, 0, lambda where, value, _: f"{where} lost or found its carrier {value} times"),
    "backlog": _Vital(1, 0, lambda _, value, __: f"the kernel's backlog dropped {value} packets"),
    # Twice the loss at which a line is degraded, over all that the host sends.
    "retransmits": _Vital(20, 20, lambda _, value, whole: f"the host sent {_of(value, whole, 'TCP segments')} again"),
    "udp": _Vital(1, 0, lambda _, value, __: f"{value} datagrams found their receive buffer full"),
    "light": _Vital(0, 0, lambda where, value, whole: f"{where} receives {_dbm(value)}" + _warned(whole)),
}
"""Vitals by name. `light` is told whenever it changed or is below its module's warning, which is its whole."""


def _warned(limit: int) -> str:
    return f" (its module warns below {_dbm(limit)})" if limit else ""


def is_told(name: str, value: int, whole: int) -> bool:
    """Whether a value is worth telling."""
    vital = NAMES[name]
    return value >= vital.at_least and 1_000 * value >= vital.share_milli * whole


def told(name: str, where: str, value: int, whole: int) -> str:
    """A vital in words; one of a newer agent by its name and number."""
    if (vital := NAMES.get(name)) is None:
        return " ".join(filter(None, (where, name, str(value))))
    return vital.words(where, value, whole)
