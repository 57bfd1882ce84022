"""`observatory` and `burstObservatory`: who is asked, what, and how often."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from reachline.core.observing.rules import Care, ObserverRules
from reachline.doors.observatory.durations import SECOND, text_of
from reachline.doors.observatory.extras import Extras, probe_url
from reachline.doors.observatory.fields import Block
from reachline.doors.observatory.values import Observatory

__all__ = ["read_observatories"]

_URL: Final = "https://www.google.com/generate_204"
_BURST_URL: Final = "https://connectivitycheck.gstatic.com/generate_204"
_INTERVAL: Final = 10 * SECOND
_BURST_INTERVAL: Final = 60 * SECOND
_LEAST: Final = 10 * SECOND
"""Of a burst's interval; what is less becomes this."""
_SAMPLING: Final = 10
_MOST_SAMPLING: Final = 10_000
"""Slots of a ring: more is a mistake, and each costs memory for every outbound."""
_LONGEST: Final = 30 * 24 * 3_600 * SECOND
_TIMEOUT: Final = 5 * SECOND
_METHODS: Final = ("HEAD", "GET", "POST", "PUT", "OPTIONS", "DELETE", "PATCH")


def read_observatories(root: Block, extras: Extras, *, strict: bool) -> tuple[Observatory | None, Observatory | None]:
    """The one that is seen and, strictly, the one that is built as well and seen by nobody."""
    single, burst = root.block("observatory"), root.block("burstObservatory")
    first = None if single is None else _single(single, extras, strict=strict)
    second = None if burst is None else _burst(burst, extras, strict=strict)
    if single is None or burst is None:
        return first or second, None
    if strict:
        root.warn(
            "burstObservatory", "is built and asked for nothing: all see observatory, as in Xray", "keep one of them"
        )
    else:
        for name, other in (("observatory", "burstObservatory"), ("burstObservatory", "observatory")):
            root.found.refuse(
                root.at(name),
                f"excludes {other}, which is set too",
                "keep one: Xray probes by both and sees observatory",
                about_key=True,
            )
    return first, second


def _care(extras: Extras, url: str, *, strict: bool) -> Care | None:
    """What passes: of a URL that is made to answer 204, only that, unless the document says otherwise."""
    if strict:
        return None
    if extras.says_expect or not urlsplit(url).path.rstrip("/").endswith("generate_204"):
        return extras.care
    return extras.care._replace(expect=((204, 204),))


def _selectors(block: Block) -> tuple[str, ...]:
    found = block.texts("subjectSelector", is_list=True)
    if not found and not block.has("subjectSelector"):
        block.warn("subjectSelector", "is not set: nothing is observed", 'the beginnings of tags, ["proxy"]')
    elif not found:
        block.warn("subjectSelector", "is empty: nothing is observed", 'the beginnings of tags, ["proxy"]')
    return found


def _single(block: Block, extras: Extras, *, strict: bool) -> Observatory:
    selectors = _selectors(block)
    url = block.text("probeURL") or _URL
    probe_url(block, "probeURL", url)
    interval = block.nanos("probeInterval") or _INTERVAL
    if abs(interval) > _LONGEST:
        block.refuse("probeInterval", f"must be at most {text_of(_LONGEST)}")
    if interval < SECOND and not strict:
        block.warn("probeInterval", "is below a second, which is what it becomes")
        interval = SECOND
    rules = ObserverRules(
        is_burst=False,
        selectors=selectors,
        target=url,
        interval=interval,
        concurrent=block.flag("enableConcurrency"),
        sampling=_SAMPLING,
        timeout=_TIMEOUT,
        method="GET",
        care=_care(extras, url, strict=strict),
    )
    block.done()
    return Observatory(is_burst=False, selectors=selectors, rules=rules)


def _burst(block: Block, extras: Extras, *, strict: bool) -> Observatory:
    selectors = _selectors(block)
    ping = block.block("pingConfig")
    if ping is None:
        block.refuse(
            "pingConfig", "is needed: Xray refuses a burstObservatory without it", 'its defaults are {"pingConfig": {}}'
        )
        ping = Block({}, block.at("pingConfig"), block.found)
    url = ping.text("destination").strip() or _BURST_URL
    connectivity = ping.text("connectivity").strip()
    probe_url(ping, "destination", url)
    if connectivity:
        probe_url(ping, "connectivity", connectivity)
    timeout = ping.nanos("timeout")
    rules = ObserverRules(
        is_burst=True,
        selectors=selectors,
        target=url,
        interval=_interval(ping),
        sampling=_sampling(ping, strict=strict),
        timeout=min(timeout, _LONGEST) if timeout > 0 else _TIMEOUT,
        method=_method(ping),
        connectivity=connectivity,
        care=_care(extras, url, strict=strict),
    )
    if rules.timeout >= rules.window and strict:
        ping.warn(
            "timeout",
            "is not below the window: a silent outbound never counts as failed",
            "a round cancels the one before",
        )
    ping.done()
    block.done()
    return Observatory(is_burst=True, selectors=selectors, rules=rules)


def _interval(ping: Block) -> int:
    found = ping.nanos("interval")
    if not found:
        return _BURST_INTERVAL
    if found < _LEAST:
        ping.warn("interval", f"is below {text_of(_LEAST)}, which is what it becomes, as in Xray")
        return _LEAST
    if found > _LONGEST:
        ping.refuse("interval", f"must be at most {text_of(_LONGEST)}")
    return min(found, _LONGEST)


def _sampling(ping: Block, *, strict: bool) -> int:
    """`sampling`; `samplingCount` is what the documents call it and Xray does not know."""
    found = ping.whole("sampling")
    other = ping.whole("samplingCount")
    if ping.has("samplingCount"):
        if strict:
            ping.warn("samplingCount", "is not known to Xray, which ignores it", "its field is 'sampling'")
        elif ping.has("sampling") and found != other:
            ping.refuse(
                "samplingCount", f"contradicts sampling, which is {found}", "keep sampling: Xray reads no other"
            )
        else:
            ping.warn("samplingCount", "is read as sampling; Xray itself ignores it", "write it as 'sampling'")
            found = other
    if found > _MOST_SAMPLING:
        ping.refuse("sampling", f"must be at most {_MOST_SAMPLING}")
    return min(found, _MOST_SAMPLING) if found > 0 else _SAMPLING


def _method(ping: Block) -> str:
    found = ping.text("httpMethod").strip() or "HEAD"
    if found.upper() not in _METHODS:
        ping.refuse("httpMethod", f"must be {' or '.join(_METHODS)}")
        return "HEAD"
    return found
