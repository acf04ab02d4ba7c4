"""What the engine acts through: the drivers of one controller, and what the site itself declares."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from pathlib import Path

from strata.control.exec_driver import ExecDriver
from strata.control.no_workload import NoWorkload
from strata.control.settings import Settings
from strata.control.told_driver import ToldDriver
from strata.core.driver import Driver
from strata.core.model import Layer
from strata.core.modelfile import ExecSpec, parse
from strata.daemon.ground import Ground
from strata.daemon.hardware import Reach
from strata.hardware.bmc_driver import BmcDriver
from strata.virtual.agent_driver import AgentDriver
from strata.virtual.bmc_server import SIMULATED_ACCOUNT

log = logging.getLogger(__name__)


def site_models(paths: tuple[Path, ...], built_in: tuple[Layer, ...]) -> tuple[list[Layer], list[ExecSpec]]:
    """The site's own declarations and drivers."""
    layers: list[Layer] = []
    specs: list[ExecSpec] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        found = parse(text, source=str(path), layers=(*built_in, *layers), always_extends=True)
        layers.append(found.layer)
        specs += found.drivers
    return layers, specs


async def open_drivers(
    settings: Settings, specs: list[ExecSpec], reach: Reach, ground: Ground | None, parts: AsyncExitStack
) -> dict[str, Driver]:
    """Nodes' controllers and agents (the simulated fleet's where there is one), and the site's own drivers."""
    bmc = BmcDriver(reach.controllers)
    parts.push_async_callback(bmc.close)
    drivers: dict[str, Driver] = {"bmc": bmc}
    if ground is not None:
        node = ground.agents.driver
        drivers["bmc"] = ToldDriver(bmc, dark=node.lost_power, lit=node.got_power, before=node.about_to_get_power)
        drivers["node"] = node
    drivers[NoWorkload.name] = NoWorkload(expected="platform" in settings.layers)
    if settings.simulated.address:
        for name in ("node", "workload"):
            agent = AgentDriver(name, settings.simulated.address, SIMULATED_ACCOUNT)
            parts.push_async_callback(agent.close)
            drivers[name] = agent
    drivers |= {spec.name: ExecDriver(spec.name, spec.command, spec.timeout, spec.env) for spec in specs}
    if "platform" in settings.layers and isinstance(drivers[NoWorkload.name], NoWorkload):
        hint = "declare a driver 'workload' in a --model; or serve hardware provisioning, where jobs are not looked at"
        log.warning("no workload manager is known: no node is switched off, for a job may run", extra={"hint": hint})
    return drivers
