"""Power bias: how much of a cap each node gets, so that nodes that need more for the same work are not slower."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.power.capmc.reply import EINVAL, SUCCESS, Refusal, Reply, columns, objects, of_nids, reply, said
from strata.power.capmc.request import Ask, chosen, integer, nids_of, objects_of, shown, word
from strata.power.capmc.service import CapmcMachine

KIND = "bias"
"""Records: the factor of each node that has one."""
APPLIED = "bias-applied"
"""Records: the cap that was asked for and the factor, of each node whose cap a bias changed."""
DEFAULT = 1.0
_LOW, _HIGH = 0.1, 10.0
_KEY = "power-bias"


async def get_power_bias(machine: CapmcMachine, ask: Ask) -> Reply:
    """The factor of each node."""
    table = machine.nodes()
    at = chosen(table, nids_of(ask.body), compute=True)
    known = await machine.records(KIND)
    pairs = zip(table.nids[at].tolist(), table.uids[at].tolist(), strict=True)
    texts = (f'{{"nid":{nid},"power-bias":{float(known.get(uid, DEFAULT))!r}}}' for nid, uid in pairs)
    return columns({"nids": objects(texts)}, err_msg=SUCCESS)


async def set_power_bias(machine: CapmcMachine, ask: Ask) -> Reply:
    """Give nodes a factor; it counts from the next time that their cap is set."""
    wanted = objects_of(ask.body)
    values: list[float] = []
    for one in wanted:
        value = one.get(_KEY)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _LOW <= value <= _HIGH:
            raise Refusal(400, f"Bad Request: invalid {_KEY}: {shown(value)}")
        values.append(float(value))
    await machine.keep(KIND, dict(zip(_uids(machine, wanted), values, strict=True)))
    return reply(err_msg=SUCCESS)


async def clr_power_bias(machine: CapmcMachine, ask: Ask) -> Reply:
    """Forget the factors."""
    table = machine.nodes()
    at = chosen(table, nids_of(ask.body))
    known = await machine.records(KIND)
    await machine.keep(KIND, {uid: None for uid in table.uids[at].tolist() if uid in known})
    return reply(err_msg=SUCCESS)


async def set_power_bias_data(machine: CapmcMachine, ask: Ask) -> Reply:
    """Keep what each node drew on average under an application."""
    wanted = objects_of(ask.body)
    values = [integer(one.get("avgpwr"), "avgpwr", low=1, high=1_000_000) for one in wanted]
    await machine.keep(_data(ask.body.get("app")), dict(zip(_uids(machine, wanted), values, strict=True)))
    return reply(err_msg=SUCCESS)


async def compute_power_bias(machine: CapmcMachine, ask: Ask) -> Reply:
    """The factors that would even out what the nodes drew under an application. Keeps nothing."""
    table = machine.nodes()
    nids = nids_of(ask.body)
    known = await machine.records(_data(ask.body.get("app")))
    at = chosen(table, nids)
    at = np.array([place for place in at.tolist() if int(table.uids[place]) in known], dtype=np.int64)
    if not len(at):
        raise Refusal(400, "NO_DATA")
    drawn = np.array([known[uid] for uid in table.uids[at].tolist()], dtype=np.float64)
    factors = np.round(drawn / drawn.mean(), 6)
    pairs = zip(table.nids[at].tolist(), factors.tolist(), strict=True)
    return columns({"nids": objects(f'{{"nid":{nid},"power-bias":{bias!r}}}' for nid, bias in pairs)}, err_msg=SUCCESS)


def _uids(machine: CapmcMachine, wanted: list[Any]) -> list[int]:
    table = machine.nodes()
    nids = np.array([one["nid"] for one in wanted], dtype=np.int64)
    chosen(table, nids)
    at = table.find(nids)
    _, first = np.unique(nids, return_index=True)
    twice = np.delete(nids, first)
    errors = dict.fromkeys(nids[~table.compute[at]].tolist(), "Invalid type, not a compute node")
    errors |= dict.fromkeys(twice.tolist(), "Duplicate NID")
    if errors:
        raise Refusal(200, said(EINVAL), e=EINVAL, more={"nids": of_nids(errors, EINVAL)})
    return table.uids[at].tolist()  # type: ignore[no-any-return]


def _data(app: Any) -> str:
    name = word(app, "app", 100)
    if not name:
        raise Refusal(400, "Bad Request: invalid app")
    return f"bias-data/{name.encode().hex()}"
