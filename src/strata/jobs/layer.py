"""Opens the job layer on a fleet."""

from __future__ import annotations

from strata.fleet.fleet import Fleet
from strata.jobs.accounts import LocalAccounts
from strata.jobs.settings import JobSettings


async def open_jobs(fleet: Fleet) -> None:
    """Know which accounts jobs run as. What runs them is opened by its rooms."""
    settings = fleet.section(JobSettings)
    fleet.put(LocalAccounts(settings.accounts, settings.first_uid))
