"""Firmware settings of a simulated node: those in force, and those that wait for its next start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish.body import ROOT, Json, done, link, only, read_json, refuse, resource
from strata.virtual.redfish.router import Call, Deeds, Views

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

BIOS = f"{ROOT}/Systems/1/Bios"
ATTRIBUTES = {
    "BootMode": "Uefi",
    "HyperThreading": True,
    "NumaNodesPerSocket": 4,
    "PowerProfile": "Performance",
    "SerialRedirection": True,
    "Sriov": False,
}
"""Attribute → what servers come with."""


def _bios(bmc: NodeBmc, call: Call) -> Json:
    settings = {
        "@odata.type": "#Settings.v1_3_5.Settings",
        "SettingsObject": link(f"{BIOS}/Settings"),
        "SupportedApplyTimes": ["OnReset"],
    }
    target = f"{BIOS}/Actions/Bios.ResetBios"
    return resource(
        call.path,
        "Bios.v1_2_1",
        "BIOS settings",
        Attributes=ATTRIBUTES | bmc.bios,
        Actions={"#Bios.ResetBios": {"target": target}},
        **{"@Redfish.Settings": settings},
    )


def _staged(bmc: NodeBmc, call: Call) -> Json:
    return resource(call.path, "Bios.v1_2_1", "BIOS settings at the next start", Attributes=bmc.staged)


def _stage(bmc: NodeBmc, call: Call) -> Reply:
    allowed = {"Attributes": (dict,), "@Redfish.SettingsApplyTime": (dict,)}
    wanted = only(read_json(call.request.body), **allowed).get("Attributes")
    if not isinstance(wanted, dict):
        refuse(400, "PropertyMissing", "Attributes is missing.")
    for name, value in wanted.items():
        if name not in ATTRIBUTES:
            refuse(400, "PropertyUnknown", f"There is no attribute {name[:80]}.")
        if type(value) is not type(ATTRIBUTES[name]):
            refuse(400, "PropertyValueTypeError", f"{name} has a value of the wrong type.")
    bmc.staged |= wanted
    return done()


def _reset_bios(bmc: NodeBmc, call: Call) -> Reply:
    bmc.staged = dict(ATTRIBUTES)
    return done()


VIEWS: Views[NodeBmc] = {"Systems/1/Bios": _bios, "Systems/1/Bios/Settings": _staged}

DEEDS: Deeds[NodeBmc] = {
    "PATCH Systems/1/Bios/Settings": _stage,
    "POST Systems/1/Bios/Actions/Bios.ResetBios": _reset_bios,
}
