"""The last bytes of a stream, in constant memory."""

from __future__ import annotations


class Tail:
    """Keeps the last ``capacity`` bytes of what was fed, and counts all of them."""

    __slots__ = ("_chunks", "capacity", "total")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.total = 0
        self._chunks = bytearray()

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        self._chunks += data[-self.capacity :] if self.capacity else b""
        # Cut at twice the capacity, so that the cost of a byte does not depend on how it came.
        if len(self._chunks) > 2 * self.capacity:
            del self._chunks[: len(self._chunks) - self.capacity]

    @property
    def bytes(self) -> bytes:
        return bytes(self._chunks[-self.capacity :]) if self.capacity else b""

    @property
    def truncated(self) -> bool:
        """Whether there was more than is kept."""
        return self.total > len(self.bytes)
