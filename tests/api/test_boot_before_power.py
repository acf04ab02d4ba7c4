"""With the layers as the daemon makes them: what nodes' controllers are told before the nodes get their power."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest
from provisioned import seen, switch_on
from real_service import RealService, real_service

from strata.core.driver import Batch
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.hardware.bmc.protocol import Boot
from strata.provisioning.agents.driver import NodeDriver
from strata.provisioning.boot.service import BootService
from support.boot_site import fetch

pytestmark = [pytest.mark.server, pytest.mark.slow]


async def test_each_boots_by_the_method_of_its_profile_and_who_only_wants_power_by_none(tmp_path: Path) -> None:
    async with real_service(tmp_path) as real:
        async with real.client() as client:
            for name, method in {"net": "http", "sealed": "media"}.items():
                assert (await client.put(f"/v1/boot/profiles/{name}", json={"method": method})).is_success
        registry = real.service.registry
        known = [node for node in registry.nodes if node is not None]
        compute = [node.name for node in known if node.role == "compute"][:3]
        names = [*compute, next(node.name for node in known if node.role == "login")]
        nodes = np.array([registry.index_of(name) for name in names])
        await real.service.hold(LOCAL_ADMIN, ",".join(names), "they shall stay as they are")
        for node, profile in ((nodes[1:2], "net"), (nodes[2:3], "sealed")):
            await real.service.edits.set_desires(node, {"minos": profile}, (), "test")
        await real.service.settled(await real.store.revision())
        await _off(real, names, nodes)

        driver, bmcs = real.of(NodeDriver), [registry.node(name).bmc for name in names]
        await driver.about_to_get_power(Batch(names=names, uids=registry.uids[nodes], bmcs=bmcs))
        told = [await driver._questions.open(bmc).boot() for bmc in bmcs]
        assert [one.target for one in told] == ["pxe", "http", "none", "none"]
        assert told[0] == Boot(target="pxe", uefi=told[0].uefi), "for once"
        assert [driver._questions.by_itself(name) for name in names] == [True, False, False, True]


async def _off(real: RealService, names: list[str], nodes: np.ndarray) -> None:
    """Until they are seen to be off, and what comes next was thought about."""
    controller = real.service.controller
    simulated = np.array([real.bmcs.nodes.names.index(name) for name in names])
    real.bmcs.nodes.put(simulated, now=time.monotonic(), power="off")
    controller.look_soon(names)
    async with asyncio.timeout(60):
        while any("power-on" not in controller.engine.way(int(node)) for node in nodes):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_who_has_the_address_of_a_node_that_is_off_gets_nothing_until_the_node_itself_is_on(
    tmp_path: Path,
) -> None:
    async with real_service(tmp_path) as real:
        name = real.nodes[0]
        node = real.service.registry.node(name)
        await seen(real, name, "off")
        port, path = real.of(BootService).server.port, f"/boot/fragment/{name}/1"
        assert (await fetch(port, path, node.interfaces[0].address))[0] == 403
        async with real.client() as client, asyncio.timeout(60):
            while f"boot-data-refused/{name}" not in (await client.get("/v1/alerts")).text:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await switch_on(real, name)
        assert (await fetch(port, path, node.interfaces[0].address))[0] == 200
