"""The solid-state drives of CAPMC's nodes, from the inventory, many at a time."""

from __future__ import annotations

from collections.abc import Sequence

from strata.control.machine import InventoryFacade
from strata.control.machine_views.inventory import ComponentQuery, ComponentView
from strata.control.principal import Principal
from strata.core.nodeset import fold
from strata.power.capmc.machine import Drive

_PAGE = 10_000


async def drives_of(inventory: InventoryFacade, who: Principal, names: Sequence[str]) -> dict[str, list[Drive]]:
    """By name of node; those that are not known to have any are left out."""
    found: dict[str, list[Drive]] = {}
    after, select = "", fold(names)
    while select:
        page = await inventory.components(who, ComponentQuery(select=select, kind="drive", limit=_PAGE, after=after))
        for part in page.items:
            if _is_solid(part):
                found.setdefault(part.node, []).append(_drive(part))
        after = page.next
        if not after:
            break
    return found


def _is_solid(part: ComponentView) -> bool:
    return part.facts.get("type") == "SSD" or str(part.facts.get("protocol", "")).startswith("NVMe")


def _drive(part: ComponentView) -> Drive:
    size, left = (_number(part.facts.get(name)) for name in ("capacity_bytes", "life_left"))
    return Drive(
        model=part.model,
        serial=part.serial,
        vendor=part.vendor,
        part=part.part,
        firmware=part.firmware,
        size=None if size is None else int(size),
        life_left=left,
    )


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
