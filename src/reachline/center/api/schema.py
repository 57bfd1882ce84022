"""The contract's TypedDicts as JSON Schema, so that OpenAPI and the types in `wire` cannot drift apart."""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, ConfigDict, create_model

__all__ = ["model"]


@cache
def model(document: type) -> type[BaseModel]:
    """A pydantic model with the fields of a TypedDict, nested ones included. Used for the schema only, never to validate."""
    hints = get_type_hints(document)
    optional: frozenset[str] = getattr(document, "__optional_keys__", frozenset())
    fields: dict[str, Any] = {
        name: (_translated(hint), None if name in optional else ...) for name, hint in hints.items()
    }
    config = ConfigDict(protected_namespaces=())
    return create_model(document.__name__, __config__=config, __doc__=document.__doc__, **fields)


def _translated(hint: Any) -> Any:
    if is_typeddict(hint):
        return model(hint)
    container: Any = get_origin(hint)
    if container is UnionType:
        return reduce(or_, map(_translated, get_args(hint)))
    if container in (list, dict):
        return container[tuple(map(_translated, get_args(hint)))]
    return hint
