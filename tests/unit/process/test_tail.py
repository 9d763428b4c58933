"""The last bytes of a stream, against the naive way of keeping them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.process.tail import Tail


@given(capacity=st.integers(0, 40), pieces=st.lists(st.binary(max_size=100), max_size=30))
def test_it_is_the_end_of_all_that_was_fed(capacity: int, pieces: list[bytes]) -> None:
    tail = Tail(capacity)
    everything = b""
    for piece in pieces:
        tail.feed(piece)
        everything += piece
        assert tail.bytes == (everything[-capacity:] if capacity else b"")
        assert tail.total == len(everything)
        assert tail.truncated == (len(everything) > capacity)


@pytest.mark.parametrize("size", [1, 7, 65536])
def test_memory_does_not_grow_with_the_stream(size: int) -> None:
    tail = Tail(1000)
    for _ in range(5000):
        tail.feed(b"x" * size)
        assert len(tail._chunks) <= 2 * tail.capacity + 1000
    assert tail.total == 5000 * size
