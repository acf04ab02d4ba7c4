"""Lines that the node's members, its kernel and its agent print: kept for a while, sent in batches, bounded in rate."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from ..errors import AgentError, Refused

_KEPT = 5000
_BATCH = 1000
_LINE = 1000
_PER_SECOND = 200.0
_BURST = 1000.0
_GATHER = 1.0


class Logs:
    """Takes lines from every thread; what is too much is dropped, counted, and the count sent."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._lines: deque[tuple[float, str, str]] = deque()
        self._allowance: dict[str, tuple[float, float]] = {}
        self._dropped: dict[str, int] = {}
        self._tails: dict[str, deque[str]] = {}

    def say(self, text: str) -> None:
        """The agent's own line: on the console too."""
        print(f"strata-agent: {text}", file=sys.stderr, flush=True)
        self.add("agent", text)

    def add(self, source: str, text: str) -> None:
        """One line; control characters are made harmless."""
        text = "".join(c if c.isprintable() or c == "\t" else "�" for c in text[:_LINE])
        now = time.monotonic()
        with self._lock:
            self._tails.setdefault(source, deque(maxlen=20)).append(text)
            left, since = self._allowance.get(source, (_BURST, now))
            left = min(_BURST, left + (now - since) * _PER_SECOND)
            if left < 1:
                self._allowance[source] = (left, now)
                self._drop(source)
                return
            self._allowance[source] = (left - 1, now)
            if len(self._lines) >= _KEPT:
                self._drop(self._lines.popleft()[1])
            self._lines.append((time.time(), source, text))
            self._lock.notify()

    def tail(self, source: str, count: int = 3) -> str:
        """The last lines of one source, for an error's reason."""
        with self._lock:
            return " | ".join(list(self._tails.get(source, ()))[-count:])[-500:]

    def forget(self, source: str) -> None:
        """Start a source's tail anew: what an earlier run printed explains nothing about this one."""
        with self._lock:
            self._tails.pop(source, None)

    def run(self, send: Callable[[list[list[object]]], None]) -> None:
        """Send batches for ever; a controller that is away is waited for, one that refuses a batch loses it."""
        pause = _GATHER
        while True:
            with self._lock:
                while not self._lines:
                    self._lock.wait()
            time.sleep(pause)
            batch = self._take()
            try:
                send([list(line) for line in batch])
                pause = _GATHER
            except Refused:
                pause = 30.0
            except AgentError:
                pause = min(30.0, pause * 2)
                self._put_back(batch)

    def _take(self) -> list[tuple[float, str, str]]:
        with self._lock:
            batch = [self._lines.popleft() for _ in range(min(_BATCH - len(self._dropped), len(self._lines)))]
            now = time.time()
            batch += [(now, source, f"({count} lines dropped)") for source, count in self._dropped.items()]
            self._dropped.clear()
            return batch

    def _put_back(self, batch: list[tuple[float, str, str]]) -> None:
        with self._lock:
            self._lines.extendleft(reversed(batch))
            while len(self._lines) > _KEPT:
                self._drop(self._lines.popleft()[1])

    def _drop(self, source: str) -> None:
        if source in self._dropped or len(self._dropped) < 100:
            self._dropped[source] = self._dropped.get(source, 0) + 1
