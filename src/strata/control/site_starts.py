"""Whether nodes may be switched on: as far as the site's limit leaves power for them, and as fast as the policy says.

Decided where the machine's power is kept; other controllers ask there (``power_requests``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence

import numpy as np

from strata.control.power_inrush import Inrushes
from strata.control.power_policies import PolicyBook
from strata.control.power_requests import PowerRequests, Verdict, Verdicts
from strata.control.site_keeper import SiteKeeper
from strata.control.site_limits import SiteLimits
from strata.core.driver import Batch
from strata.power.columns import Uids, placed
from strata.power.governor import Governor
from strata.power.units import show_watts

NOT_YET = "it is not known yet what the machine may draw: ask again soon"


class SiteStarts:
    """One for a process."""

    def __init__(
        self,
        keeper: SiteKeeper,
        limits: SiteLimits,
        policies: PolicyBook,
        inrushes: Inrushes,
        requests: PowerRequests,
    ) -> None:
        self._keeper = keeper
        self._limits = limits
        self._policies = policies
        self._inrushes = inrushes
        self._requests = requests
        self._turn = asyncio.Lock()
        self._heir: Governor | None = None

    async def permits(self, batch: Batch, other: str) -> Sequence[str]:
        """For each node empty, or why not. ``other`` names who is asked, where that is another controller."""
        if not self._limits.there:
            return [""] * len(batch)
        verdicts = await (self._decide(batch.uids) if self._keeper.leads else self._requests.ask(batch.uids))
        record = self._policies.enabled
        words = {
            Verdict.GRANTED: "",
            Verdict.NO_POWER: f"the site's limit of {show_watts(self._limits.site)} leaves no power for it now",
            Verdict.PACED: f"the power policy {record.name if record else ''} lets no more nodes start at once behind "
            "its cabinet or power strip",
            Verdict.NO_ANSWER: f"the controller that keeps the machine's power{other} did not answer",
            Verdict.NOT_YET: NOT_YET,
        }
        told = [words[Verdict(one)] for one in verdicts.tolist()]
        short = np.flatnonzero(verdicts == Verdict.NO_POWER)
        for place, why in zip(short.tolist(), self._why_not(batch.uids[short]), strict=False):
            told[place] = why
        return told

    def _why_not(self, uids: Uids) -> Iterator[str]:
        """With figures, where they are known: here, if the machine's power is kept here."""
        governor = self._keeper.governor
        rows, there = placed(self._keeper.uids, uids)
        needs = governor.needs(rows) if governor is not None and there.all() else None
        if needs is None:
            return
        limit, ramp = f"limit of {show_watts(self._limits.site)}", f"ramp of {show_watts(needs.ramp)} a minute"
        free = f", and {show_watts(max(0.0, needs.free))} is free"
        for as_is, least in zip(needs.as_is.tolist(), needs.least.tolist(), strict=True):
            hopeless = least > min(needs.free, needs.ramp)
            needed = least if hopeless else as_is
            by_limit = needed > needs.free or math.isinf(needs.ramp)
            yield (
                f"the site's {limit if by_limit else ramp} leaves no power for it now: "
                f"{'with its lowest cap ' if hopeless else ''}it needs {show_watts(needed)} to start"
                f"{free if by_limit else ''}"
                f"{'; it is capped lower first' if not hopeless and as_is > min(needs.free, needs.ramp) else ''}"
            )

    async def answer(self) -> None:
        """Tell other controllers what they have asked."""
        await self._requests.answer(self._decide)

    async def _decide(self, uids: Uids) -> Verdicts:
        """Which may be switched on. Those that are not capped have their power: they count as if they always were."""
        async with self._turn:
            governor, found = self._keeper.governor, np.full(len(uids), Verdict.NOT_YET, np.int8)
            if governor is None or not governor.knows:
                return found
            if self._heir is not governor:
                # What a predecessor let start may not be seen yet.
                self._inrushes.begin(self._keeper.uids[governor.booting()])
                self._heir = governor
            part = governor.policy.inrush
            allowed = np.flatnonzero(np.ones(len(uids)) if part is None else self._inrushes.allowed(part, uids))
            rows, there = placed(self._keeper.uids, uids[allowed])
            power = np.ones(len(allowed), np.bool_)
            power[there] = await governor.power_on(rows[there])
            found[:] = Verdict.PACED
            found[allowed] = np.where(power, Verdict.GRANTED, Verdict.NO_POWER)
            self._inrushes.begin(uids[allowed[power]])
            return found
