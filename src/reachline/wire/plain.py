"""A protobuf message of xDS as plain values, as its JSON form has them: what the doors read. Fields are named as in the reference.

Messages inside of `Any` need their modules: those of Envoy's own packages are imported when they are met, no others.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any, Final, cast

from reachline.errors import RemoteProtocolError

try:
    from google.protobuf import json_format, symbol_database
    from google.protobuf.message import DecodeError
except ImportError as error:
    raise ImportError(f"{error}: pip install 'reachline[xds]'") from error

__all__ = ["plain"]

_PREFIX: Final = "type.googleapis.com/"
_PACKAGE: Final = re.compile(r"(envoy(?:\.[a-z][a-z0-9_]*)+)\.[A-Za-z0-9_.]+")
"""What a control plane names is imported: from one package alone."""
_NESTED_MOST: Final = 64
"""Packages that one resource may need: filters, loggers, transport sockets, options; a handful."""
_UNKNOWN: Final = re.compile(r"type_url: (\S+)")


def plain(type_url: str, body: bytes) -> dict[str, object]:
    """The message with its `@type`; RemoteProtocolError where it cannot be read, or holds a type that is not known here."""
    name = type_url.removeprefix(_PREFIX)
    message = _made(name)
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise RemoteProtocolError(f"{name} cannot be read: {error}") from error
    for _ in range(_NESTED_MOST):
        try:
            found = json_format.MessageToDict(message, preserving_proto_field_name=True)
        except TypeError as error:
            missing = _UNKNOWN.search(str(error))
            if missing is None or not _import(missing[1].removeprefix(_PREFIX)):
                raise RemoteProtocolError(f"{name} holds what is not known here: {error}") from error
            continue
        except (json_format.Error, ValueError, RecursionError, DecodeError) as error:
            raise RemoteProtocolError(f"{name} cannot be read: {error}") from error
        return {"@type": type_url, **cast("dict[str, object]", found)}
    raise RemoteProtocolError(f"{name} holds messages of more than {_NESTED_MOST} packages")


def _made(name: str) -> Any:
    """An empty message of a type."""
    database = symbol_database.Default()
    for is_last in (False, True):
        try:
            return database.GetSymbol(name)()
        except KeyError as error:
            if is_last or not _import(name):
                raise RemoteProtocolError(f"{name} is no type that is known here") from error
    raise AssertionError("the last one returns or raises")


def _import(name: str) -> bool:
    """The modules of a type's package, if it is one of Envoy's; whether there is such a package."""
    found = _PACKAGE.fullmatch(name)
    if found is None:
        return False
    try:
        package = importlib.import_module(found[1])
    except ImportError:
        return False
    modules = [each.name for each in pkgutil.iter_modules(package.__path__) if each.name.endswith("_pb2")]
    for each in modules:
        importlib.import_module(f"{found[1]}.{each}")
    return _is_known(name)


def _is_known(name: str) -> bool:
    try:
        symbol_database.Default().GetSymbol(name)
    except KeyError:
        return False
    return True
