"""Looks at every BMC now and then: its log, its sensors, and whether it still tells us by itself what happens.

One with news is looked at more often, a quiet one less and less, one that pushes rarely. Looks are spread out, bounded
in number per second and at a time; a BMC that is known to be silent takes no part of either.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from strata.core.errors import InternalFault, NotOffered, StrataError
from strata.core.fault_isolation import contained
from strata.fleet.tasks import all_cancelled, beside
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.pace import Pace, Place
from strata.hardware.bmc.protocol import LogEntry, Severity
from strata.hardware.events.inbox import Inbox
from strata.hardware.events.listen import Listener
from strata.hardware.events.log import EventLog
from strata.hardware.events.payload import from_log, from_readings
from strata.hardware.events.records import EventSink, HardwareEvent
from strata.hardware.events.site import Site
from strata.hardware.events.words import plain

SILENT = "bmc/silent"
"""The key of the trouble that a BMC does not answer."""
BAD = "bmc/answers-badly"
"""The key of the trouble that it answers, and not so that it can be used, relied on, or read without guessing."""

_WELL: Mapping[str, Mapping[str, Severity]] = {}
"""Shared by all that have nothing to tell: there may be 100,000 of them."""
_NO_LOGS: Mapping[str, str] = {}
_EMPTY = "-"
"""The mark of a log that was empty when it was first read."""
_KNOWN = 4
"""Entries of a log by which it is known how far it was read."""


class Seen(NamedTuple):
    """What came of a look at a BMC that answered: what is new, and what is wrong with how it answers."""

    events: list[HardwareEvent]
    wrong: str = ""


class Watched:
    """What is remembered of one BMC."""

    __slots__ = ("interval", "lacks", "logs", "misses", "site", "unwell")

    def __init__(self, site: Site, interval: float) -> None:
        self.site = site
        self.interval = interval
        self.misses = 0
        """Looks in vain, or answered badly, one after the other."""
        self.lacks: frozenset[str] = frozenset()
        self.logs: Mapping[str, str] = _NO_LOGS
        """By address: the path of its node's log; nodes may share one. Empty: it keeps none."""
        self.unwell: Mapping[str, Mapping[str, Severity]] = _WELL
        """By node: its sensors that were not well when last looked at."""


class Looker:
    """Looks. ``troubles`` says which open alerts a node (or a BMC without one) has, by key."""

    def __init__(
        self,
        bmcs: Bmcs,
        listener: Listener,
        inbox: Inbox,
        marks: EventLog,
        *,
        troubles: Callable[[str], Mapping[str, Severity]] = lambda _: {},
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.listener = listener
        self.bmcs = bmcs
        self._inbox = inbox
        self._marks = marks
        self._troubles = troubles
        self._said: dict[tuple[str, str], str] = {}
        self._clock = clock

    async def look(self, watched: Watched) -> Seen:
        """What is new, and what is wrong. What a BMC does badly does not keep us from the rest; the error is
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
                self.bmcs.failed(address, error)
                if what or isinstance(error, InternalFault):
                    wrong = wrong or f"its {what or 'events'} cannot be read: {plain(error.detail, 200)}"
                if self.bmcs.silent(address):
                    break  # no answer to this, so none to the rest
        if failed is not None and not well:
            raise failed
        flaws = [flaw for node, _ in watched.site.nodes if (flaw := self.bmcs.flaw(node))]
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
            if why is not None and (bool(why) != (key in troubles) or (why and self._news(site.root, key, why)))
        ]

    def _news(self, root: str, key: str, why: str) -> bool:
        """Whether something else was the matter when this was last told: an alert says what is so now."""
        before, self._said[root, key] = self._said.get((root, key)), why
        return before is not None and before != why

    async def _arrange(self, watched: Watched) -> Sequence[HardwareEvent]:
        await self.listener.arrange(watched.site)
        return ()

    async def _power(self, watched: Watched) -> Sequence[HardwareEvent]:
        """Whether it can say if its nodes are on; what is wrong with the answer is its flaw. There is no doing without
        this: one that does not offer it is no better than one that fails."""
        for address, _ in watched.site.nodes:
            self.bmcs.saw(address, await self.bmcs.open(address).power())
        return ()

    async def _log(self, watched: Watched) -> Sequence[HardwareEvent]:
        """The logs of all nodes behind it, each once: some BMCs keep one for all, some one for each."""
        if self._log.__name__ in watched.lacks:
            return ()
        events: list[HardwareEvent] = []
        lacking: NotOffered | None = None
        read = set[str]()
        for address, _ in watched.site.nodes:
            known = watched.logs.get(address)
            if known == "" or known in read:
                continue
            try:
                events += await self._log_of(watched, address, read)
            except NotOffered as error:
                lacking = error
                watched.logs = {**watched.logs, address: ""}
        if lacking is not None and not any(watched.logs.get(address) != "" for address, _ in watched.site.nodes):
            raise lacking
        return events

    async def _log_of(self, watched: Watched, address: str, read: set[str]) -> Sequence[HardwareEvent]:
        """What is new in the log of one node; nothing, where another node's look has ``read`` it already."""
        site = watched.site
        mark = self._marks.mark(f"log/{address}")
        if not mark and address == site.address:
            mark = self._marks.mark(f"log/{site.root}")
        known = [] if mark == _EMPTY else mark.split("\n") if mark else []
        last = known[-1].rpartition("@")[0] if known else ""
        found = await self.bmcs.open(address).log(after=last)
        log = found[-1].log if found else watched.logs.get(address, "")
        if len(site.nodes) > 1 and log and watched.logs.get(address) != log:
            watched.logs = {**watched.logs, address: log}
        entries = _after(found, known)
        if entries or not mark:
            text = "\n".join((known + [_sign(entry) for entry in entries])[-_KNOWN:]) or _EMPTY
            # Whoever is read in the place of this node goes on from here.
            for other in {address, *(one for one, path in watched.logs.items() if log and path == log)}:
                self._marks.set_mark(f"log/{other}", text)
        if not mark or log in read:
            return ()  # read for the first time: what is in it is the past; or by another node's name
        if log:
            read.add(log)
        events = from_log(entries, site, self._clock())
        return [event for event in events if not self._inbox.seen(site.root, event)]

    async def _sensors(self, watched: Watched) -> Sequence[HardwareEvent]:
        if self._sensors.__name__ in watched.lacks:
            return ()
        found: list[HardwareEvent] = []
        for address, node in watched.site.nodes:
            readings = await self.bmcs.open(address).readings()
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


_COST = 4.0
"""Turns that a look takes: it is several requests."""
_AT_ONCE = 2000
"""New BMCs that are noted before others have their turn."""


class PollSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often is looked. Times in seconds."""

    fast: float = 15.0
    """Between two looks at a BMC with news."""
    slow: float = 900.0
    """Between two looks at one that is quiet, or tells us by itself."""
    per_second: float = 50.0
    """Looks at all BMCs together; where they are too many for that, looks are further apart."""
    at_once: int = 256
    """Looks under way."""
    yields: float = 2.0
    """A look that takes longer lets another begin: the slow and the dead hold up nobody."""
    look: float = 60.0
    """For one look, all in all."""
    silent_after: int = 3
    """Looks in vain, or answered badly, one after the other, after which that is said of a BMC."""
    others: float = 30.0
    """Until it is asked again whether a BMC that is another process's has become ours: at our start none is."""


class Poller:
    """Decides when ``looker`` looks at which BMC, of those whose nodes are ``mine``; each when its ``turn`` has
    come, where there are others who wait."""

    def __init__(
        self,
        looker: Looker,
        sink: EventSink,
        *,
        mine: Callable[[str], bool] = lambda _: True,
        turn: Callable[[float], Awaitable[None]] | None = None,
        settings: PollSettings | None = None,
    ) -> None:
        self.settings = settings or PollSettings()
        self.looks = 0
        """That have ended."""
        self._looker = looker
        self._bmcs = looker.bmcs
        self._listener = looker.listener
        self._sink = sink
        self._mine = mine
        self._turn = turn
        self._watched: dict[str, Watched] = {}
        self._due: list[tuple[float, str]] = []
        chosen = self.settings
        self._places = Pace(at_once=chosen.at_once, patience=chosen.yields)
        self._wake = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._looking: dict[str, asyncio.Task[None]] = {}
        """By root: the look that is under way."""
        self._task: asyncio.Task[None] | None = None
        self._next_start = 0.0

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run(), name="poller")

    async def stop(self) -> None:
        """Break off."""
        await all_cancelled([*self._under_way, *([self._task] if self._task else [])])
        await self._listener.stop()

    async def know(self, sites: Mapping[str, Site]) -> None:
        """These are the BMCs that there are, by root."""
        for root in [root for root in self._watched if root not in sites]:
            beside(self._under_way, self._leave(self._watched.pop(root).site, self._looking.get(root)))
        new = [root for root in sites if root not in self._watched]
        now, spread = time.monotonic(), min(self.settings.slow, len(new) / self.settings.per_second)
        for root, site in sites.items():
            known = self._watched.get(root)
            if known is not None:
                known.site = site
        for number, root in enumerate(new, 1):
            self._watched[root] = Watched(sites[root], self.settings.fast * 4)
            heapq.heappush(self._due, (now + spread * random.random(), root))
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
        self._wake.set()

    # when

    async def _run(self) -> None:
        while True:
            wait = self._due[0][0] - time.monotonic() if self._due else None
            if wait is None or wait > 0:
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                continue
            _, root = heapq.heappop(self._due)
            watched = self._watched.get(root)
            if watched is None:
                continue
            if not self._mine(watched.site.nodes[0][1]):
                self._again(watched, self.settings.others)
            elif (silence := self._bmcs.silence(watched.site.address)) and self._bmcs.clock() < silence.until:
                self._missed(watched, plain(silence.why, 200) or "it does not answer", silent=True)
            else:
                await self._pace()
                place = await self._places.place()
                if self._watched.get(root) is not watched:  # it has gone meanwhile
                    place.leaves()
                    continue
                self._looking[root] = task = beside(self._under_way, self._take_turn(watched, place))
                task.add_done_callback(partial(self._looked, root))

    async def _leave(self, site: Site, look: asyncio.Task[None] | None) -> None:
        """A look that is under way may be about to subscribe: what it makes is known when it has ended."""
        if look is not None:
            await asyncio.wait([look])
        await self._listener.leave(site)

    def _looked(self, root: str, look: asyncio.Task[None]) -> None:
        if self._looking.get(root) is look:
            del self._looking[root]

    async def _pace(self) -> None:
        now = time.monotonic()
        self._next_start = max(self._next_start + 1 / self.settings.per_second, now)
        if self._next_start > now:
            await asyncio.sleep(self._next_start - now)
        if self._turn is not None:
            await self._turn(_COST)

    async def _take_turn(self, watched: Watched, place: Place) -> None:
        address = watched.site.address
        try:
            async with asyncio.timeout(self.settings.look):
                with contained(watched.site.root):
                    seen = await self._looker.look(watched)
        except TimeoutError:
            # Each question has a time limit of its own, which is shorter: it does answer, and there is no end to it.
            why = f"a look at it took more than {self.settings.look:g} s"
            self._missed(watched, why, silent=self._bmcs.silent(address))
        except StrataError as error:
            self._missed(watched, plain(error.detail, 200), silent=self._bmcs.silent(address))
        else:
            self._bmcs.answered(address)
            self._seen(watched, seen)
        finally:
            self.looks += 1
            place.leaves()

    def _seen(self, watched: Watched, seen: Seen) -> None:
        news = seen.events
        watched.misses = watched.misses + 1 if seen.wrong else 0
        bad = self._lasting(watched, f"the BMC answers badly: {seen.wrong}") if seen.wrong else ""
        events = news + self._looker.conduct(watched.site, silent="", bad=bad)
        if events:
            self._sink(events)
        if seen.wrong:
            self._again(watched, self._patience(watched))
            return
        if self._listener.way(watched.site.root) != "poll":
            watched.interval = self.settings.slow
        else:
            factor = 0.25 if news else 1.5
            watched.interval = min(self.settings.slow, max(self.settings.fast, watched.interval * factor))
        self._again(watched, watched.interval)

    def _missed(self, watched: Watched, why: str, *, silent: bool) -> None:
        watched.misses += 1
        told = self._lasting(watched, f"cannot be looked at: {why}")
        # One that answers, and nothing that can be used, is not silent.
        events = self._looker.conduct(watched.site, silent=told if silent else "", bad=None if silent else told)
        if events:
            self._sink(events)
        self._again(watched, self._patience(watched))

    def _lasting(self, watched: Watched, trouble: str) -> str | None:
        """``trouble``, if it was so for some looks; None: it may be so for a moment only, and is not told."""
        return trouble if watched.misses >= self.settings.silent_after else None

    def _patience(self, watched: Watched) -> float:
        """Seconds until the next look at one that is not well."""
        return min(self.settings.slow, self.settings.fast * float(1 << min(watched.misses, 10)))

    def _again(self, watched: Watched, after: float) -> None:
        due = time.monotonic() + after * random.uniform(0.8, 1.2)
        heapq.heappush(self._due, (due, watched.site.root))
        self._wake.set()
