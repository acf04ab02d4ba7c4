"""The resources of a virtual machine: what QEMU gives it, and no more than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish import drawn as tree_drawn
from strata.virtual.redfish.bmc import read_fence
from strata.virtual.redfish.body import OK, ROOT, Json, collection, done, link, links, one_of, only, read_json, resource
from strata.virtual.redfish.boot import boot_options
from strata.virtual.redfish.drawn import CHASSIS
from strata.virtual.redfish.router import Call, Deeds, Views

if TYPE_CHECKING:
    from strata.virtual.qemu.bmc import MachineBmc

SYSTEM, MANAGER = f"{ROOT}/Systems/1", f"{ROOT}/Managers/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
RESETS = ("On", "ForceOff", "GracefulShutdown", "ForceRestart", "GracefulRestart", "PowerCycle", "Nmi")
_BELOW = ("Processors", "Memory", "EthernetInterfaces", "LogServices", "VirtualMedia")
_SENSORS = {
    "TotalPower": ("Total power", "Power", "W"),
    "TotalEnergy": ("Total energy", "EnergykWh", "kW.h"),
}


def _systems(bmc: MachineBmc, call: Call) -> Json:
    return collection(call.path, "ComputerSystem", ["1"])


def _system(bmc: MachineBmc, call: Call) -> Json:
    console = {"ServiceEnabled": True, "Interactive": True, "ConsoleURI": f"{SYSTEM}/SerialConsole"}
    reset = {"target": RESET, "ResetType@Redfish.AllowableValues": RESETS}
    return resource(
        call.path,
        "ComputerSystem.v1_26_0",
        bmc.name,
        **bmc.part("node", "System"),
        SystemType="Virtual",
        UUID=bmc.uuid("System"),
        HostName=bmc.name,
        AssetTag=bmc.asset_tag,
        PowerState=bmc.power(),
        Status=OK,
        LocationIndicatorActive=bmc.light,
        ProcessorSummary={"Count": 1, "Model": "QEMU", "CoreCount": 1},
        MemorySummary={"TotalSystemMemoryGiB": bmc.machine.node.memory / 1024},
        Boot=boot_options(bmc),
        SerialConsole={"MaxConcurrentSessions": 4, "WebSocket": console},
        **{name: link(f"{SYSTEM}/{name}") for name in _BELOW},
        Links={"Chassis": links(CHASSIS), "ManagedBy": links(MANAGER)},
        Actions={"#ComputerSystem.Reset": reset},
    )


def _set_system(bmc: MachineBmc, call: Call) -> Reply:
    body = only(read_json(call.request.body), Boot=(dict,), LocationIndicatorActive=(bool,), AssetTag=(str,))
    boot, light, tag = body.get("Boot"), body.get("LocationIndicatorActive"), body.get("AssetTag")
    bmc.light = bmc.light if light is None else bool(light)
    bmc.asset_tag = bmc.asset_tag if tag is None else str(tag)[:256]
    return bmc.set_boot(boot) if isinstance(boot, dict) else done()


def _reset(bmc: MachineBmc, call: Call) -> Reply:
    return bmc.reset(one_of(read_json(call.request.body), "ResetType", RESETS), read_fence(call))


def _console(bmc: MachineBmc, call: Call) -> Reply:
    reply: Reply = bmc.console.attach(call.request)
    return reply


def _processors(bmc: MachineBmc, call: Call) -> Json:
    return collection(call.path, "Processor", ["CPU1"])


def _processor(bmc: MachineBmc, call: Call) -> Json:
    return resource(
        call.path,
        "Processor.v1_18_0",
        "CPU1",
        Manufacturer="QEMU",
        Model="Emulated x86-64",
        ProcessorType="CPU",
        ProcessorArchitecture="x86",
        InstructionSet="x86-64",
        TotalCores=1,
        TotalThreads=1,
        Status=OK,
    )


def _memory(bmc: MachineBmc, call: Call) -> Json:
    return collection(call.path, "Memory", ["DIMM1"])


def _dimm(bmc: MachineBmc, call: Call) -> Json:
    size = bmc.machine.node.memory
    return resource(call.path, "Memory.v1_18_0", "DIMM1", MemoryType="DRAM", CapacityMiB=size, Status=OK)


def _interfaces(bmc: MachineBmc, call: Call) -> Json:
    return collection(call.path, "EthernetInterface", ["eth0"])


def _interface(bmc: MachineBmc, call: Call) -> Json:
    mac = bmc.machine.node.mac.upper()
    return resource(
        call.path,
        "EthernetInterface.v1_9_0",
        "eth0",
        MACAddress=mac,
        PermanentMACAddress=mac,
        InterfaceEnabled=True,
        LinkStatus="LinkUp" if bmc.power() == "On" else "LinkDown",
        Status=OK,
    )


def _chassis_all(bmc: MachineBmc, call: Call) -> Json:
    return collection(call.path, "Chassis", ["1"])


def _chassis(bmc: MachineBmc, call: Call) -> Json:
    return resource(
        call.path,
        "Chassis.v1_23_0",
        bmc.name,
        **bmc.part("chassis", "Chassis"),
        ChassisType="Other",
        PowerState=bmc.power(),
        Status=OK,
        EnvironmentMetrics=link(f"{CHASSIS}/EnvironmentMetrics"),
        Power=link(f"{CHASSIS}/Power"),
        Sensors=link(f"{CHASSIS}/Sensors"),
        Links={"ComputerSystems": links(SYSTEM), "ManagedBy": links(MANAGER)},
    )


def _environment(bmc: MachineBmc, call: Call) -> Json:
    return resource(call.path, "EnvironmentMetrics.v1_3_0", "Environment", **tree_drawn.metrics(bmc, call.now))


def _power(bmc: MachineBmc, call: Call) -> Json:
    return resource(call.path, "Power.v1_7_1", "Power", PowerControl=[tree_drawn.control(bmc, call.now)])


def _sensors(bmc: MachineBmc, call: Call) -> Json:
    return collection(call.path, "Sensor", _SENSORS)


def _sensor(bmc: MachineBmc, call: Call) -> Json | None:
    found = _SENSORS.get(call.ids[0])
    if found is None:
        return None
    name, kind, units = found
    reading = bmc.watts(call.now) if kind == "Power" else bmc.energy(call.now)
    return resource(
        call.path,
        "Sensor.v1_9_0",
        name,
        ReadingType=kind,
        ReadingUnits=units,
        PhysicalContext="Chassis",
        Reading=reading,
        Status=OK,
    )


VIEWS: Views[MachineBmc] = {
    "Systems": _systems,
    "Systems/1": _system,
    "Systems/1/Processors": _processors,
    "Systems/1/Processors/CPU1": _processor,
    "Systems/1/Memory": _memory,
    "Systems/1/Memory/DIMM1": _dimm,
    "Systems/1/EthernetInterfaces": _interfaces,
    "Systems/1/EthernetInterfaces/eth0": _interface,
    "Chassis": _chassis_all,
    "Chassis/1": _chassis,
    "Chassis/1/EnvironmentMetrics": _environment,
    "Chassis/1/Power": _power,
    "Chassis/1/Sensors": _sensors,
    "Chassis/1/Sensors/*": _sensor,
}

DEEDS: Deeds[MachineBmc] = {
    "PATCH Systems/1": _set_system,
    "POST Systems/1/Actions/ComputerSystem.Reset": _reset,
    "GET Systems/1/SerialConsole": _console,
}
