"""``agentd cgroup``: a look at the cgroups that agentd uses."""

from __future__ import annotations

import os

import click

from agentd.cgroup.hierarchy import read_hierarchy
from agentd.cgroup.subtree import resolve
from agentd.cgroup.tree import live_leaves, render
from agentd.cli.base import helped
from agentd.errors import CgroupError

VERSION = 1

PARTIAL = 3
"""Exit code of a sweep that could not remove every leaf it found."""

_SUBTREE = click.option(
    "--cgroup",
    "spec",
    metavar="auto|PATH",
    default="auto",
    show_default=True,
    help="The subtree: below our own cgroup, or PATH.",
)


@click.group(add_help_option=False)
@helped
def cgroup() -> None:
    """Look at the cgroups that agentd uses."""


@cgroup.command(add_help_option=False)
@_SUBTREE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@helped
def tree(spec: str, as_json: bool) -> int:
    """Show the live leaves of a subtree, their limits and their usage. Makes and changes nothing."""
    path = _path(spec)
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


@cgroup.command("sweep", add_help_option=False)
@_SUBTREE
@click.option("--dry-run", is_flag=True, help="Only show what would be swept.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@helped
def sweep_command(spec: str, dry_run: bool, as_json: bool) -> int:
    """Kill and remove the leaves of dead supervisors: those whose owner's lock is free.

    A living supervisor's are never touched. Exit status 3: some could not be removed; they are named.
    """
    from agentd.cgroup import control
    from agentd.cgroup.sweep import sweep
    from agentd.process.left_behind import name_them

    path = _path(spec)
    try:
        fd = os.open(path, control.DIRECTORY)
    except FileNotFoundError:
        swept = []
    except OSError as error:
        raise CgroupError(
            f"{path}: {error.strerror}", path=path, remedy="name another with --cgroup"
        ) from error
    else:
        try:
            swept = sweep(fd, describe=name_them, dry_run=dry_run)
        finally:
            os.close(fd)
    if as_json:
        import json

        leaves = [
            {
                "name": one.name,
                "processes": [process.to_dict() for process in one.processes],
                "removed": one.removed,
                "problem": one.problem or None,
            }
            for one in swept
        ]
        click.echo(json.dumps({"version": VERSION, "cgroup": path, "dry_run": dry_run, "leaves": leaves}))
    elif swept:
        done = "would sweep" if dry_run else "swept"
        for one in swept:
            inside = ", ".join(f"{process.name} ({process.pid})" for process in one.processes) or "empty"
            problem = f"; {one.problem}" if one.problem else ""
            click.echo(f"{'could not sweep' if problem else done} {one.name}: {inside}{problem}")
        failed = sum(bool(one.problem) for one in swept)
        click.echo(f"{done} {len(swept) - failed}{f' of {len(swept)}' if failed else ''}")
    else:
        click.echo(f"nothing to sweep in {path}", err=True)
    return PARTIAL if any(one.problem for one in swept) else 0


def _path(spec: str) -> str:
    return resolve(spec, read_hierarchy(prefer="" if spec == "auto" else spec))
