"""Names, targets, proxies and listen addresses: their grammar, and the values they become. Resolves nothing."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import AfterValidator, WithJsonSchema

from reachline.doors.units import refuse
from reachline.model import Endpoint, Kind

__all__ = [
    "AUTO",
    "MAX_NAME",
    "ROUTE",
    "SCHEMES",
    "Bind",
    "Ip",
    "Name",
    "OptionalIp",
    "OptionalName",
    "Scheme",
    "Sources",
    "Target",
    "derived_names",
    "has_login",
    "is_public",
    "located",
    "login_of",
    "masked",
    "parse_target",
]

MAX_NAME: Final = 63
"""Characters of a name: what a DNS label, a Kubernetes name and a metric label value all take."""
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}")
_HOST: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?")

_FOREIGN: Final = re.compile(r"[^!-~]")


class Scheme(NamedTuple):
    """What a line of this scheme is asked, and what its URL may hold."""

    kinds: tuple[Kind, ...]
    """What it is probed by; the first is what `watch` asks."""
    port: int | None = None
    """The port meant where none is written; None: one must be."""
    has_port: bool = True
    has_path: bool = False
    """Whether a path means something to the kind."""
    has_login: bool = False
    """Whether it may say `user:password@`, which is no part of the endpoint."""


SCHEMES: Final[Mapping[str, Scheme]] = {
    "tcp": Scheme((Kind.TCP,)),
    "http": Scheme((Kind.HTTP, Kind.TCP), port=80, has_path=True),
    "https": Scheme((Kind.HTTP, Kind.TCP, Kind.TLS), port=443, has_path=True),
    "tls": Scheme((Kind.TLS, Kind.TCP), port=443),
    "dns": Scheme((Kind.DNS,), port=53, has_path=True),
    "icmp": Scheme((Kind.ICMP,), has_port=False),
    "grpc": Scheme((Kind.GRPC, Kind.TCP), has_path=True),
    "grpcs": Scheme((Kind.GRPC, Kind.TCP, Kind.TLS), port=443, has_path=True),
    "redis": Scheme((Kind.REDIS, Kind.TCP), port=6379, has_path=True, has_login=True),
    "rediss": Scheme((Kind.REDIS, Kind.TCP, Kind.TLS), port=6379, has_path=True, has_login=True),
    "udp": Scheme((Kind.UDP,)),
}
"""Schemes a line may have."""
_REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^}]*\}")
_MAX_NETLOC: Final = 800
"""A login of 512, percent-encoded in part, a host of 253, a port."""
_USUAL_PORTS: Final = {"grpc": 50051, "udp": 7}
"""For a hint only: no registry gives gRPC a port, and few machines still run echo."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)?")


def _name(text: str) -> str:
    if _NAME.fullmatch(text):
        return text
    raise refuse(
        "must be a name: letters, digits, '.', '_' and '-', not first, at most 63",
        "names become line ids, cluster/line[@origin]",
    )


def parse_target(text: str) -> Endpoint:
    """The endpoint of a line's URL; PydanticCustomError says which part is wrong. A login is read by `login_of`."""
    parts = _split(_without_references(text), "tcp://10.0.0.1:443 or https://a.example/healthz")
    if (scheme := SCHEMES.get(parts.scheme)) is None:
        raise refuse(f"must begin with one of {_listed(SCHEMES)}", _guess_scheme(text))
    if parts.fragment or (parts.username is not None and not scheme.has_login):
        raise refuse("takes no user, password or fragment", "credentials for HTTP probes are headers")
    if parts.username is not None and not parts.password:
        raise refuse("names a user without a password", f"write it as {parts.scheme}://user:password@host")
    if len(parts.netloc) > _MAX_NETLOC:
        raise refuse(f"has more than {_MAX_NETLOC} characters before its path")
    host = _host(parts)
    port = _port(parts, text)
    port = port or scheme.port or 0
    if scheme.has_port and not port:
        usual = _USUAL_PORTS.get(parts.scheme, 443)
        raise refuse("needs a port", f"did you mean {parts.scheme}://{host}:{usual}?")
    if port and not scheme.has_port:
        raise refuse("takes no port: echo requests have none", f"did you mean {parts.scheme}://{host}?")
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    if path.startswith("?") and parts.scheme.startswith("http"):
        path = f"/{path}"
    if path not in {"", "/"} and not scheme.has_path:
        raise refuse(
            f"takes no path: {parts.scheme} has none", "a path belongs to http:// or https:// (or probes.http.path)"
        )
    return Endpoint(
        scheme=parts.scheme,
        host=host,
        port=port,
        path=path if path != "/" or parts.scheme.startswith("http") else "",
        family=_family(host),
    )


def login_of(text: str) -> tuple[str, str]:
    """User and password of a line's URL whose references are filled in; empty texts where it names none."""
    parts = urlsplit(text)
    return unquote(parts.username or ""), unquote(parts.password or "")


def has_login(text: str) -> bool:
    """Whether a target is of a scheme whose URL may hold a login."""
    scheme = SCHEMES.get(text.partition(":")[0].lower())
    return scheme is not None and scheme.has_login


def _without_references(text: str) -> str:
    """The URL with `x` for each reference in its login: `${file:/run/pw}` would end the host too early."""
    login, at, rest = text.rpartition("@")
    return _REFERENCE.sub("x", login) + at + rest if at and has_login(text) else text


def _target(text: str) -> str:
    parse_target(text)
    return text


def located(text: str, example: str) -> tuple[SplitResult, str, int]:
    """A URL in its parts, with its host and its port (0: none is written), both checked; `example` is shown where it is none."""
    parts = _split(text, example)
    return parts, _host(parts), _port(parts, text)


def _bind(text: str) -> str:
    if text.startswith("unix:"):
        if text == "unix:":
            raise refuse("needs the socket's path", "unix:/run/reachline.sock")
        return text
    parts = _split(f"tcp://{text}", "127.0.0.1:7680")
    _host(parts)
    if parts.port is None or parts.path or parts.username is not None:
        raise refuse("must be host:port or unix:/path", "127.0.0.1:7680 (port 0 takes any free one)")
    return text


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise refuse("must be an IP address of this agent", "an interface's name belongs under interface") from None


def _split(text: str, example: str) -> SplitResult:
    if _FOREIGN.search(text):
        raise refuse("must be ASCII without spaces", f"write it as {example}")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise refuse(f"is no URL: {error}", f"write it as {example}") from None
    if not parts.netloc:
        raise refuse("must be a URL with a scheme and a host", f"write it as {example}")
    return parts


def _host(parts: SplitResult) -> str:
    try:
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if ":" in host and _family(host):
        return host
    looks_numeric = bool(re.fullmatch(r"[\d.]+", host))
    if (looks_numeric and not _family(host)) or not _HOST.fullmatch(host):
        raise refuse(
            "must name a host: a DNS name or an IP address", "an IPv6 address stands in brackets, [2001:db8::1]"
        )
    return host


def _port(parts: SplitResult, text: str) -> int:
    try:
        port = parts.port
    except ValueError:
        raise refuse("must have a port of 1…65535", "") from None
    if port == 0:
        raise refuse("must have a port of 1…65535", f"port 0 in {masked(text)} reaches nothing")
    return port or 0


def _family(host: str) -> int:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def _guess_scheme(text: str) -> str:
    scheme = text.partition(":")[0].lower()
    known = {
        "ping": "icmp",
        "ssl": "tls",
        "ws": "http",
        "wss": "https",
        "connect": "tcp",
        "htttp": "http",
    }
    return f"did you mean {known[scheme]}://?" if scheme in known else "tcp://host:port observes any TCP service"


def _listed(schemes: Iterable[str]) -> str:
    return ", ".join(f"{scheme}://" for scheme in schemes)


def masked(text: str) -> str:
    """The same text with the user:password of a URL, also of a broken one, hidden: all up to the last @.

    The name in `dns://name@server` is none; where a login belongs, a user alone may be a password too.
    """
    found = _SCHEME.match(text)
    scheme = found[0] if found else ""
    login, at, place = text.removeprefix(scheme).rpartition("@")
    return f"{scheme}***@{place}" if at and (":" in login or has_login(text)) else text


def is_public(bind: str) -> bool:
    """Whether a listen address can be reached from another machine. A name other than localhost may be anything: yes."""
    if bind.startswith("unix:"):
        return False
    host = urlsplit(f"tcp://{bind}").hostname or ""
    if host == "localhost":
        return False
    return not (_family(host) and ipaddress.ip_address(host.partition("%")[0]).is_loopback)


class _Taken(NamedTuple):
    host: str
    port: int


def derived_names(targets: Sequence[str]) -> tuple[str, ...]:
    """Names for lines written as a plain list: the host; the next of the same host gets its port, or else a number.

    Appending a line never renames those before it.
    """
    taken: dict[str, _Taken] = {}
    names = []
    for target in targets:
        host, port = _host_and_port(target)
        name = host if host not in taken else f"{host}-{port}"
        if host in taken and (taken[host].port == port or name in taken):
            name = next(
                text for text in (f"{host}-{count}" for count in range(2, len(targets) + 2)) if text not in taken
            )
        taken[name] = _Taken(host, port)
        names.append(name)
    return tuple(names)


def _host_and_port(target: str) -> tuple[str, int]:
    try:
        parts = urlsplit(target)
        known = SCHEMES.get(parts.scheme)
        host, port = parts.hostname or "", parts.port or (known.port if known else None) or 0
    except ValueError:
        host, port = "", 0
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", host).strip(".-_")[: MAX_NAME - 6]
    return readable or "line", port


Name = Annotated[str, AfterValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]
"""A cluster's, line's, agent's or zone's name: a part of line ids."""
Target = Annotated[str, AfterValidator(_target)]
"""What a line reaches, as URL."""
Bind = Annotated[str, AfterValidator(_bind)]
"""Where a server listens."""
Ip = Annotated[str, AfterValidator(_ip)]
"""One of the agent's own addresses."""
AUTO: Final = "auto"
"""In place of source addresses: all that are beside the one that the route to a target takes."""
ROUTE: Final = "route"
"""In place of source addresses: the one that the route takes, and no other."""


def _source(text: str) -> str:
    return text if text in (AUTO, ROUTE) else _ip(text)


def _alone(sources: tuple[str, ...]) -> tuple[str, ...]:
    if len(sources) > 1 and (words := {AUTO, ROUTE}.intersection(sources)):
        raise refuse(f"{min(words)!r} stands alone: it is said in place of addresses", "give it alone, or addresses")
    return sources


Sources = Annotated[tuple[Annotated[str, AfterValidator(_source)], ...], AfterValidator(_alone)]
"""Own addresses that attempts alternate over, or a word in their place."""
OptionalName = Annotated[str, AfterValidator(lambda text: text and _name(text))]
"""A name, or empty text."""
OptionalIp = Annotated[str, AfterValidator(lambda text: text and _ip(text))]
"""An address, or empty text."""
