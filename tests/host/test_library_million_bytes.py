"""A million bytes, then the end with 3: never a byte short, and never a report before the bytes."""

from __future__ import annotations

import pytest

from agentd.process.report import Report
from agentd.process.streams import DEVNULL, Capture
from agentd.process.supervisor import Supervisor
from tests.support.runs import Agentd

SIZE = 1_000_000
COMMAND = ("sh", "-c", f"head -c {SIZE} /dev/zero; exit 3")
TIMES = [
    20,
    pytest.param(100, marks=pytest.mark.default),
    pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
]


class Sink:
    """Counts, and knows how much there was when the report came."""

    def __init__(self) -> None:
        self.count = 0
        self.at_report: int | None = None

    def __call__(self, data: bytes) -> None:
        assert self.at_report is None, "bytes came after the report"
        self.count += len(data)

    def on_exit(self, report: Report) -> None:
        self.at_report = self.count


@pytest.mark.parametrize("times", TIMES)
def test_to_a_sink(cgroup_root: str, times: int) -> None:
    with Supervisor(cgroup_root) as supervisor:
        for _ in range(times):
            sink = Sink()
            child = supervisor.spawn(COMMAND, stdin=DEVNULL, stdout=Capture(sink=sink), on_exit=sink.on_exit)
            report = child.wait(60)
            assert sink.count == SIZE
            assert (report.verdict.code, report.verdict.cause) == (3, "error")
            tail = report.tails["stdout"]
            assert (tail.total, tail.complete) == (SIZE, True)
            assert sink.at_report in (None, SIZE)


@pytest.mark.parametrize("times", TIMES)
def test_to_the_tail_alone(cgroup_root: str, times: int) -> None:
    with Supervisor(cgroup_root) as supervisor:
        children = []
        for number in range(times):
            children.append(supervisor.spawn(COMMAND, stdin=DEVNULL, stdout=Capture()))
            if number % 5 == 4:  # five at a time
                for child in children:
                    report = child.wait(60)
                    tail = report.tails["stdout"]
                    assert (tail.total, tail.complete, report.verdict.code) == (SIZE, True, 3)
                children.clear()


@pytest.mark.parametrize(
    "times",
    [
        3,
        pytest.param(40, marks=pytest.mark.default),
        pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_from_the_command_line(agentd: Agentd, times: int) -> None:
    """With --idle-timeout agentd reads what passes."""
    for _ in range(times):
        done = agentd("--idle-timeout", "30s", "--", *COMMAND)
        assert (len(done.stdout), done.code) == (SIZE, 3)
        assert done.report["tails"]["stdout"]["bytes"] == SIZE
