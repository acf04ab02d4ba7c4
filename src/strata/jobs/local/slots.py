"""What this machine gives to jobs, and what is free of it. Pure."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable

import msgspec

from strata.jobs.settings import JobSettings
from strata.schedulers.jobs import Resources


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """Which cores and accelerators a task has, by number."""

    cores: tuple[int, ...] = ()
    accelerators: tuple[int, ...] = ()


class Slots(msgspec.Struct, kw_only=True):
    """Cores, MiB of memory, accelerators by number."""

    cores: int
    memory: int
    accelerators: tuple[int, ...] = ()
    numbers: tuple[int, ...] | None = None
    """Of the cores. None: from 0 on."""

    def __post_init__(self) -> None:
        if self.numbers is None:
            self.numbers = tuple(range(self.cores))

    @classmethod
    def of(cls, settings: JobSettings) -> Slots:
        """As the settings say, or as the machine is."""
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
        return cls(
            cores=settings.cores or len(os.sched_getaffinity(0)),
            memory=settings.memory or there * 9 // 10,
            accelerators=tuple(range(settings.accelerators)),
        )

    def lack(self, wanted: Resources) -> str:
        """Of what there is too little for this; empty: it fits."""
        accelerators = wanted.accelerators.count if wanted.accelerators else 0
        for word, needed, there in (
            ("cores", wanted.tasks * wanted.cores, self.cores),
            ("MiB of memory", wanted.memory or 0, self.memory),
            ("accelerators", accelerators, len(self.accelerators)),
        ):
            if needed > there:
                return f"{needed} {word} of {there}"
        return ""

    def take(self, wanted: Resources, before: Given | None = None) -> Given:
        """Take it; which cores and accelerators those are. ``before``: what a task has already that began when
        somebody else kept count."""
        cores, cards = wanted.tasks * wanted.cores, wanted.accelerators.count if wanted.accelerators else 0
        free = self.numbers or ()
        chosen = before or Given(cores=free[:cores], accelerators=self.accelerators[:cards])
        self.numbers = tuple(one for one in free if one not in chosen.cores)
        self.accelerators = tuple(one for one in self.accelerators if one not in chosen.accelerators)
        self.cores -= cores
        self.memory -= wanted.memory or 0
        return chosen

    def give(self, wanted: Resources, given: Given) -> None:
        """Give it back."""
        self.cores += wanted.tasks * wanted.cores
        self.memory += wanted.memory or 0
        self.numbers = tuple(sorted((*(self.numbers or ()), *given.cores)))
        self.accelerators = tuple(sorted((*self.accelerators, *given.accelerators)))


def beginnings(
    free: Slots, now: float, running: Iterable[tuple[float | None, Resources]], waiting: Iterable[Resources]
) -> list[float]:
    """When each of those that wait begins at the latest, in their order. ``running``: until when it may run (None:
    nobody knows), and what it has. Those behind one that waits for something without a limit are left out."""
    at, cores, memory, cards = now, free.cores, free.memory, len(free.accelerators)
    ends = [(end, number, has) for number, (end, has) in enumerate(running) if end is not None]
    heapq.heapify(ends)
    found: list[float] = []
    for number, wanted in enumerate(waiting):
        need = (
            wanted.tasks * wanted.cores,
            wanted.memory or 0,
            wanted.accelerators.count if wanted.accelerators else 0,
        )
        while ends and (need[0] > cores or need[1] > memory or need[2] > cards):
            end, _, has = heapq.heappop(ends)
            at = max(at, end)
            cores, memory = cores + has.tasks * has.cores, memory + (has.memory or 0)
            cards += has.accelerators.count if has.accelerators else 0
        if need[0] > cores or need[1] > memory or need[2] > cards:
            break
        found.append(at)
        cores, memory, cards = cores - need[0], memory - need[1], cards - need[2]
        if wanted.time is not None:
            heapq.heappush(ends, (at + wanted.time, -1 - number, wanted))
    return found
