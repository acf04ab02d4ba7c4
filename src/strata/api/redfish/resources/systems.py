"""Nodes as computer systems: what they are, their power and Reset, boot, firmware settings and virtual drive."""

from __future__ import annotations

from typing import get_args

from strata.api.redfish.protocol import bodies
from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.route import Call, Json, Reply, Routes, collection, link
from strata.api.redfish.protocol.schemas import resource, type_of
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import plain, status, uuid, whole, worst
from strata.api.redfish.resources.ids import SYSTEMS
from strata.api.redfish.resources.needs import ACT, READ, READ_BMC
from strata.core.errors import BadRequest, NotOffered
from strata.fleet.nodes.records import NodeView
from strata.fleet.nodes.service import NodeService
from strata.hardware.bmc.protocol import Boot, BootTarget, PowerAction, Severity
from strata.hardware.bmc.records import BmcView, NodeBios
from strata.hardware.bmc.service import BmcService
from strata.hardware.inventory.records import ComponentView, NodeHardware

RESETS: dict[str, PowerAction] = {
    "On": "on",
    "ForceOff": "off",
    "GracefulShutdown": "graceful-off",
    "ForceRestart": "cycle",
    "GracefulRestart": "graceful-restart",
    "PowerCycle": "cycle",
    "Nmi": "nmi",
}
"""What a reset asks for. On and off become desires that the engine fulfils."""

TARGETS: dict[str, BootTarget] = {
    "None": "none",
    "Pxe": "pxe",
    "UefiHttp": "http",
    "Cd": "media",
    "Hdd": "disk",
    "BiosSetup": "setup",
}
_TARGET_NAMES = {target: name for name, target in TARGETS.items()}
assert set(_TARGET_NAMES) == set(get_args(BootTarget))

_BOOT = {
    "BootSourceOverrideTarget": str,
    "BootSourceOverrideEnabled": str,
    "BootSourceOverrideMode": str,
    "HttpBootUri": str,
}
_STATES: dict[str, str] = {"on": "Enabled", "off": "StandbyOffline"}
_HEALTH: dict[str, Severity] = {"faulted": "critical", "unreachable": "warning"}
_ON_THE_WAY = {("off", "power-on"): "PoweringOn", ("on", "power-off"): "PoweringOff"}
_LONGEST_SETTING = 1024
_MOST_SETTINGS = 1000
_DRIVE = "Cd"
"""There is one: the BMC's first, or the one for compact discs."""
_INSERT = {"Image": str, "Inserted": bool, "WriteProtected": bool}
_MEDIA = f"{SYSTEMS}/{{system}}/VirtualMedia"

ROUTES = Routes()


@ROUTES.get(SYSTEMS, READ)
async def systems(call: Call) -> Json:
    names = await call.of(NodeService).node_names(call.who, "*")
    return collection(SYSTEMS, "ComputerSystem", "Nodes", [ids.system(name) for name in names])


@ROUTES.get(f"{SYSTEMS}/{{system}}", READ)
async def system(call: Call) -> Json:
    view = await call.of(NodeService).node(call.who, call.params["system"])
    hardware = await live.hardware(call, view.name)
    path = ids.system(view.name)
    managers = [link(f"{ids.MANAGERS}/{ids.SERVICE_MANAGER}")]
    if hardware is not None:
        managers.append(link(ids.manager(hardware.bmc)))
    found = resource(
        path,
        "ComputerSystem",
        view.name,
        Description=f"{view.role} node" + (f" at {view.location}" if view.location else ""),
        SystemType="Physical",
        HostName=view.name,
        PowerState=power_state(view),
        Status=await system_status(call, view, hardware),
        **_identity(hardware),
        **_summaries(hardware),
        Processors=link(f"{path}/Processors"),
        Memory=link(f"{path}/Memory"),
        Storage=link(f"{path}/Storage"),
        EthernetInterfaces=link(f"{path}/EthernetInterfaces"),
        Links={"Chassis": [link(ids.enclosure(view.name))], "ManagedBy": managers},
    )
    if call.services.find(BmcService) is not None and call.who.may(READ_BMC):
        found |= _offered(path) | {"Boot": _boot(await live.bmc(call, view.name))}
    return found


def _offered(path: str) -> Json:
    """What can be had and done through a BMC."""
    return {
        "LocationIndicatorActive": None,
        "Bios": link(f"{path}/Bios"),
        "LogServices": link(f"{path}/LogServices"),
        "VirtualMedia": link(f"{path}/VirtualMedia"),
        "SerialConsole": {
            "IPMI": {"ServiceEnabled": False},
            "SSH": {"ServiceEnabled": False},
            "Telnet": {"ServiceEnabled": False},
        },
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": f"{path}/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": list(RESETS),
            }
        },
    }


def power_state(view: NodeView) -> str | None:
    """As the fact says; null where nobody knows."""
    fact = view.facts.get("power")
    power = fact.value if fact is not None else ""
    on_the_way = _ON_THE_WAY.get((power, view.doing.mutation if view.doing is not None else ""))
    return on_the_way or {"on": "On", "off": "Off"}.get(power)


async def system_status(call: Call, view: NodeView, hardware: NodeHardware | None) -> Json:
    """How the node is: its power, its open alerts and faults, and its parts."""
    fact = view.facts.get("power")
    alert = (await live.troubles(call)).get(view.name)
    state = _STATES.get(fact.value if fact is not None else "")
    # Nothing wrong is known of it; only where nothing at all is known, that is not said either.
    own = worst((alert, _HEALTH.get(view.state), "ok" if state else None))
    parts = worst(part.health for part in hardware.components) if hardware is not None else None
    return status(state, own, rollup=worst((own, parts)))


def _identity(hardware: NodeHardware | None) -> Json:
    if hardware is None:
        return {"Manufacturer": None, "Model": None, "SerialNumber": None, "UUID": None}
    machine = next((part for part in hardware.components if part.kind == "system"), None)
    return {
        "Manufacturer": plain(machine.vendor if machine else "") or plain(hardware.identity.vendor),
        "Model": plain(machine.model if machine else "") or plain(hardware.identity.model),
        "SerialNumber": plain(hardware.serial),
        "PartNumber": plain(machine.part if machine else ""),
        "UUID": uuid(hardware.uuid),
        "BiosVersion": plain(machine.firmware if machine else ""),
    }


def _summaries(hardware: NodeHardware | None) -> Json:
    parts = hardware.components if hardware is not None else ()
    processors = [part for part in parts if part.kind == "processor"]
    modules = [part for part in parts if part.kind == "memory"]
    return {
        "ProcessorSummary": {
            "Count": len(processors) if processors else None,
            "Model": plain(processors[0].model) if processors else None,
            "CoreCount": _sum(processors, "cores"),
            "LogicalProcessorCount": _sum(processors, "threads"),
        },
        "MemorySummary": {
            "TotalSystemMemoryGiB": None if (mib := _sum(modules, "capacity_mib")) is None else round(mib / 1024, 3)
        },
    }


def _sum(parts: list[ComponentView], fact: str) -> int | None:
    """The sum, where every part says how much it has."""
    found = [whole(part, fact) for part in parts]
    return sum(filter(None, found)) if found and None not in found else None


def _boot(bmc: BmcView | None) -> Json:
    boot = bmc.boot if bmc is not None else None
    allowed = list(TARGETS)
    found: Json = {
        "BootSourceOverrideTarget": None,
        "BootSourceOverrideTarget@Redfish.AllowableValues": allowed,
        "BootSourceOverrideEnabled": None,
        "BootSourceOverrideEnabled@Redfish.AllowableValues": ["Disabled", "Once", "Continuous"],
        "BootSourceOverrideMode": None,
        "BootSourceOverrideMode@Redfish.AllowableValues": ["UEFI", "Legacy"],
        "HttpBootUri": None,
    }
    if boot is not None:
        enabled = "Disabled" if boot.target == "none" else "Once" if boot.once else "Continuous"
        found["BootSourceOverrideTarget"] = _TARGET_NAMES[boot.target]
        found["BootSourceOverrideEnabled"] = enabled
        found["BootSourceOverrideMode"] = None if boot.uefi is None else "UEFI" if boot.uefi else "Legacy"
        found["HttpBootUri"] = plain(boot.uri, 2048)
    return found


@ROUTES.patch(f"{SYSTEMS}/{{system}}", ACT)
async def patch_system(call: Call) -> Reply:
    """Set the boot override, or the identify light."""
    current = await system(call)
    given = bodies.change(call, {"Boot": dict, "LocationIndicatorActive": bool}, current)
    node, bmcs = call.params["system"], call.of(BmcService)
    reply = bodies.DONE
    if given.get("Boot"):
        boot = _wanted_boot(bodies.part(given, "Boot", _BOOT, current), current["Boot"])
        reply = bodies.done(await bmcs.boot(call.who, node, boot))
        live.kept(call).forget(("bmc", node))
    if (light := given.get("LocationIndicatorActive")) is not None:
        reply = bodies.done(await bmcs.identify(call.who, node, light))
    return reply


def _wanted_boot(given: Json, current: Json) -> Boot:
    """What the override is to be; what is not given stays as it is."""
    enabled = given.get("BootSourceOverrideEnabled") or current["BootSourceOverrideEnabled"] or "Once"
    bodies.one_of(enabled, ("Disabled", "Once", "Continuous"), "BootSourceOverrideEnabled")
    target = given.get("BootSourceOverrideTarget")
    if enabled == "Disabled" and given.get("BootSourceOverrideEnabled"):
        return Boot(target="none")
    if enabled == "Disabled":
        enabled = "Once"
    target = target or current["BootSourceOverrideTarget"]
    if target is None:
        raise BadRequest("say what to boot from: the BMC does not say what it is", where="Boot")
    bodies.one_of(target, TARGETS, "BootSourceOverrideTarget")
    mode = given.get("BootSourceOverrideMode")
    if mode is not None:
        bodies.one_of(mode, ("UEFI", "Legacy"), "BootSourceOverrideMode")
    return Boot(
        target=TARGETS[target],
        once=enabled == "Once",
        uri=given.get("HttpBootUri") or "",
        uefi=None if mode is None else mode == "UEFI",
    )


@ROUTES.post(f"{SYSTEMS}/{{system}}/Actions/ComputerSystem.Reset", ACT)
async def reset(call: Call) -> Reply:
    """Switch, cycle or interrupt a node."""
    given = bodies.parameters(call, "ComputerSystem.Reset", {"ResetType": str}, needed=("ResetType",))
    kind = bodies.one_of(given["ResetType"], RESETS, "ResetType", "ComputerSystem.Reset")
    view = await call.of(NodeService).node(call.who, call.params["system"])
    return bodies.done(await call.of(BmcService).power(call.who, view.name, RESETS[kind]))


# -- firmware settings: those in force, and those that wait for the next restart


async def _bios_settings(call: Call) -> NodeBios:
    """What its BMC says; nothing where the hardware has no such settings."""
    view = await call.of(NodeService).node(call.who, call.params["system"])
    try:
        return await live.kept(call).get(("bios", view.name), lambda: call.of(BmcService).bios(call.who, view.name))
    except (NotOffered, BadRequest):
        return NodeBios(node=view.name, current={}, staged={})


@ROUTES.get(f"{SYSTEMS}/{{system}}/Bios", READ_BMC)
async def bios(call: Call) -> Json:
    found = await _bios_settings(call)
    path = f"{ids.system(found.node)}/Bios"
    return resource(
        path,
        "Bios",
        "Firmware settings",
        Attributes=dict(found.current),
        **{
            "@Redfish.Settings": {
                "@odata.type": type_of("Settings"),
                "SettingsObject": link(f"{path}/Settings"),
                "SupportedApplyTimes": ["OnReset"],
            }
        },
    )


@ROUTES.get(f"{SYSTEMS}/{{system}}/Bios/Settings", READ_BMC)
async def staged(call: Call) -> Json:
    """The settings that the next restart brings into force."""
    found = await _bios_settings(call)
    path = f"{ids.system(found.node)}/Bios/Settings"
    return resource(path, "Bios", "Staged firmware settings", Attributes=dict(found.staged))


@ROUTES.patch(f"{SYSTEMS}/{{system}}/Bios/Settings", ACT)
async def stage(call: Call) -> Reply:
    given = bodies.change(call, {"Attributes": dict}, await staged(call))["Attributes"] or {}
    if not given:
        raise rejected(400, "NoOperation")
    if len(given) > _MOST_SETTINGS:
        raise BadRequest(f"{len(given)} settings; at most {_MOST_SETTINGS} at a time", where="Attributes")
    for name, value in given.items():
        if isinstance(value, dict | list) or len(str(value)) > _LONGEST_SETTING:
            raise rejected(400, "PropertyValueTypeError", str(value)[:80], name, about=f"Attributes/{name}")
    node = call.params["system"]
    outcome = await call.of(BmcService).stage_bios(call.who, node, given)
    live.kept(call).forget(("bios", node))
    return bodies.done(outcome)


# -- the virtual drive of a node's BMC


async def _node(call: Call) -> str:
    call.of(BmcService)  # without the hardware layer there is none
    return (await call.of(NodeService).node(call.who, call.params["system"])).name


@ROUTES.get(_MEDIA, READ_BMC)
async def drives(call: Call) -> Json:
    path = f"{ids.system(await _node(call))}/VirtualMedia"
    return collection(path, "VirtualMedia", "Virtual drives", [f"{path}/{_DRIVE}"])


@ROUTES.get(f"{_MEDIA}/{_DRIVE}", READ_BMC)
async def drive(call: Call) -> Json:
    """What is in it; null where its BMC does not answer soon."""
    node = await _node(call)
    path = f"{ids.system(node)}/VirtualMedia/{_DRIVE}"
    bmc = await live.bmc(call, node)
    media = bmc.media if bmc is not None else ()
    found = next((one for one in media if "cd" in one.kind.lower()), media[0] if media else None)
    return resource(
        path,
        "VirtualMedia",
        "Virtual drive",
        MediaTypes=["CD", "DVD"],
        Image=plain(found.image, 2048) if found is not None else None,
        Inserted=bool(found.image) if found is not None else None,
        ConnectedVia=("URI" if found.image else "NotConnected") if found is not None else None,
        WriteProtected=True,
        Actions={
            f"#VirtualMedia.{name}": {"target": f"{path}/Actions/VirtualMedia.{name}"}
            for name in ("InsertMedia", "EjectMedia")
        },
    )


@ROUTES.post(f"{_MEDIA}/{_DRIVE}/Actions/VirtualMedia.InsertMedia", ACT)
async def insert(call: Call) -> Reply:
    action = "VirtualMedia.InsertMedia"
    given = bodies.parameters(call, action, _INSERT, needed=("Image",))
    for name in ("Inserted", "WriteProtected"):
        if given.get(name) is False:
            raise rejected(400, "ActionParameterNotSupported", name, action, about=name, hint="it is always true here")
    if "://" not in given["Image"]:
        raise rejected(400, "ActionParameterValueFormatError", given["Image"], "Image", action, about="Image")
    return await _put(call, given["Image"])


@ROUTES.post(f"{_MEDIA}/{_DRIVE}/Actions/VirtualMedia.EjectMedia", ACT)
async def eject(call: Call) -> Reply:
    bodies.parameters(call, "VirtualMedia.EjectMedia", {})
    return await _put(call, "")


async def _put(call: Call, image: str) -> Reply:
    node = await _node(call)
    outcome = await call.of(BmcService).insert_media(call.who, node, image)
    live.kept(call).forget(("bmc", node))
    return bodies.done(outcome)
