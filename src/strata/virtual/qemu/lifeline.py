"""Watches one process through its pidfd, which can be no other's: says once that it ended, in order with all else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Callable

from strata.core import process as ps


class Lifeline:
    """A process, our child or not. ``told`` is called once, when it has ended with all its threads."""

    def __init__(self, process: ps.Process, told: Callable[[], None]) -> None:
        self.process = process
        self.ended = asyncio.Event()
        self._told = told
        self._handle = os.pidfd_open(process.pid)
        self._poll = select.poll()
        self._poll.register(self._handle, select.POLLIN)
        asyncio.get_running_loop().add_reader(self._handle, self.look)

    def look(self) -> bool:
        """Whether it runs. Whoever asks also has an end told that the loop has not come to yet."""
        # Not by /proc: there, a process is a zombie as soon as its first thread is, and still holds its devices.
        if self._handle >= 0 and self._poll.poll(0):
            self.close()
            ps.reap(self.process)
            self.ended.set()
            self._told()
        return not self.ended.is_set()

    def kill(self) -> None:
        """End it at once; ``ended`` tells when it has."""
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def close(self) -> None:
        """Watch no longer. The process goes on."""
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            self._poll.unregister(self._handle)
            os.close(self._handle)
            self._handle = -1
