"""The command's entry: subcommands loaded when they are used, and every error as one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

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


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="agentd-runtime", message="%(prog)s %(version)s")
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
