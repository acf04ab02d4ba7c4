"""The solid-state drives of nodes, as the inventory knows them. What it does not know is left out of a reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from strata.core.nodeset import fold
from strata.fleet.access.principal import Principal
from strata.hardware.inventory.records import ComponentQuery, ComponentView
from strata.hardware.inventory.service import InventoryService
from strata.power.capmc.records import Drive, NodeTable, Positions
from strata.power.capmc.reply import SUCCESS, Refusal, Reply, reply
from strata.power.capmc.request import Ask, chosen, nids_of, word
from strata.power.capmc.service import CapmcMachine


async def get_ssds(machine: CapmcMachine, ask: Ask) -> Reply:
    """The solid-state drives, by node."""
    members: dict[str, Any] = {}
    for nid, place, drives in await _found(machine, ask):
        members[place] = [
            _known(nid=nid, model_number=drive.model, serial_number=drive.serial, size=drive.size) for drive in drives
        ]
    return reply(err_msg=SUCCESS, **members)


async def get_ssd_diags(machine: CapmcMachine, ask: Ask) -> Reply:
    """How worn the solid-state drives are."""
    diags = [
        _known(
            cname=place,
            nid=nid,
            firmware=drive.firmware,
            manu_id=drive.vendor,
            part_id=drive.part or drive.model,
            serial_num=drive.serial,
            size=None if drive.size is None else drive.size // 10**9,
            life_remaining=drive.life_left,
        )
        for nid, place, drives in await _found(machine, ask)
        for drive in drives
    ]
    return reply(err_msg=SUCCESS, ssd_diags=diags)


def _known(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in (None, "")}


async def _found(machine: CapmcMachine, ask: Ask) -> list[tuple[int, str, Sequence[Drive]]]:
    """NID, place and drives of those that have any."""
    table, at = _nodes(machine, ask)
    uids = table.uids[at]
    names = machine.names(uids)
    found = await drives_of(machine.fleet.of(InventoryService), machine.who, names)
    rows = zip(table.nids[at].tolist(), machine.places(uids), names, strict=True)
    return [(nid, place, found[name]) for nid, place, name in rows if name in found]


def _nodes(machine: CapmcMachine, ask: Ask) -> tuple[NodeTable, Positions]:
    table = machine.nodes()
    cnames = ask.body.get("cname")
    if cnames is None:
        return table, chosen(table, nids_of(ask.body))
    if not isinstance(cnames, list) or "nids" in ask.body:
        raise Refusal(400, "Bad Request: give nids or cname")
    if not cnames:
        return table, np.arange(len(table.nids))
    uids = machine.at_places([word(name, "cname", 64) for name in cnames])
    at = np.flatnonzero(np.isin(table.uids, uids))
    if len(at) < len(set(uids)):
        raise Refusal(400, "Bad Request: invalid cname")
    return table, at


_PAGE = 10_000


async def drives_of(inventory: InventoryService, who: Principal, names: Sequence[str]) -> dict[str, list[Drive]]:
    """From the inventory, many nodes at a time, by name; those that are not known to have any are left out."""
    found: dict[str, list[Drive]] = {}
    after, select = "", fold(names)
    while select:
        page = await inventory.components(who, ComponentQuery(select=select, kind="drive", limit=_PAGE, after=after))
        for part in page.items:
            if _is_solid(part):
                found.setdefault(part.node, []).append(_drive(part))
        after = page.next or ""
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
