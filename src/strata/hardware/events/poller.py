"""Looks at every controller now and then: its log, its sensors, and whether it still tells us by itself what happens.

One with news is looked at more often, a quiet one less and less, one that pushes rarely. Looks are spread out, bounded
in number per second and at a time; a controller that is known to be silent takes no part of either.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from strata.core.contain import contained
from strata.core.errors import StrataError
from strata.hardware.controllers import Silence
from strata.hardware.events.event import EventSink
from strata.hardware.events.poller_look import Looker, Seen, Watched
from strata.hardware.events.site import Site
from strata.hardware.events.words import plain

_AT_ONCE = 2000
"""New controllers that are noted before others have their turn."""


class PollSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often is looked. Times in seconds."""

    fast: float = 15.0
    """Between two looks at a controller with news."""
    slow: float = 900.0
    """Between two looks at one that is quiet, or tells us by itself."""
    per_second: float = 50.0
    """Looks at all controllers together; where they are too many for that, looks are further apart."""
    at_once: int = 256
    """Looks under way."""
    yields: float = 2.0
    """A look that takes longer lets another begin: the slow and the dead hold up nobody."""
    look: float = 60.0
    """For one look, all in all."""
    silent_after: int = 3
    """Looks in vain, or answered badly, one after the other, after which that is said of a controller."""
    others: float = 30.0
    """Until it is asked again whether a controller that is another process's has become ours: at our start none is."""


class _Slot:
    """A place among the looks under way, given back after a while whether or not the look has ended."""

    def __init__(self, slots: asyncio.Semaphore, most: float) -> None:
        self._slots = slots
        self._most = most
        self._timer: asyncio.TimerHandle | None = None

    async def take(self) -> None:
        await self._slots.acquire()
        self._timer = asyncio.get_running_loop().call_later(self._most, self.give_back)

    def give_back(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._slots.release()


class Poller:
    """Decides when ``looker`` looks at which controller, of those whose nodes are ``mine``."""

    def __init__(
        self,
        looker: Looker,
        sink: EventSink,
        *,
        mine: Callable[[str], bool] = lambda _: True,
        settings: PollSettings | None = None,
    ) -> None:
        self.settings = settings or PollSettings()
        self.looks = 0
        """That have ended."""
        self._looker = looker
        self._controllers = looker.controllers
        self._listener = looker.listener
        self._sink = sink
        self._mine = mine
        self._watched: dict[str, Watched] = {}
        self._due: list[tuple[float, str]] = []
        self._slots = asyncio.Semaphore(self.settings.at_once)
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
        tasks = [*self._under_way, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._listener.stop()

    async def know(self, sites: Mapping[str, Site]) -> None:
        """These are the controllers that there are, by root."""
        for root in [root for root in self._watched if root not in sites]:
            self._spawn(self._leave(self._watched.pop(root).site, self._looking.get(root)))
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
            elif (silence := self._left_alone(watched.site.address)) is not None:
                self._missed(watched, plain(silence.why, 200) or "it does not answer", silent=True)
            else:
                await self._pace()
                slot = _Slot(self._slots, self.settings.yields)
                await slot.take()
                if self._watched.get(root) is not watched:  # it has gone meanwhile
                    slot.give_back()
                    continue
                self._looking[root] = task = self._spawn(self._take_turn(watched, slot))
                task.add_done_callback(partial(self._looked, root))

    async def _leave(self, site: Site, look: asyncio.Task[None] | None) -> None:
        """A look that is under way may be about to subscribe: what it makes is known when it has ended."""
        if look is not None:
            await asyncio.wait([look])
        await self._listener.leave(site)

    def _looked(self, root: str, look: asyncio.Task[None]) -> None:
        if self._looking.get(root) is look:
            del self._looking[root]

    def _left_alone(self, address: str) -> Silence | None:
        try:
            silence = self._controllers.silence(address)
        except StrataError:
            return None  # what is written there is no address: the look says so
        return silence if silence is not None and self._controllers.clock() < silence.until else None

    async def _pace(self) -> None:
        now = time.monotonic()
        self._next_start = max(self._next_start + 1 / self.settings.per_second, now)
        if self._next_start > now:
            await asyncio.sleep(self._next_start - now)

    async def _take_turn(self, watched: Watched, slot: _Slot) -> None:
        address = watched.site.address
        try:
            async with asyncio.timeout(self.settings.look):
                with contained(watched.site.root):
                    seen = await self._looker.look(watched)
        except TimeoutError:
            # Each question has a time limit of its own, which is shorter: it does answer, and there is no end to it.
            why = f"a look at it took more than {self.settings.look:g} s"
            self._missed(watched, why, silent=self._is_silent(address))
        except StrataError as error:
            self._missed(watched, plain(error.detail, 200), silent=self._is_silent(address))
        else:
            self._controllers.answered(address)
            self._seen(watched, seen)
        finally:
            self.looks += 1
            slot.give_back()

    def _is_silent(self, address: str) -> bool:
        try:
            return self._controllers.silent(address)
        except StrataError:
            return False

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

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task
