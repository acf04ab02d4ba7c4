"""A whole controller over simulated hardware: what controllers tell becomes alerts, and facts at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.hardware.alerts.service import AlertService
from strata.virtual.fleet.names import simulated_nodes
from support.told_power import told_power

COUNT = 8


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):  # the engine by itself looks every 45 s: what it knows sooner, it was told
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_what_controllers_tell_becomes_alerts_and_a_change_of_power_a_fact_at_once(tmp_path: Path) -> None:
    names = [node.name for node in simulated_nodes(COUNT)]
    async with told_power(tmp_path, COUNT, believed=False) as (server, fleet, hub, driver):
        alerts = AlertService(fleet, hub)

        def power(name: str) -> str:
            column = fleet.controller.engine.table.columns["power"]
            return column.words[column.fact[fleet.registry.find(name)]]

        await until(lambda: hub.poller is not None and hub.poller.looks >= COUNT and power(names[1]) == "off")
        server.bmc(names[0]).log("critical", "DIMM3 has failed", "OEM.1.0.MemoryFailure")
        await until(lambda: hub.alerts.alerts)
        page = await alerts.alerts(LOCAL_ADMIN, all_=False, limit=10, after="")
        assert [(item.node, item.severity, item.message) for item in page.items] == [
            (names[0], "critical", "DIMM3 has failed")
        ]
        await driver._bmcs.open(server.url(names[1])).set_power("on")  # by somebody else, as far as the engine knows
        await until(lambda: power(names[1]) == "on")
