"""What a caller of `connect` asked for, checked as a whole: one ConfigError names everything that cannot be."""

from __future__ import annotations

import os
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict, cast
from urllib.parse import urlsplit

from reachline.errors import ConfigError, Problem
from reachline.model import LineId, Seconds
from reachline.upstream.listing import LineList, Listed, target

if TYPE_CHECKING:
    from reachline.core.outlier_rules import OutlierRules
    from reachline.upstream.settings import ClusterSettings

__all__ = ["DEFAULT_CENTER", "CenterAddress", "Clusters", "Options", "Settings", "Static", "checked"]

DEFAULT_CENTER: Final = "http://127.0.0.1:7680"

Static = Mapping[str, Sequence[str] | Mapping[str, int]]
"""Lines of last resort by cluster: addresses, or addresses with weights."""
Clusters = str | Sequence[str] | Mapping[str, object]
"""Names of clusters that a center judges; or by name the settings of one that is kept in process, an Envoy cluster, the path of an
Envoy file, or None: the center's."""

_PLACE: Final = "connect()"
_CLUSTER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""As documents name clusters."""
_WEIGHT_MOST: Final = 1_000_000
_PORTS: Final = {"http": 80, "https": 443}

_TEXT: Final = (str, "must be a text")
_SECONDS: Final = (int | float, "must be seconds, 0 or more")
_KINDS: Final[Mapping[str, tuple[type | UnionType, str]]] = {
    "service": _TEXT,
    "name": _TEXT,
    "cache": (str | os.PathLike | None, "must be a path"),
    "static": (Mapping | None, "must be lines by cluster"),
    "token": _TEXT,
    "tls": (ssl.SSLContext | str | os.PathLike | None, "must be a path, or an ssl.SSLContext"),
    "wait": _SECONDS,
    "patience": _SECONDS,
    "local_breaker": (bool, "must be True or False"),
    "seed": (int | None, "must be a whole number"),
    "events": (Callable, "must be a function of one event"),  # type: ignore[dict-item]  # isinstance takes it
}
"""What each setting may be, for callers without a type checker."""
_NUMBERS: Final = frozenset({"wait", "patience", "seed"})
"""True and False are none, whatever Python says."""
_PATHS: Final = frozenset({"cache", "tls"})
"""No path holds a NUL."""


class CenterAddress(NamedTuple):
    """Where one center answers. `prefix` stands before every path, without a slash at its end."""

    url: str
    host: str
    port: int
    is_tls: bool
    prefix: str

    @property
    def is_protected(self) -> bool:
        """Whether nobody else can read along: TLS, or a connection that does not leave this machine."""
        return self.is_tls or self.host in ("localhost", "::1") or self.host.startswith("127.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One client's settings, all checked."""

    centers: tuple[CenterAddress, ...]
    clusters: tuple[str, ...]
    service: str = ""
    name: str = ""
    cache: Path | None = None
    static: Mapping[str, LineList] = field(default_factory=dict)
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    wait: Seconds = 5.0
    patience: Seconds = 1.0
    local_breaker: bool = True
    seed: int | None = None
    kept: Mapping[str, ClusterSettings] = field(default_factory=dict)
    """Clusters that are kept in process; `clusters` are the center's."""
    outliers: Mapping[str, OutlierRules] = field(default_factory=dict)
    """Outlier detection here, beside the center's judgement, by cluster."""
    events: Callable[[Mapping[str, object]], None] | None = None


class Settings(TypedDict, total=False):
    """What `connect` takes besides center and clusters, each with its default."""

    service: str
    """Whose calls these are, as reports name it (empty)."""
    name: str
    """This client, as the center shows it; process id and a number are added (the machine's name)."""
    cache: str | Path | None
    """A file that keeps the last lists for the next start (None: memory only)."""
    static: Static | None
    """Lines of last resort, for a start without center and cache: addresses by cluster, or addresses with weights."""
    token: str
    """Bearer token (none)."""
    tls: ssl.SSLContext | str | Path | None
    """A file of CA certificates, or a context, for https centers (the system's trust)."""
    wait: Seconds
    """How long `connect` may wait for the first lists (5). 0: start nothing before the first use."""
    patience: Seconds
    """A call cancelled after this long counts as late, sooner as nothing (1, the document's request timeout)."""
    local_breaker: bool
    """Whether failures seen here take a line out here at once (True)."""
    seed: int | None
    """Of every chance in this client, for tests that must repeat (None: the system's)."""
    events: Callable[[Mapping[str, object]], None]
    """Hears each event of checks and outlier detection of clusters kept in process, as Envoy writes it (nobody)."""


def checked(center: str | Sequence[str], clusters: Clusters, settings: Settings) -> Options:
    """Options from the arguments of `connect`; ConfigError with every problem found."""
    problems = [_unknown(name) for name in settings if name not in Settings.__annotations__]
    settings = _fitting(settings, problems)
    names, kept, outliers = _named(clusters, problems)
    centers = _centers(_texts("center", center, problems), problems)
    wait, patience = settings.get("wait", 5.0), settings.get("patience", 1.0)
    for path, seconds in (("wait", wait), ("patience", patience)):
        # Written so that NaN is refused too.
        if not 0 <= seconds <= threading.TIMEOUT_MAX:
            problems.append(_problem(path, repr(seconds), "must be seconds, 0 or more"))
    cache = settings.get("cache")
    options = Options(
        centers=centers,
        clusters=names,
        service=_text("service", settings.get("service", ""), problems),
        name=_text("name", settings.get("name", ""), problems),
        cache=None if cache is None else Path(cache),
        static=_static(settings.get("static") or {}, names, problems),
        token=_token(settings.get("token", ""), problems),
        tls=_context(settings.get("tls"), centers, problems),
        wait=wait,
        patience=patience,
        local_breaker=settings.get("local_breaker", True),
        seed=settings.get("seed"),
        kept=kept,
        outliers=outliers,
        events=settings.get("events"),
    )
    if problems:
        raise ConfigError(*problems)
    return options


def _fitting(settings: Settings, problems: list[Problem]) -> Settings:
    """The settings whose values are of the right kind; the others are problems, told by their type alone."""
    found = {}
    for name, value in cast(Mapping[str, object], settings).items():
        kinds, rule = _KINDS.get(name, (object, ""))
        is_odd = (isinstance(value, bool) and name in _NUMBERS) or (name in _PATHS and "\0" in str(value))
        if isinstance(value, kinds) and not is_odd:
            found[name] = value
        else:
            problems.append(_problem(name, type(value).__name__, rule))
    return cast(Settings, found)


def _texts(path: str, given: object, problems: list[Problem]) -> tuple[str, ...] | None:
    """One text or several as several; None where they are something else."""
    if isinstance(given, str):
        return (given,)
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    if all(isinstance(each, str) for each in found):
        return found
    problems.append(_problem(path, type(given).__name__, "must be a text, or a list of texts"))
    return None


def _centers(urls: Sequence[str] | None, problems: list[Problem]) -> tuple[CenterAddress, ...]:
    if urls is None:
        return ()
    if not urls:
        problems.append(_problem("center", "", "at least one address is needed", f"for example {DEFAULT_CENTER}"))
    found = [_center(url, problems) for url in urls]
    return tuple(each for each in found if each is not None)


def _center(url: str, problems: list[Problem]) -> CenterAddress | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        problems.append(_problem("center", url, f"is not a URL: {error}"))
        return None
    shown = url if "@" not in parts.netloc else f"{parts.scheme}://…@{parts.netloc.rpartition('@')[2]}"
    if parts.scheme not in _PORTS or not host:
        problems.append(_problem("center", shown, "must be an http or https URL", f"for example {DEFAULT_CENTER}"))
    elif parts.username is not None:
        problems.append(_problem("center", shown, "a URL must not carry a user or password", "use token="))
    elif parts.query or parts.fragment or not _is_clean(url):
        problems.append(_problem("center", shown, "must end with its path"))
    else:
        is_tls = parts.scheme == "https"
        return CenterAddress(url, host, port or _PORTS[parts.scheme], is_tls, parts.path.rstrip("/"))
    return None


def _named(
    clusters: Clusters, problems: list[Problem]
) -> tuple[tuple[str, ...], dict[str, ClusterSettings], dict[str, OutlierRules]]:
    """(names of clusters that a center judges, settings of those kept here, outlier detection here beside a center)."""
    if not isinstance(clusters, Mapping):
        return _clusters(_texts("clusters", clusters, problems), problems), {}, {}
    names = _clusters(_texts("clusters", tuple(clusters), problems), problems)
    documents = {name: document for name, document in clusters.items() if document is not None and name in names}
    if not documents:
        return names, {}, {}
    from reachline.upstream.reading import read, read_beside  # noqa: PLC0415  (only who keeps clusters needs all of that)

    judged = {
        name: each for name, each in documents.items() if isinstance(each, Mapping) and each.get("type") == "center"
    }
    kept = {name: each for name, each in documents.items() if name not in judged}
    settings: dict[str, ClusterSettings] = {}
    outliers: dict[str, OutlierRules] = {}
    try:
        settings = read(kept, place=_PLACE)
    except ConfigError as error:
        problems += error.problems
    try:
        outliers = read_beside(judged, place=_PLACE)
    except ConfigError as error:
        problems += error.problems
    return tuple(name for name in names if name not in kept), settings, outliers


def _clusters(names: Sequence[str] | None, problems: list[Problem]) -> tuple[str, ...]:
    if names is None:
        return ()
    if not names:
        problems.append(_problem("clusters", "", "at least one name is needed: only named clusters are fetched"))
    rule = "must be letters, digits, '.', '_' or '-'"
    problems += [_problem("clusters", repr(name), rule) for name in names if not _CLUSTER.fullmatch(name)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        problems.append(_problem("clusters", ", ".join(twice), "is named twice"))
    return tuple(names)


def _static(static: Static, clusters: Sequence[str], problems: list[Problem]) -> dict[str, LineList]:
    problems += [_problem(f"static.{name}", "", "is none of `clusters`") for name in static if name not in clusters]
    found = {}
    for cluster, lines in static.items():
        if not _is_static(lines):
            rule = "must be a list of addresses, or addresses with weights"
            problems.append(_problem(f"static.{cluster}", type(lines).__name__, rule))
            continue
        weights = dict(lines) if isinstance(lines, Mapping) else dict.fromkeys(lines, 100)
        for address, weight in weights.items():
            problems += _static_problems(f"static.{cluster}", address, weight)
        listed = tuple(
            Listed(LineId(f"{cluster}/static-{number}"), target(address), weight, weight)
            for number, (address, weight) in enumerate(weights.items(), 1)
        )
        found[cluster] = LineList(cluster=cluster, lines=listed)
    return found


def _is_static(lines: object) -> bool:
    """Whether it holds addresses; a text alone would be taken for its letters."""
    return (
        isinstance(lines, Sequence | Mapping)
        and not isinstance(lines, str)
        and all(isinstance(each, str) for each in lines)
    )


def _static_problems(path: str, address: str, weight: int) -> Iterator[Problem]:
    if target(address).address is None:
        yield _problem(path, address, "must name host and port", "for example tcp://10.0.0.1:443")
    if type(weight) is not int or not 0 <= weight <= _WEIGHT_MOST:
        yield _problem(path, repr(weight), f"must be a whole number, 0…{_WEIGHT_MOST}")


def _context(
    tls: ssl.SSLContext | str | Path | None, centers: Sequence[CenterAddress], problems: list[Problem]
) -> ssl.SSLContext | None:
    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is None:
        return ssl.create_default_context() if any(each.is_tls for each in centers) else None
    try:
        return ssl.create_default_context(cafile=str(tls))
    except (OSError, ssl.SSLError) as error:
        problems.append(_problem("tls", str(tls), f"no certificates can be read there: {error.strerror or error}"))
        return None


def _text(path: str, text: str, problems: list[Problem]) -> str:
    # 200 characters is what a center takes for a client's whole id.
    if len(text) > 128 or not text.isprintable():
        problems.append(_problem(path, repr(text[:40]), "must be printable text of at most 128 characters"))
    return text


def _token(token: str, problems: list[Problem]) -> str:
    if not token.isascii() or not token.isprintable():
        # The value is secret: only the rule is told.
        problems.append(_problem("token", "", "must be printable ASCII", "does it end with a line end?"))
    return token


def _unknown(name: str) -> Problem:
    close = get_close_matches(name, Settings.__annotations__, n=1)
    return _problem(name, "", "is no setting of connect()", f"did you mean {close[0]}?" if close else "")


def _is_clean(url: str) -> bool:
    """No space and nothing that could end a request line."""
    return url.isascii() and url.isprintable() and " " not in url


def _problem(path: str, value: str, rule: str, hint: str = "") -> Problem:
    return Problem(place=_PLACE, path=path, value=value, rule=rule, hint=hint)
