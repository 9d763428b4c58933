"""``agentd run``: one command, contained."""

from __future__ import annotations

from typing import Any

import click

from agentd.cli import early
from agentd.cli.base import helped
from agentd.cli.options import gather
from agentd.cli.summary import line


@click.command(
    add_help_option=False,
    context_settings={"allow_interspersed_args": False},
    short_help="Run a command in a cgroup leaf of its own.",
    epilog="Exit status: COMMAND's own; 128+N when signal N ended it; 124 a time limit, 137 the memory limit, "
    "130 or 143 when it was asked to end; 125 agentd refused or failed, 126 COMMAND cannot be executed, "
    "127 it was not found; 2 a usage error.",
)
@click.option(
    "--memory-max", metavar="SIZE", help="Hard memory limit: 512M, 25%. Swap is 0 unless --swap-max."
)
@click.option("--memory-high", metavar="SIZE", help="Memory above which it is slowed down and reclaimed.")
@click.option("--swap-max", metavar="SIZE", help="Swap limit.")
@click.option("--oom-group", is_flag=True, help="At the memory limit kill all of it, not one process.")
@click.option("--pids-max", metavar="N", help="Processes and threads.")
@click.option("--cpu-max", metavar="CPUS", help="1.5, 150% or 'QUOTA PERIOD' in microseconds.")
@click.option("--cpu-weight", metavar="N", help="Share under contention, 1 to 10000.")
@click.option("--cpuset-cpus", metavar="LIST", help="Processors it may use: 0-3,8.")
@click.option("--io-max", metavar="LIMIT", multiple=True, help="'DEVICE rbps=N wbps=N riops=N wiops=N'.")
@click.option("--set", "set_", metavar="FILE=VALUE", multiple=True, help="Any other cgroup file.")
@click.option("--timeout", metavar="TIME", help="Wall-clock limit: 250ms, 10s, 5m, 1h.")
@click.option("--cpu-time", metavar="TIME", help="Processor time of all its processes together.")
@click.option("--idle-timeout", metavar="TIME", help="End it when it writes nothing for so long.")
@click.option("--grace", metavar="TIME", default="5s", show_default=True, help="From TERM to KILL.")
@click.option(
    "--cgroup",
    metavar="auto|required|off|PATH",
    default="auto",
    show_default=True,
    help="Where leaves are made; required refuses to run without one.",
)
@click.option(
    "--best-effort", is_flag=True, help="Run although a limit cannot be in force; warn and report it."
)
@click.option("--delegate", is_flag=True, help="COMMAND may make cgroups below its leaf.")
@click.option("--tty", is_flag=True, help="Give COMMAND a pseudo-terminal, session and group of its own.")
@click.option("--cwd", metavar="DIR", help="Working directory.")
@click.option(
    "-e", "--env", "env", metavar="NAME[=VALUE]", multiple=True, help="Set a variable, or pass ours on."
)
@click.option("--clear-env", is_flag=True, help="Start with an empty environment (but for --env).")
@click.option("--name", metavar="NAME", help="The run's name in reports.")
@click.option(
    "--background",
    metavar="kill|wait",
    default="kill",
    show_default=True,
    help="What becomes of processes that outlive COMMAND.",
)
@click.option("--report", metavar="FILE|-", help="Write the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No line at the end.")
@helped
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARG]...")
def run(command: tuple[str, ...], **given: Any) -> int:
    """Run COMMAND in a cgroup leaf of its own: limited from outside, killed with everything it started when
    it ends, and reported on."""
    early_mask = early.original_mask
    if early_mask is None:  # called as a function, not as the command
        early.hold_signals()
        early_mask = early.original_mask or set()
    request = gather(command, given)

    from agentd.errors import AgentdError, StartError, UsageError
    from agentd.linux.signalfd import mask_of
    from agentd.process.foreground import Foreground, own_this_process
    from agentd.process.report import failed_start
    from agentd.process.supervisor import Supervisor

    try:
        with Supervisor(request.cgroup) as supervisor:
            own_this_process(supervisor)
            report = Foreground(early.held, request.grace).run(
                supervisor,
                request.command,
                tty=request.tty,
                capture=request.capture,
                sigmask=mask_of(early_mask),
                announce=request.announce,
                **request.spawn,
            )
    except AgentdError as error:
        code = (
            error.exit_code if isinstance(error, StartError) else 2 if isinstance(error, UsageError) else 125
        )
        request.write_report(failed_start(request.command, request.spawn, error, code))
        request.complain(str(error))
        return code
    request.write_report(report)
    if not request.quiet:
        request.complain(line(report))
    return report.exit_code
