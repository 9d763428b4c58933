"""Whether a run stands still under its memory.high: samples in, an answer out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.process.throttle import STUCK_FOR, SURE_AFTER, Sample, kept, no_progress, sample

HIGH = 16 << 20
S = 1_000_000
"""Microseconds in a second."""


def at(
    seconds: float = 0.0,
    high: int = 0,
    current: int = HIGH,
    held: int = HIGH,
    stalled: int | None = None,
    cpu: int = 0,
) -> Sample:
    return Sample(seconds, high, current, held, stalled, cpu)


# Two samples, then whether nothing but waiting for memory happened between them.
ROWS = [
    # With PSI: the share of time in which everything was stalled.
    ("stalled all the time", at(stalled=0), at(10, 900, stalled=10 * S), True),
    ("stalled just enough", at(stalled=0), at(10, 900, stalled=8 * S), True),
    ("stalled a little less", at(stalled=0), at(10, 900, stalled=8 * S - 1), False),
    ("near its limit, and working", at(stalled=0), at(10, 900, stalled=1 * S), False),
    ("stalled before, not since", at(stalled=50 * S), at(10, 900, stalled=50 * S), False),
    ("stalled, though little of it is held", at(stalled=0), at(10, 900, held=0, stalled=9 * S), True),
    ("stalled, though it uses the processor", at(stalled=0), at(10, 900, stalled=9 * S, cpu=9 * S), True),
    # Without: what it holds cannot be taken back, and it hardly runs.
    ("holds all and sleeps", at(), at(10, 900), True),
    ("holds just enough", at(), at(10, 900, held=int(0.8 * HIGH) + 1), True),
    ("holds a little less", at(), at(10, 900, held=int(0.8 * HIGH) - 1), False),
    ("reads files", at(), at(10, 900, held=1 << 20), False),
    ("works", at(), at(10, 900, cpu=5 * S), False),
    ("works hardly", at(), at(10, 900, cpu=5 * S - 1), True),
    # A kernel whose PSI was turned on or off in between has no difference to tell.
    ("PSI at the end only", at(), at(10, 900, stalled=10 * S), True),
    ("PSI at the start only, and it works", at(stalled=0), at(10, 900, cpu=9 * S), False),
    # Whatever else: only under the limit, only if it was felt, only after a while.
    ("no event", at(high=900, stalled=0), at(10, 900, stalled=10 * S), False),
    ("far below", at(stalled=0), at(10, 900, current=HIGH // 2, stalled=10 * S), False),
    ("just below", at(stalled=0), at(10, 900, current=int(0.9 * HIGH) - 1, stalled=10 * S), False),
    ("a moment", at(stalled=0), at(1.99, 900, stalled=2 * S), False),
    ("long enough", at(stalled=0), at(2.0, 900, stalled=2 * S), True),
    ("the same sample", at(0, 900, stalled=0), at(0, 900, stalled=0), False),
]


@pytest.mark.parametrize(
    ("first", "last", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_no_progress(first: Sample, last: Sample, expected: bool) -> None:
    assert no_progress(first, last, HIGH) is expected


TEXTS = {
    "memory.events": "low 0\nhigh 340\nmax 0\noom 0\noom_kill 0\n",
    "memory.current": "16777216\n",
    "memory.pressure": "some avg10=0.00 total=12\nfull avg10=96.00 avg60=1.00 avg300=0.00 total=9600000\n",
    "memory.stat": "anon 10000000\nfile 5000\nshmem 2000000\n",
    "cpu.stat": "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n",
}


def test_a_sample() -> None:
    assert sample(TEXTS, 7.5) == Sample(7.5, 340, 16777216, 12000000, 9600000, 1500)


def test_a_sample_without_pressure() -> None:
    texts = {name: text for name, text in TEXTS.items() if name != "memory.pressure"}
    assert sample(texts, 7.5).stalled_us is None


@pytest.mark.parametrize("missing", sorted(TEXTS))
def test_a_file_that_cannot_be_read_proves_nothing(missing: str) -> None:
    """The leaf is just going, or the kernel is old: then nothing is concluded from what is not there."""
    first = sample({name: text for name, text in TEXTS.items() if name != missing}, 0.0)
    last = sample({name: text for name, text in TEXTS.items() if name != missing}, 10.0)
    assert not no_progress(first, last, HIGH)


def test_of_no_files() -> None:
    assert sample({}, 1.0) == Sample(1.0, 0, 0, 0, None, 0)
    assert not no_progress(sample({}, 0.0), sample({}, 10.0), HIGH)


@given(st.lists(st.floats(0, 100), max_size=40).map(sorted), st.floats(0, 10))
def test_what_is_kept(times: list[float], later: float) -> None:
    now = (times[-1] if times else 0.0) + later
    samples = [at(when) for when in times]
    left = kept(samples, now)
    old = [one for one in samples if now - one.at >= STUCK_FOR]
    assert [one for one in left if now - one.at < STUCK_FOR] == samples[len(old) :]
    assert len(left) <= len(samples) - len(old) + 1
    # The oldest spans the time that counts, as soon as any does.
    if old:
        assert left[0] is old[-1]


def test_what_is_kept_does_not_grow() -> None:
    samples: list[Sample] = []
    for second in range(1000):
        samples = [*kept(samples, float(second)), at(float(second))]
        assert len(samples) <= STUCK_FOR + 1
    assert samples[-1].at - samples[0].at == STUCK_FOR


def test_the_times_fit_together() -> None:
    assert SURE_AFTER < STUCK_FOR
