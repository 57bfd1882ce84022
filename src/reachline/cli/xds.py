"""`reachline xds`: who follows a center by xDS, what each took, and what it refused and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import typer

from reachline.cli.asking import CENTER, CenterOption, ask
from reachline.cli.render import Column, Output, OutputOption, console, show
from reachline.core import words

__all__ = ["command"]

Row = Mapping[str, Any]

_SHORT: Final = {"Cluster": "CDS", "ClusterLoadAssignment": "EDS", "Listener": "LDS", "RouteConfiguration": "RDS"}
"""As its users call it."""
_SLOW: Final = 5.0
"""As the center counts a client that does not answer."""


def command(
    node: Annotated[str, typer.Argument(metavar="[NODE]", help="Only the streams of this node.")] = "",
    trouble: Annotated[bool, typer.Option("--trouble", help="Only who refused something, or takes nothing.")] = False,
    center: CenterOption = CENTER,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show every Envoy, gRPC client and proxy that follows the center: what it asks for, took, and refused with its reason.

    Troubled ones come first. A client that refuses one resource keeps getting the others, and goes on with what it had of that one.
    """
    asked = {key: value for key, value in (("node", node), ("trouble", "1" if trouble else "")) if value}
    document = ask(center, f"/api/v1/xds?{urlencode(asked)}")
    streams: Sequence[Row] = document["streams"]
    if output is Output.JSON or streams:
        show(output, streams, _COLUMNS, document=document)
    if output is Output.TABLE:
        for line in _notes(document, node, trouble=trouble):
            console().print(line, markup=False, highlight=False, soft_wrap=True)


def _notes(document: Row, node: str, *, trouble: bool) -> list[str]:
    """What the table does not say."""
    streams: Sequence[Row] = document["streams"]
    found = [
        f"{stream['node']} refuses {_SHORT.get(each['type'], each['type'])} {name}: {reason}"
        for stream in streams
        for each in stream["types"]
        for name, reason in (each["refused"] or ({"(unnamed)": each["error"]} if each["error"] else {})).items()
    ]
    if not document["served"] or document["reason"]:
        found.append(document["reason"])
    elif not streams:
        found.append(_nobody(node, trouble=trouble))
    if document["served"] and not document["settled"]:
        found.append(
            "the center began a short time ago: who was told more by one before it waits until lines are judged"
        )
    if len(streams) < document["streams_total"] and not node and not trouble:
        found.append(f"{len(streams)} of {document['streams_total']} streams, troubled ones first")
    found += [f"{cluster}: {note}" for cluster, notes in document["notes"].items() for note in notes]
    return found


def _nobody(node: str, *, trouble: bool) -> str:
    """What is said where nobody is shown."""
    if not node and not trouble:
        return "nobody follows this center by xDS yet: `reachline envoy bootstrap` points an Envoy at it"
    who = f"nobody by the name {node}" if node else "nobody"
    return f"{who} is in trouble" if trouble else f"{who} follows this center"


def _state(stream: Row) -> str:
    if stream["held"]:
        return "held"
    if any(each["refused"] or each["error"] for each in stream["types"]):
        return "refuses"
    if any(each["waiting"] for each in stream["types"]):
        return "takes nothing" if stream["heard"] > _SLOW else "is told"
    return "current" if all(each["current"] for each in stream["types"]) else "is told"


def _asks(stream: Row) -> str:
    """`CDS *, EDS 3`: what is subscribed to, everything or so many names."""
    parts = [
        f"{_SHORT.get(each['type'], each['type'])} {'*' if each['wildcard'] else each['names_total']}"
        for each in stream["types"]
    ]
    return ", ".join(parts)


def _style(stream: Row) -> str:
    return {"refuses": "red", "takes nothing": "yellow", "held": "yellow"}.get(_state(stream), "")


_COLUMNS: list[Column[Row]] = [
    Column(title="node", cell=lambda stream: stream["node"] or "–"),
    Column(title="release", cell=lambda stream: stream["release"]),
    Column(title="locality", cell=lambda stream: stream["locality"] or "–"),
    Column(title="variant", cell=lambda stream: stream["variant"]),
    Column(title="asks", cell=_asks),
    Column(title="state", cell=_state, style=_style),
    Column(title="told", cell=lambda stream: str(stream["told"]), align="right"),
    Column(title="for", cell=lambda stream: words.duration(round(stream["age"] * 1_000)), align="right"),
]
