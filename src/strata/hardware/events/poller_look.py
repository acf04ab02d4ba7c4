"""One look at one controller: whether it tells us by itself, what its log has that is new, how its sensors are.

What is news is decided against the open alerts and against marks that are kept, not against what this process
remembers: a restart neither tells anything again nor misses the end of a trouble.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from strata.core.contain import contained
from strata.core.errors import InternalFault, NotOffered, StrataError
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
BAD = "bmc/answers-badly"
"""The key of the trouble that it answers, and not so that it can be used, relied on, or read without guessing."""

_WELL: Mapping[str, Mapping[str, Severity]] = {}
"""Shared by all that have nothing to tell: there may be 100,000 of them."""
_EMPTY = "-"
"""The mark of a log that was empty when it was first read."""
_KNOWN = 4
"""Entries of a log by which it is known how far it was read."""


class Seen(NamedTuple):
    """What came of a look at a controller that answered: what is new, and what is wrong with how it answers."""

    events: list[HardwareEvent]
    wrong: str = ""


class Watched:
    """What is remembered of one controller."""

    __slots__ = ("interval", "lacks", "misses", "site", "unwell")

    def __init__(self, site: Site, interval: float) -> None:
        self.site = site
        self.interval = interval
        self.misses = 0
        """Looks in vain, or answered badly, one after the other."""
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

    async def look(self, watched: Watched) -> Seen:
        """What is new, and what is wrong. What a controller does badly does not keep us from the rest; the error is
        raised when it does nothing well, or has fallen silent."""
        events: list[HardwareEvent] = []
        failed: StrataError | None = None
        well, wrong, address = False, "", watched.site.address
        for part, what in ((self._arrange, ""), (self._power, "power"), (self._log, "log"), (self._sensors, "sensors")):
            try:
                with contained(watched.site.root):
                    events += await part(watched)
                well = well or bool(what)
            except StrataError as error:
                if isinstance(error, NotOffered) and what != "power":
                    watched.lacks |= {part.__name__}
                    continue
                failed = error
                self.controllers.failed(address, error)
                if what or isinstance(error, InternalFault):
                    wrong = wrong or f"its {what or 'events'} cannot be read: {plain(error.detail, 200)}"
                if self.controllers.silent(address):
                    break  # no answer to this, so none to the rest
        if failed is not None and not well:
            raise failed
        flaws = [flaw for node, _ in watched.site.nodes if (flaw := self.controllers.flaw(node))]
        return Seen(events, wrong or plain(flaws[0] if flaws else "", 200))

    def conduct(self, site: Site, *, silent: str | None = None, bad: str | None = None) -> list[HardwareEvent]:
        """It does not answer, or answers badly, for these reasons (empty: it is not so; None: that is not known): as
        events, as far as they are news."""
        node = site.node_of("")
        troubles = self._troubles(node or site.root)
        return [
            HardwareEvent(
                time=self._clock(),
                severity="warning" if why else "ok",
                message=why or over,
                source="poll",
                key=key,
                node=node,
                bmc=site.root,
            )
            for key, why, over in (
                (SILENT, silent, "the BMC answers again"),
                (BAD, bad, "the BMC answers as it should again"),
            )
            if why is not None and bool(why) != (key in troubles)
        ]

    async def _arrange(self, watched: Watched) -> Sequence[HardwareEvent]:
        await self.listener.arrange(watched.site)
        return ()

    async def _power(self, watched: Watched) -> Sequence[HardwareEvent]:
        """Whether it can say if its nodes are on; what is wrong with the answer is its flaw. There is no doing without
        this: one that does not offer it is no better than one that fails."""
        for address, _ in watched.site.nodes:
            self.controllers.saw(address, await self.controllers.open(address).power())
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
