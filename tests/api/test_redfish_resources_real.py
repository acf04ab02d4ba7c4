"""What the resources need of the real service: names and places of the whole fleet, and the newest audit records."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_service import real_service

from strata.core.errors import Denied, NotFound
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.nodes.records import NodeSpec

pytestmark = pytest.mark.slow


async def test_names_and_places_are_in_order_and_only_those_that_the_caller_may_see(tmp_path: Path) -> None:
    async with real_service(tmp_path) as real:
        service, login = real.service, Principal(name="l", role="viewer", scope=("login",))
        await service.create_nodes(
            LOCAL_ADMIN, [NodeSpec(name="a2", location="x1000c0s10b0n0"), NodeSpec(name="a1", location="x2")]
        )
        assert list(await service.node_names(LOCAL_ADMIN, "*")) == ["a1", "a2", *real.nodes]
        slots = await service.locations(LOCAL_ADMIN, "*", "slot")
        assert list(slots) == [*(f"x1000c0s{n}" for n in range(5)), "x1000c0s10"]
        assert list(await service.locations(LOCAL_ADMIN, "location:x1000c0", "cabinet")) == ["x1000"]
        (own,) = await service.node_names(login, "*")
        assert list(await service.locations(login, "*", "slot")) == ["x1000c0s0"]
        assert list(await service.node_names(login, "location:x1000")) == [own]
        with pytest.raises(NotFound):
            await service.node_names(LOCAL_ADMIN, "@nothing")


async def test_the_newest_audit_records_come_first_and_not_to_callers_with_a_scope(tmp_path: Path) -> None:
    async with real_service(tmp_path) as real:
        newest = await real.service.audit_latest(LOCAL_ADMIN, 3)
        assert len(newest) == 3
        assert newest[0].seq == newest[1].seq + 1 == newest[2].seq + 2
        with pytest.raises(Denied):
            await real.service.audit_latest(Principal(name="l", role="operator", scope=("login",)), 3)
