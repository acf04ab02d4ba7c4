"""CAPMC through the front door: what a scheduler's certificate lets it see and do."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from strata.fleet.access.principal import Role
from support.capmc_site import CapmcSite, capmc_site, run_command
from support.front_door import OpenDoor, front_door

pytestmark = [pytest.mark.server, pytest.mark.slow]


class Door:
    """The site behind nginx, and whoever asks."""

    def __init__(self, site: CapmcSite, front: OpenDoor) -> None:
        self.site = site
        self._front = front

    async def ask(self, role: Role | None, *arguments: str, scope: tuple[str, ...] = (), body: str = "") -> Any:
        """Run ``capmc`` with a certificate of that role; None: with none."""
        environment = self.site.environment | self._front.capmc(role, scope)
        stdin = body.encode() if body else None
        status, out, err = await asyncio.to_thread(run_command, "capmc", arguments, environment, stdin)
        assert (status, err) == (0, "")
        return json.loads(out)


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    with tempfile.TemporaryDirectory(prefix="capmc-") as name:
        directory = Path(name)
        async with capmc_site(directory, 8) as site, front_door(site.services, directory, body=2**20) as front:
            yield Door(site, front)


async def test_a_certificate_says_which_nodes_its_owner_may_cap(door: Door) -> None:
    site = door.site
    table = site.view.nodes()
    mine, other = table.nids[table.compute][:2].tolist()
    members = site.service.registry.select(f"n{mine:05d}")
    await site.service.settled(await site.service.edits.put_group("batch", members, "test"))
    scope = ("batch",)
    assert await door.ask("workload-manager", "node_status", scope=scope) == {"e": 0, "err_msg": "", "ready": [mine]}
    done = await door.ask("workload-manager", "set_power_cap", "-n", str(mine), "-N", "300", scope=scope)
    assert done == {"e": 0, "err_msg": ""}
    refused = await door.ask("workload-manager", "set_power_cap", "-n", str(other), "-N", "300", scope=scope)
    assert refused["nids"] == [{"nid": other, "e": 22, "err_msg": "Undefined NID"}]
    assert site.machine.server.bmc(f"n{mine:05d}").cap == 300.0
    assert site.machine.server.bmc(f"n{other:05d}").cap is None
    off = await door.ask("workload-manager", "node_off", "-n", str(other), scope=scope)
    assert off["err_msg"] == f"invalid/duplicate nids: [{other}]"


async def test_who_may_only_look_changes_nothing(door: Door) -> None:
    assert len((await door.ask("viewer", "node_status"))["ready"]) == 8
    assert (await door.ask("viewer", "node_off", "-n", "1"))["e"] == 403
    assert (await door.ask("node", "node_status"))["e"] == 403
    body = json.dumps({"xnames": ["s0"], "reason": "fire"})
    assert (await door.ask("workload-manager", "json", "-r", "/capmc/emergency_power_off", body=body))["e"] == 403


async def test_without_a_certificate_nothing_is_told(door: Door) -> None:
    reply = await door.ask(None, "node_status")
    assert reply["e"] == 401
    assert set(reply) == {"e", "err_msg"}
