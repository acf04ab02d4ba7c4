"""Opens the platform layer on a fleet: the workload managers."""

from __future__ import annotations

import logging

from strata.fleet.fleet import Fleet
from strata.platform.no_workload import NOBODY_KNOWS, NoWorkload
from strata.platform.settings import PlatformSettings
from strata.platform.workload.service import WorkloadService

log = logging.getLogger(__name__)


async def open_platform(fleet: Fleet) -> None:
    """Answer for the workload managers, unless the simulator or the site's own driver does."""
    service = fleet.put(await fleet.keep(WorkloadService(fleet)))
    if fleet.driver(NoWorkload.name) is not None:
        return
    fleet.drive(service.driver)
    fleet.reasons.append(service.reasons)

    async def begin() -> None:
        if fleet.driver(NoWorkload.name) is not service.driver:
            return
        fleet.silences.elsewhere.add(service.driver.name)
        if not service.connected and fleet.section(PlatformSettings).workload == "required":
            hint = "strata workload connect slurm; or platform.workload: none, where nobody runs jobs"
            log.warning("%s: none is switched off or changed", NOBODY_KNOWS, extra={"hint": hint})
        await service.poll()

    fleet.begin(begin)
