"""Recognises in console logs that a kernel is in trouble: panics, oopses, lockups, machine checks, kills for memory.

One trouble prints many lines, on the serial console and by the network alike: together they are one occurrence, which
is raised once, as the worst that was in it, with a reference to the lines (kept apart from rotation).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from strata.core.errors import StrataError
from strata.fleet.tasks import beside
from strata.hardware.bmc.protocol import Severity
from strata.hardware.consoles.files import Line
from strata.hardware.consoles.log import ConsoleLog
from strata.hardware.events.records import EventSink, EventSource, HardwareEvent

log = logging.getLogger(__name__)

_BEFORE, _MOST = 30, 500
_OPEN = 5000
"""Nodes with an occurrence under way at one time."""


class Trouble(NamedTuple):
    """One kind of it."""

    name: str
    severity: Severity
    pattern: re.Pattern[str]


def _trouble(name: str, severity: Severity, pattern: str) -> Trouble:
    return Trouble(name, severity, re.compile(pattern))


TROUBLES: tuple[Trouble, ...] = (
    _trouble("panic", "critical", r"Kernel panic - not syncing|end Kernel panic"),
    _trouble("mce", "critical", r"Machine check: |Fatal [Mm]achine check|Hardware Error\]:.*(?i:fatal|uncorrected)"),
    _trouble(
        "oops",
        "critical",
        r"\bOops: |Internal error: |BUG: unable to handle|BUG: kernel NULL pointer|general protection fault[,:]"
        r"|Unable to handle kernel",
    ),
    _trouble("hard-lockup", "critical", r"detected hard LOCKUP|hard LOCKUP on cpu"),
    _trouble(
        "bug", "critical", r"kernel BUG at |BUG: (?!soft lockup)(?:KASAN|KFENCE|Bad |sleeping|scheduling|spinlock)"
    ),
    _trouble(
        "soft-lockup", "warning", r"BUG: soft lockup|rcu.*(?:self-)?detected stalls?|blocked for more than \d+ sec"
    ),
    _trouble("oom", "warning", r"Out of memory: |out of memory: Kill|invoked oom-killer|oom-kill:"),
    _trouble("mce", "warning", r"\[Hardware Error\]|Machine check events logged"),
)
"""What is looked for, worst first."""

_ANY = re.compile("|".join(f"(?:{trouble.pattern.pattern})" for trouble in TROUBLES))
_STAMP = re.compile(r"^(?:kernel: )?(?:<\d>)?(?:\[ *\d+\.\d+\](?:\[[^\]]{1,16}\])? ?)?")
_SOURCES: dict[str, EventSource] = {"serial": "console", "syslog": "syslog", "netconsole": "netconsole"}


_PANIC = 0
"""The place of a panic in ``TROUBLES``: no kernel goes on after one."""


class _Occurrence:
    __slots__ = ("first", "is_told", "last", "line", "rank", "timer")

    def __init__(self, line: Line, rank: int) -> None:
        self.first = self.last = line.id
        self.line, self.rank = line, rank
        self.is_told = False
        self.timer: asyncio.TimerHandle | None = None


class PanicWatch:
    """Listens to ``log`` and raises events. Close it: what is under way is raised first."""

    def __init__(self, log: ConsoleLog, sink: EventSink, *, settle: float = 3.0) -> None:
        self._log = log
        self._sink = sink
        self._settle = settle
        self._open: dict[str, _Occurrence] = {}
        self.panicked: list[Callable[[str, str], None]] = []
        """Take a node whose kernel panics, and what it says, as soon as it does. Of serial consoles alone: anybody can
        send a datagram."""
        self._raising: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(4)
        log.listeners.append(self.heard)

    async def close(self) -> None:
        """Raise what is under way."""
        for node in list(self._open):
            self._end(node)
        await asyncio.gather(*self._raising)

    def heard(self, node: str, lines: Sequence[Line]) -> None:
        """New lines of a node."""
        for line in lines:
            found = self._open.get(node)
            rank = _rank(line)
            if found is None:
                if rank is None or len(self._open) >= _OPEN:
                    continue
                found = self._open[node] = _Occurrence(line, rank)
            elif rank is not None and rank < found.rank:
                found.line, found.rank = line, rank
            found.last = line.id
            if rank == _PANIC and line.source == "serial" and not found.is_told:
                found.is_told = True
                for take in self.panicked:
                    take(node, _said(line))
            if found.last - found.first >= _MOST:
                self._end(node)
        found = self._open.get(node)
        if found is not None:
            if found.timer is not None:
                found.timer.cancel()
            # A trace that said that it is over may yet be followed by a panic; a little patience makes them one.
            found.timer = asyncio.get_running_loop().call_later(self._settle, self._end, node)

    def _end(self, node: str) -> None:
        found = self._open.pop(node)
        if found.timer is not None:
            found.timer.cancel()
        beside(self._raising, self._raise(node, found))

    async def _raise(self, node: str, found: _Occurrence) -> None:
        fields = {"line": str(found.line.id)}
        try:
            async with self._room:
                fields["dump"] = await self._log.keep(node, max(found.first - _BEFORE, 1), found.last)
        except (OSError, StrataError) as wrong:
            # The event matters more than its dump.
            log.warning("a console excerpt was not kept", extra={"node": node, "error": str(wrong)})
        trouble = TROUBLES[found.rank]
        event = HardwareEvent(
            time=found.line.time,
            severity=trouble.severity,
            message=_said(found.line),
            source=_SOURCES.get(found.line.source, "console"),
            key=f"console/{trouble.name}",
            node=node,
            fields=fields,
        )
        self._sink([event])


def _said(line: Line) -> str:
    return _STAMP.sub("", line.text)[:300]


def _rank(line: Line) -> int | None:
    """Which of the troubles the line tells of, if any. Other programs' syslog is not the kernel's word."""
    if line.source == "strata" or not _ANY.search(line.text):
        return None
    if line.source == "syslog" and not line.text.startswith("kernel:"):
        return None
    return next(rank for rank, trouble in enumerate(TROUBLES) if trouble.pattern.search(line.text))
