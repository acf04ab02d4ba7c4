"""Opens the jobs layer on a fleet: its rooms' services are all of it."""

from __future__ import annotations

from strata.fleet.fleet import Fleet


async def open_jobs(fleet: Fleet) -> None:
    """Nothing beside the services that its rooms name."""
