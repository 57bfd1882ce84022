"""Ways out as people write them: direct, a proxy's URL, or several, one through the other. What they become, how they are
shown, and which probes cannot use them. Resolves nothing, shows no password.
"""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator

from reachline.doors.addresses import located, masked
from reachline.doors.units import refuse
from reachline.model import Endpoint
from reachline.talk.hop import Hop, Scheme
from reachline.talk.secure import Secure, bare_name, file_path, is_address, server_name
from reachline.wire.socks5 import MAX_TEXT

__all__ = ["DIRECT", "Outbound", "hops", "resolves_here", "without_password"]

DIRECT: Final = "direct"
_PORTS: Final = {Scheme.SOCKS5: 1080, Scheme.SOCKS5H: 1080, Scheme.HTTP: 3128, Scheme.HTTPS: 3128}
"""Where such proxies usually listen, for hints: none is assumed."""
_MOST: Final = 8
"""Hops of one chain: each costs a round trip at least, and nobody is known to use more than three."""
_REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^}]*\}")
_BETWEEN: Final = re.compile(r"\s*,(?![^{]*\})\s*")
"""Between two hops; a comma within a reference is none."""
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|direct$")
_EXAMPLE: Final = "socks5://10.0.0.9:1080"
_TRUTH: Final = {"yes": True, "true": True, "no": False, "false": False}
_ALPN: Final = ("http/1.1",)
"""CONNECT is asked for by HTTP/1.1."""


def hops(via: str) -> tuple[Hop, ...]:
    """The proxies of `via`, the first hop first; none where it is direct. PydanticCustomError tells which rule is broken."""
    if via == DIRECT:
        return ()
    parts = _parts(via)
    if len(parts) > _MOST:
        raise refuse(f"goes through {len(parts)} proxies, at most {_MOST} are", "name the first and the last one")
    return tuple(map(_hop, parts))


def resolves_here(via: str) -> bool:
    """Whether a line's name is resolved by the agent, which then can choose the family of its address."""
    return via == DIRECT or _parts(via)[-1].startswith(f"{Scheme.SOCKS5}://")


def without_password(via: str) -> str:
    """A way out as it may be shown, journalled and hashed: no password, no reference to one."""
    parts = _parts(via)
    # A comma within a password parts what belongs together: then all up to the last @ is hidden.
    return ",".join(map(_shown, parts)) if all(map(_URL.match, parts)) else masked(via)


def _parts(via: str) -> list[str]:
    return _BETWEEN.split(via.strip())


def _shown(text: str) -> str:
    if text == DIRECT:
        return text
    try:
        parts = urlsplit(_REFERENCE.sub("x", text))
        if "@" in parts.path + parts.query + parts.fragment or parts.netloc.count("@") > 1:
            return masked(text)
        _ = parts.port  # what stands for one and is none may be a password that its comma parted
        user = urlsplit(text).username if not _REFERENCE.search(text) else ""
    except ValueError:
        return "***"
    return f"{parts.scheme}://{f'{user}@' if user else ''}{parts.netloc.rpartition('@')[2]}"


def _hop(text: str) -> Hop:
    if text == DIRECT:
        raise refuse("names direct in a chain of proxies", "drop it: a chain begins at this machine by itself")
    parts, host, port = located(text, _EXAMPLE)
    try:
        scheme = Scheme(parts.scheme)
    except ValueError:
        listed = ", ".join(f"{each}://" for each in Scheme)
        raise refuse(f"must be direct, or begin with one of {listed}", _guess(parts.scheme)) from None
    if not port:
        raise refuse("needs the proxy's port", f"did you mean {_shown(text)}:{_PORTS[scheme]}?")
    if parts.path not in {"", "/"} or parts.fragment:
        raise refuse("takes no path: a proxy is a host and a port")
    user, password = _sign_in(parts, scheme)
    family = (6 if ":" in host else 4) if is_address(host) else 0
    return Hop(
        scheme=scheme,
        endpoint=Endpoint(scheme=scheme.value, host=host, port=port, family=family),
        user=user,
        password=password,
        secure=_secure(parts, host, scheme),
    )


def _guess(scheme: str) -> str:
    if scheme in {"socks", "socks4", "socks4a"}:
        return "socks5h:// hands names to the proxy, socks5:// resolves them here; SOCKS4 is not spoken"
    return "http:// and https:// are CONNECT proxies; socks5h:// hands names to the proxy, socks5:// resolves them here"


def _sign_in(parts: SplitResult, scheme: Scheme) -> tuple[str, str]:
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if password and not user:
        raise refuse("has a password without a user", f"{scheme}://user:password@host:port")
    if not f"{user}{password}".isprintable():
        raise refuse("has a user or password with characters that cannot be sent")
    if scheme in {Scheme.HTTP, Scheme.HTTPS} and ":" in user:
        raise refuse("has a user with a colon, which Basic cannot say")
    if max(len(user.encode()), len(password.encode())) > MAX_TEXT:
        raise refuse(f"has a user or password of more than {MAX_TEXT} bytes")
    return user, password


def _secure(parts: SplitResult, host: str, scheme: Scheme) -> Secure | None:
    """The TLS to an https:// proxy, with what its query says of it: `?ca=/etc/proxy.pem`, `?sni=…`, `?verify=no`."""
    said = _said(parts.query)
    if scheme is not Scheme.HTTPS:
        if parts.query:
            raise refuse("takes no query", "sni, ca and verify belong to https:// proxies")
        return None
    if unknown := sorted(said.keys() - {"sni", "ca", "verify"}):
        raise refuse(f"has an unknown option {unknown[0][:MAX_TEXT]!r}", "known here: sni, ca, verify")
    verify = _TRUTH.get(said.get("verify", "yes"))
    if verify is None:
        raise refuse("must have verify=yes or verify=no")
    try:
        sni, ca = server_name(said.get("sni", "")), file_path(said.get("ca", ""))
    except ValueError as error:
        raise refuse(
            f"has an option that {error}", "https://proxy:3128?sni=proxy.example&ca=/etc/ssl/proxy.pem"
        ) from None
    return Secure(name=bare_name(host), sni=sni, alpn=_ALPN, verify=verify, ca=ca)


def _said(query: str) -> dict[str, str]:
    """Options by name. A plus is a plus: these are no fields of a form."""
    pairs = [part.partition("=") for part in query.split("&") if part]
    said = {unquote(name): unquote(value) for name, _, value in pairs}
    if len(said) < len(pairs):
        raise refuse("says an option twice", "keep one of them")
    return said


def _joined(value: object) -> object:
    """A chain written as a list, as one text."""
    if not isinstance(value, list):
        return value
    if not value or not all(isinstance(item, str) for item in value):
        raise refuse("must be a proxy's URL or a list of them, the first hop first", f"[{_EXAMPLE}, http://proxy:3128]")
    return ",".join(value)


def _outbound(text: str) -> str:
    hops(_REFERENCE.sub("x", text))
    return ",".join(_parts(text))


Outbound = Annotated[str, BeforeValidator(_joined, json_schema_input_type=str | list[str]), AfterValidator(_outbound)]
"""How a line's connections leave: `direct`, a proxy's URL, or several of them joined by commas, the first hop first."""
