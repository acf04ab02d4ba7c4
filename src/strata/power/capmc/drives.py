"""The solid-state drives of nodes, as the inventory knows them. What it does not know is left out of a reply."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.power.capmc.machine import CapmcMachine, NodeTable, Positions
from strata.power.capmc.reply import SUCCESS, Refusal, Reply, reply
from strata.power.capmc.request import Ask, chosen, nids_of, word


async def get_ssds(machine: CapmcMachine, ask: Ask) -> Reply:
    """The solid-state drives, by node."""
    table, at = _nodes(machine, ask)
    found = await machine.drives(table.uids[at])
    members: dict[str, Any] = {}
    for nid, uid, place in _rows(machine, table, at, found):
        members[place] = [
            _known(nid=nid, model_number=drive.model, serial_number=drive.serial, size=drive.size)
            for drive in found[uid]
        ]
    return reply(err_msg=SUCCESS, **members)


async def get_ssd_diags(machine: CapmcMachine, ask: Ask) -> Reply:
    """How worn the solid-state drives are."""
    table, at = _nodes(machine, ask)
    found = await machine.drives(table.uids[at])
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
        for nid, uid, place in _rows(machine, table, at, found)
        for drive in found[uid]
    ]
    return reply(err_msg=SUCCESS, ssd_diags=diags)


def _known(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in (None, "")}


def _rows(machine: CapmcMachine, table: NodeTable, at: Positions, found: Any) -> list[tuple[int, int, str]]:
    """NID, uid and place of those that have any."""
    at = at[np.isin(table.uids[at], np.fromiter(found, np.int64, len(found)))]
    uids = table.uids[at]
    return list(zip(table.nids[at].tolist(), uids.tolist(), machine.places(uids), strict=True))


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
