"""Commands with a help option of our own.

click translates the text of its own: three looks for catalogues on the disk, and the import of `locale`, on
every start of ``agentd run``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def helped(function: F) -> F:
    """``-h`` and ``--help``. Use it with ``add_help_option=False``."""
    return click.option(
        "-h",
        "--help",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show,
        help="Show this and exit.",
    )(function)


def _show(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(context.get_help(), color=context.color)
        context.exit()
