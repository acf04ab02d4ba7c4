"""One look at one controller: whether it tells us by itself, what its log has that is new, how its sensors are.

What is news is decided against the open alerts and against marks that are kept, not against what this process
remembers: a restart neither tells anything again nor misses the end of a trouble.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from strata.core.errors import NotOffered, StrataError
from strata.hardware.bmc import LogEntry, Severity
from strata.hardware.controllers import Controllers
from strata.hardware.events.event import HardwareEvent
from strata.hardware.events.inbox import Inbox
from strata.hardware.events.listen import Listener
from strata.hardware.events.marks import Marks
from strata.hardware.events.payload import from_log, from_readings
from strata.hardware.events.site import Site
from strata.hardware.events.words import plain

SILENT = "bmc/silent"
"""The key of the trouble that a controller does not answer."""

_WELL: Mapping[str, Mapping[str, Severity]] = {}
"""Shared by all that have nothing to tell: there may be 100,000 of them."""
_EMPTY = "-"
"""The mark of a log that was empty when it was first read."""
_KNOWN = 4
"""Entries of a log by which it is known how far it was read."""


class Watched:
    """What is remembered of one controller."""

    __slots__ = ("interval", "lacks", "misses", "site", "unwell")

    def __init__(self, site: Site, interval: float) -> None:
        self.site = site
        self.interval = interval
        self.misses = 0
        self.lacks: frozenset[str] = frozenset()
        self.unwell: Mapping[str, Mapping[str, Severity]] = _WELL
        """By node: its sensors that were not well when last looked at."""


class Looker:
    """Looks. ``troubles`` says which open alerts a node (or a controller without one) has, by key."""

    def __init__(
        self,
        controllers: Controllers,
        listener: Listener,
        inbox: Inbox,
        marks: Marks,
        *,
        troubles: Callable[[str], Mapping[str, Severity]] = lambda _: {},
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.listener = listener
        self.controllers = controllers
        self._inbox = inbox
        self._marks = marks
        self._troubles = troubles
        self._clock = clock

    async def look(self, watched: Watched) -> list[HardwareEvent]:
        """What is new. What a controller does badly does not keep us from the rest; the error is raised when it does
        nothing well, or has fallen silent."""
        events: list[HardwareEvent] = []
        failed: StrataError | None = None
        well = False
        for part in (self._arrange, self._log, self._sensors):
            try:
                events += await part(watched)
                well = well or part != self._arrange
            except NotOffered:
                watched.lacks |= {part.__name__}
            except StrataError as error:
                failed = error
                if self.controllers.silent(watched.site.address):
                    break  # no answer to this, so none to the rest
        if failed is not None and not well:
            raise failed
        return events

    def silence(self, site: Site, why: str) -> list[HardwareEvent]:
        """It cannot be looked at because of ``why`` (empty: it can): as an event, if that is news."""
        node = site.node_of("")
        if bool(why) == (SILENT in self._troubles(node or site.root)):
            return []
        return [
            HardwareEvent(
                time=self._clock(),
                severity="warning" if why else "ok",
                message=f"cannot be looked at: {why}" if why else "it answers again",
                source="poll",
                key=SILENT,
                node=node,
                bmc=site.root,
            )
        ]

    async def _arrange(self, watched: Watched) -> Sequence[HardwareEvent]:
        await self.listener.arrange(watched.site)
        return ()

    async def _log(self, watched: Watched) -> Sequence[HardwareEvent]:
        site = watched.site
        if self._log.__name__ in watched.lacks:
            return ()
        name = f"log/{site.root}"
        mark = self._marks.mark(name)
        known = [] if mark == _EMPTY else mark.split("\n") if mark else []
        last = known[-1].rpartition("@")[0] if known else ""
        entries = _after(await self.controllers.open(site.address).log(after=last), known)
        if entries or not mark:
            self._marks.set_mark(name, "\n".join((known + [_sign(entry) for entry in entries])[-_KNOWN:]) or _EMPTY)
        if not mark:
            return ()  # read for the first time: what is in it is the past
        events = from_log(entries, site, self._clock())
        return [event for event in events if not self._inbox.seen(site.root, event)]

    async def _sensors(self, watched: Watched) -> Sequence[HardwareEvent]:
        if self._sensors.__name__ in watched.lacks:
            return ()
        found: list[HardwareEvent] = []
        for address, node in watched.site.nodes:
            readings = await self.controllers.open(address).readings()
            before = {key: bad for key, bad in self._troubles(node).items() if key.startswith("sensor/")}
            before |= watched.unwell.get(node, {})
            events, unwell = from_readings(readings, before, watched.site, node, self._clock())
            if unwell or node in watched.unwell:
                watched.unwell = {**watched.unwell, node: unwell}
            found += events
        return found


def _sign(entry: LogEntry) -> str:
    """Tells an entry from others; the id alone does not, since ids begin anew when a log is cleared."""
    return f"{plain(entry.id, 100)}@{entry.time or 0:.0f}"


def _after(entries: Sequence[LogEntry], known: Sequence[str]) -> Sequence[LogEntry]:
    """Those after the last one that is known: a log that lost the newest of them is given to us from its beginning."""
    for i in range(len(entries) - 1, -1, -1):
        if _sign(entries[i]) in known:
            return entries[i + 1 :]
    return entries
