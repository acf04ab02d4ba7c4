"""What IPMI tells of a machine and its parts: FRU data, as far as it goes."""

from __future__ import annotations

import time
from collections.abc import Mapping

from strata.core.errors import DeviceError
from strata.hardware.bmc.ipmi.bmc import IpmiBmc
from strata.hardware.bmc.ipmi.records import FruLocator
from strata.hardware.bmc.ipmi.store import IpmiStore
from strata.hardware.inventory.records import Component, ComponentKind, Found, Machine

_ENTITIES: Mapping[int, ComponentKind] = {
    3: "processor", 4: "drive", 6: "manager", 10: "power-supply", 11: "pcie-device", 23: "chassis", 29: "fan",
    30: "fan", 32: "memory", 40: "battery", 44: "nic",
}  # fmt: skip
"""Entity ids of IPMI (table 43-13) that are parts one can swap."""


async def inventory(bmc: IpmiBmc, store: IpmiStore) -> Found:
    """Everything that one BMC tells. Raises only if not even its identity can be had."""
    identity = await bmc.identity()
    trouble: list[str] = []
    power, parts = "", list[Component]()
    try:
        power = await bmc.power() or ""
    except DeviceError as wrong:
        trouble.append(str(wrong))
    try:
        locators = [found for found in await store.sensors(bmc.address) if isinstance(found, FruLocator)]
    except DeviceError as wrong:
        trouble.append(str(wrong))
        locators = []
    for locator in locators:
        if locator.number == 0:
            continue
        try:
            parts.append(_component(locator, await store.fru(bmc.address, locator.number)))
        except DeviceError as wrong:
            trouble.append(f"FRU {locator.number}: {wrong}")
    main = await store.fru(bmc.address, 0)
    system = Component(
        id="fru/0",
        kind="system",
        name=identity.model,
        vendor=identity.vendor,
        model=identity.model,
        part=main.get("Model") or main.get("Board model") or "",
        serial=identity.serial,
    )
    manager = Component(id="bmc", kind="manager", name="BMC", firmware=identity.firmware)
    machine = Machine(id=system.id, address=bmc.address, serial=identity.serial, uuid=identity.uuid, power=power)
    return Found(
        address=bmc.address,
        identity=identity,
        time=time.time(),
        machines=(machine,),
        components=(manager, system, *parts),
        trouble=tuple(trouble),
    )


def _component(locator: FruLocator, fields: Mapping[str, str]) -> Component:
    kind = _ENTITIES.get(locator.entity, "other")
    return Component(
        id=f"fru/{locator.number}",
        kind=kind,
        name=locator.name,
        parent="fru/0",
        vendor=fields.get("Manufacturer") or fields.get("Board manufacturer") or "",
        model=fields.get("Product name") or fields.get("Board product name") or "",
        part=fields.get("Model") or fields.get("Board model") or "",
        serial=fields.get("Serial Number") or fields.get("Board serial number") or "",
        shape=f"entity {locator.entity}" if kind == "other" else "",
    )
