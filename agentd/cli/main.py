"""The command's entry: subcommands loaded when they are used, and every error as one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from agentd import __version__
from agentd.cli.base import helped

_COMMANDS = {
    "run": ("agentd.cli.run", "run", "Run a command in a cgroup leaf of its own."),
    "cgroup": ("agentd.cli.cgroup", "cgroup", "Look at the cgroups that agentd uses."),
}

USAGE = 2


class Lazy(click.Group):
    """Knows its commands by name and imports one when it is called: `agentd run` must start fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        import importlib

        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


def _show_version(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(f"agentd {__version__}")
        context.exit()


@click.group(cls=Lazy, add_help_option=False)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@helped
def cli() -> None:
    """Runs AI agents, and any other program, so that every limit is enforced from outside."""


def run_cli(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code. A traceback is a defect of agentd."""
    from agentd.errors import AgentdError, UsageError

    try:
        result = cli.main(args=list(arguments), prog_name="agentd", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.ClickException as error:
        complain(_one_line(error))
        return USAGE
    except click.Abort:
        return 130
    except UsageError as error:
        complain(str(error))
        return USAGE
    except AgentdError as error:
        complain(str(error))
        return 125 if arguments[:1] == ["run"] else 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return result if isinstance(result, int) else 0


def complain(line: str) -> None:
    """One line on stderr, whatever is in it."""
    click.echo(f"agentd: {' '.join(line.split())}", err=True)


def _one_line(error: click.ClickException) -> str:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if context is not None and isinstance(error, click.UsageError):
        return f"{message} See `{context.command_path} --help`."
    return message
