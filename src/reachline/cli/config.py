"""`reachline config`: what is wrong with a document, what it comes to, and its schema for editors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from reachline.cli.documents import TABLE, Checked, check_xray, directory, document_in, kind_of
from reachline.cli.main import USAGE
from reachline.cli.relay import relay
from reachline.cli.render import Column, Output, OutputOption, show, write_json
from reachline.doors import reach, reference
from reachline.doors.effective import effective
from reachline.doors.settings import Document
from reachline.errors import ConfigError, Problem
from reachline.net.reload import text_of

__all__ = ["app", "check", "schema", "show_effective"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Check, show and describe configuration.", context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip

_File = Annotated[str, typer.Argument(metavar="FILE", help="The document, YAML or JSON; - reads standard input.")]
_STDIN: Final = "-"


@app.command("check")
def check(
    file: _File,
    door: Annotated[
        str, typer.Option("--door", help=f"Read it as: {', '.join(TABLE)}. Without it its top keys say what it is.")
    ] = "",
    remarks: Annotated[str, typer.Option("--remarks", help="Of a list of Xray documents, the one of this name.")] = "",
    compat: Annotated[str, typer.Option("--compat", help="strict: exactly as Xray takes its document.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Say all that is wrong with a document.

    Each problem with file:line:column; exit code 2 where there is any. Reads documents of Reachline, bootstraps of Envoy, and
    documents of Xray: a file, or a directory as its -confdir.
    """
    if door and door not in TABLE:
        rule, hint = f"is no kind of document: {' or '.join(TABLE)}", ""
        raise ConfigError(Problem(place="config check", path="--door", value=repr(door), rule=rule, hint=hint))
    try:
        checked = _checked(file, door, remarks, compat)
    except ConfigError as error:
        if output is Output.TABLE:
            raise
        write_json({"ok": False, "problems": [_problem(each) for each in error.problems], "warnings": []})
        raise typer.Exit(USAGE) from None
    if output is Output.JSON:
        warnings = [_problem(each) for each in checked.warnings]
        write_json({"ok": True, "problems": [], "warnings": warnings, **checked.counts})
        return
    for warning in checked.warnings:
        typer.echo(f"reachline: warning: {warning}", err=True)
    typer.echo(f"{_name(file)}: good: {checked.said}")


def _checked(file: str, door: str, remarks: str, compat: str) -> Checked:
    if compat not in {"", "strict"}:
        raise ConfigError(Problem(place="config check", path="--compat", value=repr(compat), rule="must be strict"))
    files = directory(Path(file)) if file != _STDIN and Path(file).is_dir() else [(_name(file), _text(file))]
    kind = door or ("observatory" if len(files) > 1 else kind_of(files[0][1]))
    if kind == "observatory":
        return check_xray(files, remarks=remarks or None, strict=bool(compat))
    if remarks or compat:
        rule = "are for documents of Xray"
        raise ConfigError(Problem(place="config check", path="--remarks, --compat", value="", rule=rule))
    return TABLE[kind].check(files[0][1], files[0][0])


@app.command("show")
def show_effective(
    file: _File,
    cluster: Annotated[str, typer.Option("--cluster", "-c", help="Of this cluster alone.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show every value in force.

    Cluster by cluster, with where it was said: file:line:column, a preset, a class, or the default.
    """
    document = _read(file)
    if cluster and cluster not in document.clusters:
        known = f"it has {', '.join(document.clusters)}"
        raise ConfigError(
            Problem(place=_name(file), path="clusters", value=repr(cluster), rule="has no such cluster", hint=known)
        )
    names = [cluster] if cluster else list(document.clusters)
    rows = [*(row for name in names for row in _rows(document, name)), *_center_rows(document)]
    columns: list[Column[Row]] = [
        Column(title="cluster", cell=lambda row: row.cluster),
        Column(title="key", cell=lambda row: row.key),
        Column(title="value", cell=lambda row: row.value),
        Column(title="from", cell=lambda row: row.source),
    ]
    show(output, rows, columns, document=[row._asdict() for row in rows])


app.command("relay")(relay)


@app.command("schema")
def schema() -> None:
    """Print the document's JSON Schema.

    For editors and other tools.
    """
    write_json(reference.schema())
    if sys.stderr.isatty():
        typer.echo(f"Save it and begin your document with:  {reference.MODELINE}", err=True)


class Row(NamedTuple):
    """One value in force. `cluster` is empty for what concerns the whole document."""

    cluster: str
    key: str
    value: str
    source: str


def _rows(document: Document, name: str) -> Iterator[Row]:
    found = effective(document, name)
    for path, value in reference.values(found.settings):
        source = found.sources.get(path, "default")
        yield Row(name, reference.key(path), value, source)
    steps = ", ".join(reference.text(step, "share") for step in found.steps)
    yield Row(name, "steps in force", steps, "traffic_ratio, then step_ratios above it")
    for line in reach.lines(document, name):
        extra = f" via {line.outbound}" if line.outbound != "direct" else ""
        place = document.place(("clusters", name, "lines", line.id.partition("/")[2].partition("@")[0]))
        yield Row(name, f"line {line.id}", f"{line.endpoint}{extra}", place)


def _center_rows(document: Document) -> Iterator[Row]:
    written = document.center.model_fields_set
    for path, value in reference.values(document.center):
        source = document.place(("center", *path)) if path[0] in written else "default"
        yield Row("", f"center.{reference.key(path)}", value, source)
    for name in document.agents:
        yield Row(
            "",
            f"agents.{name}",
            str(reach.locality_of(document, name)) or "no locality",
            document.place(("agents", name)),
        )


def _read(file: str) -> Document:
    return document_in(_text(file), _name(file))


def _text(file: str) -> str:
    if file != _STDIN:
        return text_of(Path(file))
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            Problem(place=_name(file), path="", value="", rule=f"is no UTF-8 text (byte {error.start})", hint="")
        ) from None


def _name(file: str) -> str:
    return "stdin" if file == _STDIN else file


def _problem(problem: Problem) -> dict[str, str]:
    return {
        "place": problem.place,
        "path": problem.path,
        "value": problem.value,
        "rule": problem.rule,
        "hint": problem.hint,
    }
