"""``agentd cgroup``: a look at the cgroups that agentd uses."""

from __future__ import annotations

import click

from agentd.cgroup.hierarchy import read_hierarchy
from agentd.cgroup.subtree import resolve
from agentd.cgroup.tree import live_leaves, render
from agentd.cli.base import helped
from agentd.errors import CgroupError

VERSION = 1


@click.group(add_help_option=False)
@helped
def cgroup() -> None:
    """Look at the cgroups that agentd uses."""


@cgroup.command(add_help_option=False)
@click.option(
    "--cgroup",
    "spec",
    metavar="auto|PATH",
    default="auto",
    show_default=True,
    help="The subtree: below our own cgroup, or PATH.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@helped
def tree(spec: str, as_json: bool) -> int:
    """Show the live leaves of a subtree, their limits and their usage. Makes and changes nothing."""
    path = resolve(spec, read_hierarchy(prefer="" if spec == "auto" else spec))
    try:
        leaves = live_leaves(path)
    except OSError as error:
        raise CgroupError(
            f"{path}: {error.strerror}", path=path, remedy="name another with --cgroup"
        ) from error
    if as_json:
        import json

        click.echo(json.dumps({"version": VERSION, "cgroup": path, "leaves": leaves}))
    elif leaves:
        click.echo(render(leaves))
    else:
        click.echo(f"no live leaves in {path}", err=True)
    return 0
