"""What the accelerators of a simulated node draw and how that is limited: each has environment metrics of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish.body import Json, done, missing, only, read_json, refuse, resource
from strata.virtual.redfish.power import wanted_cap
from strata.virtual.redfish.router import Call, Deeds, Views
from strata.virtual.redfish.system import numbered

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

LEAST, MOST = 50, 500
"""Watts: the caps that an accelerator accepts."""


def _which(bmc: NodeBmc, call: Call) -> int:
    """Its number, from 0; -1: it is none."""
    names = numbered("GPU", bmc.gpus)
    return names.index(call.ids[0]) if call.ids[0] in names else -1


def _environment(bmc: NodeBmc, call: Call) -> Json | None:
    gpu = _which(bmc, call)
    if gpu < 0:
        return None
    cap = bmc.gpu_cap(gpu)
    return resource(
        call.path,
        "EnvironmentMetrics.v1_3_0",
        "Environment",
        PowerWatts={"Reading": bmc.gpu_watts(gpu, call.now)},
        PowerLimitWatts={
            "SetPoint": cap,
            "AllowableMin": LEAST,
            "AllowableMax": MOST,
            "ControlMode": "Disabled" if cap is None else "Automatic",
        },
    )


def _set_environment(bmc: NodeBmc, call: Call) -> Reply:
    gpu = _which(bmc, call)
    if gpu < 0:
        return missing(call.path)
    limit = only(read_json(call.request.body), PowerLimitWatts=(dict,)).get("PowerLimitWatts")
    watts = wanted_cap(limit if isinstance(limit, dict) else {})
    if watts is not None and not LEAST <= watts <= MOST:
        refuse(400, "PropertyValueOutOfRange", f"The limit is from {LEAST} to {MOST} W, or null for none.")
    bmc.site.nodes.electricity.set_gpu_cap(bmc.node, gpu, watts)
    return done()


VIEWS: Views[NodeBmc] = {"Systems/1/Processors/*/EnvironmentMetrics": _environment}

DEEDS: Deeds[NodeBmc] = {"PATCH Systems/1/Processors/*/EnvironmentMetrics": _set_environment}
