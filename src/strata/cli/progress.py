"""Progress of long work: a bar on a terminal, a line now and then in a pipe. Both on standard error."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from strata.cli.words import segment
from strata.core.printable import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress, TaskID

    from strata.cli.client import Client, Json
    from strata.cli.output import Output

LINE_EVERY = 5.0
"""Seconds between two lines in a pipe. The first and the last are always printed."""

FINISHED = ("done", "failed", "cancelled")


class Meter:
    """Shows how far ``title`` is, from the first ``update`` on. Use it as a context.

    ``every``: seconds between two lines in a pipe; 0 for work of a few steps, each worth a line.
    """

    def __init__(
        self, out: Output, title: str, *, every: float = LINE_EVERY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._title = title
        self._every = every
        self._clock = clock
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._printed: tuple[int, int, str] | None = None
        self._at = -every
        self._last: tuple[int, int, str] | None = None

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._last != self._printed and self._last is not None:
            self._line(self._last)

    def update(self, done: int, total: int, detail: str = "") -> None:
        """So far ``done`` of ``total``; a total of 0 is one that nobody knows."""
        self._last = (done, total, clean(detail))
        if self._out.stderr.isatty():
            self._draw(done, total, clean(detail))
        elif self._last != self._printed and self._clock() - self._at >= self._every:
            self._line(self._last)

    def _draw(self, done: int, total: int, detail: str) -> None:
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
            from rich.table import Column

            # Text columns read markup by default; what comes from the service must not be read so.
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                TimeElapsedColumn(),
                TextColumn("{task.fields[far]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
                console=self._out.console(error=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=None, far="")
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total or None, far=_far(done, total, detail))

    def _line(self, state: tuple[int, int, str]) -> None:
        self._printed, self._at = state, self._clock()
        self._out.note(f"{self._title}: {_far(*state)}".rstrip())
        self._out.stderr.flush()


def _far(done: int, total: int, detail: str) -> str:
    return f"{done}/{total} {detail}".rstrip() if total else detail


def wait_operation(client: Client, operation: Json, out: Output, *, deadline: float | None = None) -> Json:
    """Follow an operation to its end, or to ``deadline`` (monotonic clock); the operation as it then stands."""
    pause = 0.1
    with Meter(out, f"operation {operation['id']}") as meter:
        while True:
            failed = f"{operation['failed']} failed" if operation.get("failed") else ""
            meter.update(int(operation["done"]), int(operation["total"]), failed)
            late = deadline is not None and time.monotonic() >= deadline
            if operation["state"] in FINISHED or late:
                return operation
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)
            operation = client.get(f"/v1/operations/{segment(str(operation['id']))}")
