"""Whether a request fits a route's `match`, as Envoy decides it; what does not fit is named."""

from __future__ import annotations

import re
from typing import Final

from reachline.doors.envoy.asked import Request
from reachline.doors.envoy.routes import (
    HeaderMatch,
    ParameterMatch,
    PathKind,
    PathMatch,
    RouteMatch,
    TextKind,
    TextMatch,
)

__all__ = ["Misfit", "bare", "header_fits", "is_grpc", "misfit", "text_fits"]

Misfit = PathMatch | HeaderMatch | ParameterMatch | str
"""The rule that does not hold; a word for those that are no values of their own."""
_INTEGER: Final = re.compile(r"\s*[-+]?[0-9]{1,20}\s*", re.ASCII)
_INT64: Final = 2**63
_GRPC: Final = "application/grpc"


def bare(path: str) -> str:
    """A path without its query and fragment."""
    for sign in ("?", "#"):
        path = path.partition(sign)[0]
    return path


def misfit(match: RouteMatch, request: Request, chance: int, *, without_parameters: bool = False) -> Misfit | None:
    """The first rule that the request does not fit; None: it fits all. `chance` is 64 random bits.

    `without_parameters`: what stands behind `;` in the path is not looked at.
    """
    path = _without_parameters(request.path) if without_parameters else request.path
    if match.fraction is not None and chance % match.fraction[1] >= match.fraction[0]:
        return "runtime_fraction"
    if not _path_fits(match.path, path, is_connect=request.method == "CONNECT"):
        return match.path
    if match.grpc and not is_grpc(request):
        return "grpc"
    for header in match.headers:
        if not header_fits(header, request):
            return header
    if match.parameters:
        said = _parameters(path)
        for parameter in match.parameters:
            if not _parameter_fits(parameter, said):
                return parameter
    if match.tls_presented not in (None, request.certificate) or match.tls_validated not in (None, request.validated):
        return "tls_context"
    return None


def _without_parameters(path: str) -> str:
    head, sign, query = path.partition("?")
    return head.partition(";")[0] + sign + query


def _path_fits(match: PathMatch, path: str, *, is_connect: bool) -> bool:
    if is_connect or match.kind is PathKind.CONNECT:
        return is_connect and match.kind is PathKind.CONNECT
    path = bare(path)
    if match.pattern is not None:
        return match.pattern.fits(path)
    if not match.case_sensitive:
        path = path.lower()
    match match.kind:
        case PathKind.EXACT:
            return path == match.text
        case PathKind.SEPARATED_PREFIX:
            return path.startswith(match.text) and path[len(match.text) : len(match.text) + 1] in ("", "/")
        case _:
            return path.startswith(match.text)


def text_fits(match: TextMatch, text: str) -> bool:
    """Whether a text fits a StringMatcher."""
    if match.pattern is not None:
        return match.pattern.fits(text)
    if match.ignore_case:
        text = text.lower()
    match match.kind:
        case TextKind.EXACT:
            return text == match.text
        case TextKind.PREFIX:
            return text.startswith(match.text)
        case TextKind.SUFFIX:
            return text.endswith(match.text)
        case _:
            return match.text in text


def header_fits(match: HeaderMatch, request: Request) -> bool:
    """Whether a request's header fits; several values of one name count as one, joined by commas."""
    return value_fits(match, value_of(request, match.name))


def value_of(request: Request, name: str) -> str | None:
    """A header's value, also of those that HTTP/1.1 has no header for; None where it is not there."""
    match name:
        case ":path":
            return request.path or None
        case ":authority" | "host":
            return request.authority
        case ":method":
            return request.method
        case ":scheme":
            return request.scheme
        case _:
            pass
    values = request.headers.get(name)
    return None if not values else values[0] if len(values) == 1 else ",".join(values)


def value_fits(match: HeaderMatch, value: str | None) -> bool:
    """Whether a header's value fits; None: it is not there."""
    if match.present is not None:
        is_there = value is not None or match.missing_as_empty
        return (is_there is match.present) is not match.invert
    if value is None:
        if not match.missing_as_empty:
            # Also where the match is inverted.
            return False
        value = ""
    if match.range is not None:
        return _in_range(match.range, value) is not match.invert
    return match.text is not None and text_fits(match.text, value) is not match.invert


def _in_range(span: tuple[int, int], value: str) -> bool:
    if not _INTEGER.fullmatch(value):
        return False
    number = int(value)
    return -_INT64 <= number < _INT64 and span[0] <= number < span[1]


def is_grpc(request: Request) -> bool:
    """Whether it is a gRPC request, by its content-type."""
    kind = value_of(request, "content-type") or ""
    return kind.startswith(_GRPC) and kind[len(_GRPC) : len(_GRPC) + 1] in ("", "+")


def _parameters(path: str) -> dict[str, str]:
    """The first value of each parameter, as it was sent."""
    found: dict[str, str] = {}
    for pair in path.partition("#")[0].partition("?")[2].split("&"):
        name, _, value = pair.partition("=")
        if pair:
            found.setdefault(name, value)
    return found


def _parameter_fits(match: ParameterMatch, said: dict[str, str]) -> bool:
    value = said.get(match.name)
    if match.text is None:
        return (value is not None) is match.present
    return value is not None and text_fits(match.text, value)
