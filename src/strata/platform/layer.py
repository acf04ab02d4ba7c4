"""Opens the platform layer on a fleet: for now, what stands in for a workload manager."""

from __future__ import annotations

import logging

from strata.fleet.fleet import Fleet
from strata.platform.no_workload import NoWorkload

log = logging.getLogger(__name__)


async def open_platform(fleet: Fleet) -> None:
    """Answer for the workload manager, unless the simulator or the site's own driver does."""
    if fleet.driver(NoWorkload.name) is not None:
        return
    nobody = NoWorkload(expected=True)
    fleet.drive(nobody)

    async def begin() -> None:
        if fleet.driver(NoWorkload.name) is nobody:
            hint = "declare a driver 'workload' in a model; or serve provisioning power, where jobs are not looked at"
            log.warning("no workload manager is known: no node is switched off, as a job may run", extra={"hint": hint})

    fleet.begin(begin)
