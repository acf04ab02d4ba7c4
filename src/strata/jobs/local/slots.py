"""What this machine gives to jobs, and what is free of it. Pure."""

from __future__ import annotations

import os

import msgspec

from strata.jobs.settings import JobSettings
from strata.schedulers.jobs import Resources


class Slots(msgspec.Struct, kw_only=True):
    """Cores, MiB of memory, accelerators by number."""

    cores: int
    memory: int
    accelerators: tuple[int, ...] = ()

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

    def take(self, wanted: Resources) -> tuple[int, ...]:
        """Take it; which accelerators those are."""
        count = wanted.accelerators.count if wanted.accelerators else 0
        chosen, self.accelerators = self.accelerators[:count], self.accelerators[count:]
        self.cores -= wanted.tasks * wanted.cores
        self.memory -= wanted.memory or 0
        return chosen

    def give(self, wanted: Resources, accelerators: tuple[int, ...]) -> None:
        """Give it back."""
        self.cores += wanted.tasks * wanted.cores
        self.memory += wanted.memory or 0
        self.accelerators = tuple(sorted((*self.accelerators, *accelerators)))
