"""The one node of a site with agents: what it runs, what it shall do, and how it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.provisioning.personalities.records import Member, PersonalitySpec
from strata.provisioning.personalities.service import PersonalityService
from support.agent_site import AgentSite

NAME = "n00001"


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not check():  # noqa: ASYNC110 (what the engine believes has no event)
            await asyncio.sleep(0.02)


async def put_set(site: AgentSite, name: str, serial: int) -> None:
    site.releases.move(f"{name}:12", serial)
    spec = PersonalitySpec(members=(Member(name="system", release=f"{name}:12"),))
    await site.services.get(PersonalityService).put(LOCAL_ADMIN, name, spec, None)


async def want(site: AgentSite, **wanted: str) -> None:
    node = site.service.registry.select(NAME)
    await site.service.edits.set_desires(node, wanted, (), "test")


def state(site: AgentSite) -> str:
    return site.service.view.state(site.service.registry.index_of(NAME))
