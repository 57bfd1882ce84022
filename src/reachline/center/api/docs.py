"""The API as one page, made from its OpenAPI document: no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi.responses import HTMLResponse

__all__ = ["page"]

_STYLE = (
    "body{font:15px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}code{background:#8882;padding:0 .3em}"
    "td,th{text-align:left;vertical-align:top;padding:.1rem .8rem .1rem 0}h2{margin-top:2rem}:root{color-scheme:light dark}"
)


def page(openapi: Mapping[str, Any]) -> HTMLResponse:
    """Every operation with its parameters, and every document with its fields."""
    body = "".join((*_operations(openapi["paths"]), *_documents(openapi.get("components", {}).get("schemas", {}))))
    head = f"<!doctype html><meta charset=utf-8><title>Reachline API</title><style>{_STYLE}</style>"
    intro = '<h1>Reachline API</h1><p>Machines read <a href="openapi.json">openapi.json</a>.</p>'
    return HTMLResponse(head + intro + body)


def _operations(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation.get('description', ''))}</p>"
            rows = [
                f"<tr><td><code>{escape(each['name'])}</code><td>{escape(each.get('description', each['in']))}</tr>"
                for each in operation.get("parameters", ())
            ]
            yield f"<table>{''.join(rows)}</table>" if rows else ""


def _documents(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        fields = "".join(
            f"<tr><td><code>{escape(field)}</code><td>{escape(_kind(kind))}</tr>"
            for field, kind in schema.get("properties", {}).items()
        )
        text = escape(schema.get("description", ""))
        yield f"<h2 id='{escape(name)}'>{escape(name)}</h2><p>{text}</p><table>{fields}</table>"


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if schema.get("type") == "array" and "items" in schema:
        return f"list of {_kind(schema['items'])}"
    return str(schema.get("const") or schema.get("type", "any"))
