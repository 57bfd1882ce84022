"""What a route makes of a path and an authority, and the address that a redirect names; as Envoy does it."""

from __future__ import annotations

from reachline.doors.envoy.asked import Request
from reachline.doors.envoy.fitting import bare, value_of
from reachline.doors.envoy.routes import Forward, HostRewrite, PathKind, PathMatch, Redirect, RegexRewrite

__all__ = ["authority_of", "location", "path_of", "replaced"]


def replaced(rewrite: RegexRewrite, text: str) -> str:
    """Every match replaced; an empty one right behind another match is none, as in RE2."""
    made: list[str] = []
    at, last = 0, -1
    for found in rewrite.pattern.found(text):
        if found.start() == found.end() == last:
            continue
        made += (text[at : found.start()], found.expand(rewrite.substitution))
        at = last = found.end()
    return "".join((*made, text[at:]))


def path_of(match: PathMatch, action: Forward | Redirect, path: str) -> str:
    """The path with its query as it goes on."""
    if action.regex_rewrite is not None:
        plain = bare(path)
        return replaced(action.regex_rewrite, plain) + path[len(plain) :]
    if not action.prefix_rewrite or not path:
        return path
    is_beginning = match.kind in (PathKind.PREFIX, PathKind.SEPARATED_PREFIX)
    length = len(match.text) if is_beginning else len(bare(path))
    return action.prefix_rewrite + path[length:]


def authority_of(action: Forward, request: Request) -> str | None:
    """The authority as it goes on; None where it stays. An endpoint's own hostname is put in when it is picked."""
    match action.host_rewrite:
        case HostRewrite.LITERAL:
            return action.host_text
        case HostRewrite.HEADER:
            return value_of(request, action.host_text) or None
        case HostRewrite.PATH_REGEX if action.host_regex is not None:
            return replaced(action.host_regex, bare(request.path)) or None
        case _:
            return None


def location(match: PathMatch, action: Redirect, request: Request) -> str:
    """Where a redirect sends the client."""
    scheme = action.scheme or request.scheme
    port = f":{action.port}" if action.port else ""
    host = action.host or _host(request, scheme, is_port_new=bool(port))
    path = request.path
    if action.path:
        query = "" if "?" in action.path else path[len(bare(path)) :]
        path = action.path + query
    else:
        path = path_of(match, action, path)
    if action.strip_query:
        path = path.partition("?")[0]
    return f"{scheme}://{host}{port}{path}"


def _host(request: Request, scheme: str, *, is_port_new: bool) -> str:
    """The request's authority, without the port that no longer fits."""
    host = request.authority
    end = host.rfind("]:") + 1 if host.startswith("[") else host.rfind(":")
    if end <= 0:
        return host
    is_old = scheme != request.scheme and (request.scheme, host[end:]) in (("http", ":80"), ("https", ":443"))
    return host[:end] if is_port_new or is_old else host
