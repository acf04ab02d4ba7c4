"""Settings that take effect at a node's next start: memory mode, NUMA mode, and whether its solid-state drive is used.

They are kept as records, and handed to the node's firmware where it has such a setting. A node has a memory mode if its
label ``mcdram`` says how much of that memory it has (``16384MB``), and a drive to switch if it has the label ``ssd``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from strata.power.capmc.records import NodeTable, Positions
from strata.power.capmc.reply import SUCCESS, Refusal, Reply, columns, integers, objects, quoted, reply
from strata.power.capmc.request import Ask, chosen, nids_of, objects_of, shown, word
from strata.power.capmc.service import CapmcMachine
from strata.power.telemetry.columns import Uids

BOOTED = "-booted"
"""Added to a kind: what the node was last started with."""

PERCENT = {"flat": 0, "split": 25, "equal": 50, "cache": 100}
_MCDRAM = {**{name: name for name in PERCENT}, **{str(percent): name for name, percent in PERCENT.items()}}
_EXPRESSION = re.compile(r"(hbmcachepct)\.eq\.(\d{1,3})\Z|(numa_cfg)\.eq\.([a-z0-9]{1,8})\Z")
_DRAM = "96GB"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of setting."""

    kind: str
    key: str
    """In requests and replies."""
    label: str
    """Nodes with this label have it."""
    default: str
    choices: Mapping[str, str]
    """What may be asked for → what it is."""
    quotes: str = '"'
    """Around its value in a reply."""

    def written(self, value: str) -> str:
        return f"{self.quotes}{value}{self.quotes}"


MCDRAM = Setting(kind="mcdram", key="mcdram_cfg", label="mcdram", default="cache", choices=_MCDRAM)
NUMA = Setting(
    kind="numa",
    key="numa_cfg",
    label="mcdram",
    default="a2a",
    choices={name: name for name in ("a2a", "snc2", "snc4", "hemi", "quad")},
)
SSD = Setting(kind="ssd", key="ssd_enable", label="ssd", default="1", choices={"0": "0", "1": "1"}, quotes="")
SETTINGS = (MCDRAM, NUMA, SSD)


async def get_capabilities(machine: CapmcMachine, ask: Ask, *, setting: Setting) -> Reply:
    """Which modes there are: of memory with the part of it that is a cache."""
    names = [f"{name},{percent}" for name, percent in PERCENT.items()] if setting is MCDRAM else list(setting.choices)
    table, at = _eligible(machine, ask, setting)
    text = f'"{setting.key}":{quoted(",".join(names))}'
    return columns({"nids": objects(f'{{"nid":{n},"e":0,"err_msg":"",{text}}}' for n in table.nids[at].tolist())})


async def get_mcdram_cfg(machine: CapmcMachine, ask: Ask) -> Reply:
    """Each node's memory mode."""
    table, at = _eligible(machine, ask, MCDRAM)
    uids = table.uids[at]
    sizes, rams = machine.label(uids, "mcdram"), machine.label(uids, "dram")
    known = await machine.records(MCDRAM.kind)
    rows = zip(table.nids[at].tolist(), uids.tolist(), sizes, rams, strict=True)
    texts = []
    for nid, uid, size, ram in rows:
        mode = known.get(uid, MCDRAM.default)
        texts.append(
            f'{{"nid":{nid},"mcdram_cfg":"{mode}","mcdram_pct":{PERCENT[mode]}'
            f',"mcdram_size":{quoted(size)},"dram_size":{quoted(ram or _DRAM)}}}'
        )
    return columns({"nids": objects(texts)})


async def get_mode(machine: CapmcMachine, ask: Ask, *, setting: Setting) -> Reply:
    """What is staged for each node."""
    table, at = _eligible(machine, ask, setting)
    known = await machine.records(setting.kind)
    pairs = zip(table.nids[at].tolist(), table.uids[at].tolist(), strict=True)
    texts = (
        f'{{"nid":{nid},"{setting.key}":{setting.written(known.get(uid, setting.default))}}}' for nid, uid in pairs
    )
    return columns({"nids": objects(texts)})


async def set_mode(machine: CapmcMachine, ask: Ask, *, setting: Setting) -> Reply:
    """Stage it."""
    wanted = objects_of(ask.body)
    table = machine.nodes()
    nids = np.array([one["nid"] for one in wanted], dtype=np.int64)
    chosen(table, nids)
    uids = table.uids[table.find(nids)]
    values: dict[int, str] = {}
    for one, uid, label in zip(wanted, uids.tolist(), machine.label(uids, setting.label), strict=True):
        value = setting.choices.get(_text(one.get(setting.key)))
        if value is None:
            raise Refusal(400, f"Bad Request: invalid {setting.key}: {shown(one.get(setting.key))}")
        if label:
            values[uid] = value
    await _keep(machine, setting, values, values)
    return reply(err_msg=SUCCESS)


async def clear_mode(machine: CapmcMachine, ask: Ask, *, setting: Setting) -> Reply:
    """Stage the default."""
    table, at = _eligible(machine, ask, setting)
    known = await machine.records(setting.kind)
    changed = [uid for uid in table.uids[at].tolist() if uid in known]
    await _keep(machine, setting, dict.fromkeys(changed), dict.fromkeys(changed, setting.default))
    return reply(err_msg=SUCCESS)


async def _keep(
    machine: CapmcMachine, setting: Setting, records: Mapping[int, str | None], values: Mapping[int, str]
) -> None:
    if values:
        await machine.stage(setting.kind, values)
        await machine.keep(setting.kind, records)


async def booted(machine: CapmcMachine, uids: Uids) -> None:
    """These nodes have booted: what was staged for them is now what they run with."""
    for setting in SETTINGS:
        labels = machine.label(uids, setting.label)
        wanted = [uid for uid, label in zip(uids.tolist(), labels, strict=True) if label]
        if not wanted:
            continue
        staged = await machine.records(setting.kind)
        running = await machine.records(setting.kind + BOOTED)
        news = {uid: staged.get(uid) for uid in wanted if staged.get(uid) != running.get(uid)}
        if news:
            await machine.keep(setting.kind + BOOTED, news)


async def cnselect(machine: CapmcMachine, ask: Ask) -> Reply:
    """The nodes that were started with a mode: ``hbmcachepct.eq.N`` or ``numa_cfg.eq.X``. For the command."""
    found = _EXPRESSION.match(word(ask.body.get("expression"), "expression", 100))
    if not found:
        raise Refusal(400, "Bad Request: expressions are hbmcachepct.eq.N and numa_cfg.eq.X")
    setting, value = (MCDRAM, _MCDRAM.get(found[2] or "")) if found[1] else (NUMA, found[4])
    table, at = _eligible(machine, Ask(applet=ask.applet, body={}), setting)
    running = await machine.records(setting.kind + BOOTED)
    mask = [running.get(uid, setting.default) == value for uid in table.uids[at].tolist()]
    return columns({"nids": integers(table.nids[at][np.array(mask, dtype=np.bool_)].tolist())})


def _eligible(machine: CapmcMachine, ask: Ask, setting: Setting) -> tuple[NodeTable, Positions]:
    """The nodes of a request that have such a setting; the others are left out in silence."""
    table = machine.nodes()
    at = chosen(table, nids_of(ask.body), compute=True)
    has = np.array([bool(label) for label in machine.label(table.uids[at], setting.label)], dtype=np.bool_)
    return table, at[has]


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
