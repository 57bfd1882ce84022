"""The Typer group that shows every command and imports only the one that runs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from reachline.cli.main import Entry, missing, show_version

if TYPE_CHECKING:
    from typer._click import Command, Context

__all__ = ["build", "load", "run"]

_HELP: Final = "Reachline: is this line good enough to carry traffic now?"
_EPILOG: Final = "Exit codes: 0 well, 1 not well, 2 usage or configuration, 130 interrupted."


def run(arguments: Sequence[str], commands: Mapping[str, Entry]) -> int:
    """Runs the command that `arguments` name; its exit code. A library it lacks is named with its extra."""
    try:
        code: object = build(commands).main(list(arguments), prog_name="reachline")
    except SystemExit as leaving:
        code = leaving.code
    except ModuleNotFoundError as error:
        entry = commands.get(next(iter(arguments), ""))
        if entry is not None and (lack := missing(error, entry.extra)) is not None:
            raise lack from error
        raise
    return code if isinstance(code, int) else int(code is not None)


def build(commands: Mapping[str, Entry]) -> TyperGroup:
    """The root group over `commands`; help texts come from the table, code from the modules, when they run."""

    class Group(TyperGroup):
        """What Typer demands: a group whose commands are looked up late."""

        def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002
            return list(commands)

        def get_command(self, ctx: Context, cmd_name: str) -> Command | None:  # noqa: ARG002
            entry = commands.get(cmd_name)
            return None if entry is None else TyperCommand(cmd_name, callback=None, help=entry.summary)

        def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            return name, load(name, commands[name]) if name else command, rest

    app = typer.Typer(
        cls=Group, help=_HELP, epilog=_EPILOG, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback()(_options)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    group.commands = {name: TyperCommand(name, help=entry.summary) for name, entry in commands.items()}
    return group


def load(name: str, entry: Entry) -> Command:
    """The real command, imported now."""
    module: Any = importlib.import_module(entry.module)
    command = get_command(_application(name, module))
    command.name = name
    return command


def _application(name: str, module: Any) -> typer.Typer:
    group = getattr(module, "app", None)
    if isinstance(group, typer.Typer):
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    function = getattr(module, "COMMANDS", {}).get(name) or module.command
    alone.command(name, context_settings={"help_option_names": ["-h", "--help"]})(function)
    return alone


def _options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    if version:
        raise typer.Exit(show_version())
