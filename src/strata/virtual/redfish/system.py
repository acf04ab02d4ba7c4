"""The system of a simulated node: what it is, its power, its processors, memory, storage and console."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from strata.core.state import Outcome
from strata.virtual.bmc.http import Manner, Reply
from strata.virtual.fleet.model import REASONS
from strata.virtual.redfish.bmc import read_fence
from strata.virtual.redfish.body import (
    OK,
    ROOT,
    Json,
    collection,
    done,
    error,
    link,
    links,
    one_of,
    only,
    read_json,
    refuse,
    resource,
)
from strata.virtual.redfish.boot import boot_options, set_boot
from strata.virtual.redfish.router import Call, Deeds, Views

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

SYSTEM, CHASSIS, MANAGER = f"{ROOT}/Systems/1", f"{ROOT}/Chassis/1", f"{ROOT}/Managers/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"

RESETS = {"On": "power-on", "ForceOn": "power-on", "ForceOff": "power-off", "GracefulShutdown": "power-off"}
"""Those that are mutations; the others restart a node that is on."""

CPUS, DIMMS, DRIVES = 2, 8, 2
CORES, DIMM_MIB, DRIVE_BYTES, GPU_MIB = 96, 65536, 1_920_383_410_176, 98304


def _systems(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "ComputerSystem", ["1"])


def _system(bmc: NodeBmc, call: Call) -> Json:
    cpu = bmc.part("ARM" if bmc.gpus else "CPU", "Processors/CPU1")
    console = {"ServiceEnabled": True, "Interactive": True, "ConsoleURI": f"{SYSTEM}/SerialConsole"}
    return resource(
        call.path,
        "ComputerSystem.v1_26_0",
        bmc.name,
        **bmc.part("System", "System"),
        SystemType="Physical",
        UUID=bmc.uuid("System"),
        HostName=bmc.name,
        AssetTag=bmc.asset_tag,
        PowerState=bmc.power(call.now),
        Status=OK,
        BiosVersion=bmc.updates.versions(call.now)["BIOS"],
        LocationIndicatorActive=bmc.light,
        IndicatorLED="Blinking" if bmc.light else "Off",
        ProcessorSummary={"Count": CPUS, "Model": cpu["Model"], "CoreCount": CPUS * CORES},
        MemorySummary={"TotalSystemMemoryGiB": DIMMS * DIMM_MIB // 1024},
        Boot=boot_options(bmc),
        SerialConsole={"MaxConcurrentSessions": 4, "WebSocket": console},
        **{name: link(f"{SYSTEM}/{name}") for name in _BELOW},
        Links={"Chassis": links(CHASSIS), "ManagedBy": links(MANAGER)},
        Actions={"#ComputerSystem.Reset": {"target": RESET, "ResetType@Redfish.AllowableValues": bmc.allowed}},
    )


_BELOW = ("Bios", "Processors", "Memory", "Storage", "EthernetInterfaces", "LogServices", "VirtualMedia")


def _set_system(bmc: NodeBmc, call: Call) -> Reply:
    body = read_json(call.request.body)
    allowed = {"Boot": (dict,), "LocationIndicatorActive": (bool,), "IndicatorLED": (str,), "AssetTag": (str,)}
    only(body, **allowed)
    boot, led, light = body.get("Boot"), body.get("IndicatorLED"), body.get("LocationIndicatorActive")
    if led not in (None, "Off", "Lit", "Blinking"):
        refuse(400, "PropertyValueNotInList", "IndicatorLED is Off, Lit or Blinking.")
    if isinstance(boot, dict):
        set_boot(bmc, boot)
    bmc.light = bool(light) if light is not None else bmc.light if led is None else led != "Off"
    bmc.asset_tag = str(body.get("AssetTag", bmc.asset_tag))[:256]
    return done()


def _reset(bmc: NodeBmc, call: Call) -> Reply:
    kind = one_of(read_json(call.request.body), "ResetType", bmc.allowed)
    fence = read_fence(call)
    nodes = bmc.site.nodes
    epochs = np.array([fence[0]], dtype=np.int64) if fence else None
    generation = fence[1] if fence else 0
    before = len(nodes.effects)
    if kind in RESETS:
        acted = nodes.act(RESETS[kind], bmc.idx, now=call.now, epochs=epochs, generation=generation)
        taken = len(nodes.effects) > before
    else:
        cycle = kind == "PowerCycle"
        acted = nodes.restart(bmc.idx, now=call.now, cycle=cycle, epochs=epochs, generation=generation)
        taken = acted.codes[0] == Outcome.DONE
    outcome = Outcome(int(acted.codes[0]))
    if outcome is Outcome.FENCED:
        return error(412, "PreconditionFailed", "A newer or equal fence was taken before.")
    if outcome is Outcome.FAILED:
        return error(500, "InternalError", f"The request failed: {REASONS[acted.why[0]]}.")
    if taken:
        bmc.resets.append(kind)
        bmc.was_reset(kind, call.now)
    if outcome is Outcome.UNKNOWN:
        return Reply(204, manner=Manner.CLOSED)
    return done()


def _console(bmc: NodeBmc, call: Call) -> Reply:
    reply = bmc.console.attach(call.request)
    bmc.attend(call.now)
    return reply


# -- parts


def _processors(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "Processor", [*numbered("CPU", CPUS), *numbered("GPU", bmc.gpus)])


def _processor(bmc: NodeBmc, call: Call) -> Json | None:
    name = call.ids[0]
    where = f"Processors/{name}"
    if name in numbered("GPU", bmc.gpus):
        return resource(
            call.path,
            "Processor.v1_18_0",
            name,
            **bmc.part("GPU", where),
            ProcessorType="GPU",
            Socket=name,
            FirmwareVersion=bmc.updates.versions(call.now)[name],
            MemorySummary={"TotalMemorySizeMiB": GPU_MIB},
            EnvironmentMetrics=link(f"{call.path}/EnvironmentMetrics"),
            Status=OK,
            Location=slot("Slot", name),
        )
    if name not in numbered("CPU", CPUS):
        return None
    arm = bool(bmc.gpus)
    return resource(
        call.path,
        "Processor.v1_18_0",
        name,
        **bmc.part("ARM" if arm else "CPU", where),
        ProcessorType="CPU",
        ProcessorArchitecture="ARM" if arm else "x86",
        InstructionSet="ARM-A64" if arm else "x86-64",
        Socket=name,
        TotalCores=CORES,
        TotalThreads=CORES if arm else 2 * CORES,
        MaxSpeedMHz=3700,
        Status=OK,
        Location=slot("Socket", name),
    )


def _memory(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "Memory", numbered("DIMM", DIMMS))


def _dimm(bmc: NodeBmc, call: Call) -> Json | None:
    name = call.ids[0]
    if name not in numbered("DIMM", DIMMS):
        return None
    return resource(
        call.path,
        "Memory.v1_18_0",
        name,
        **bmc.part("DIMM", f"Memory/{name}"),
        MemoryType="DRAM",
        MemoryDeviceType="DDR5",
        CapacityMiB=DIMM_MIB,
        OperatingSpeedMhz=4800,
        DeviceLocator=name,
        ErrorCorrection="MultiBitECC",
        Status=OK,
        Location=slot("Slot", name),
    )


def _storages(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "Storage", ["1"])


def _storage(bmc: NodeBmc, call: Call) -> Json:
    drives = [link(f"{call.path}/Drives/{name}") for name in numbered("Disk", DRIVES)]
    return resource(call.path, "Storage.v1_15_0", "NVMe", Status=OK, Drives=drives, **{"Drives@odata.count": DRIVES})


def _drive(bmc: NodeBmc, call: Call) -> Json | None:
    name = call.ids[0]
    if name not in numbered("Disk", DRIVES):
        return None
    return resource(
        call.path,
        "Drive.v1_18_0",
        name,
        **bmc.part("Drive", f"Drives/{name}"),
        MediaType="SSD",
        Protocol="NVMe",
        CapacityBytes=DRIVE_BYTES,
        PredictedMediaLifeLeftPercent=98,
        Revision="1UET7103",
        Status=OK,
        PhysicalLocation=slot("Bay", name),
        Links={"Chassis": link(CHASSIS)},
    )


def numbered(what: str, count: int) -> list[str]:
    """``CPU1``, ``CPU2``..."""
    return [f"{what}{i}" for i in range(1, count + 1)]


def slot(kind: str, label: str) -> Json:
    """A location as it is printed on the sheet metal."""
    return {"PartLocation": {"ServiceLabel": label, "LocationType": kind}}


VIEWS: Views[NodeBmc] = {
    "Systems": _systems,
    "Systems/1": _system,
    "Systems/1/Processors": _processors,
    "Systems/1/Processors/*": _processor,
    "Systems/1/Memory": _memory,
    "Systems/1/Memory/*": _dimm,
    "Systems/1/Storage": _storages,
    "Systems/1/Storage/1": _storage,
    "Systems/1/Storage/1/Drives/*": _drive,
}

DEEDS: Deeds[NodeBmc] = {
    "PATCH Systems/1": _set_system,
    "POST Systems/1/Actions/ComputerSystem.Reset": _reset,
    "GET Systems/1/SerialConsole": _console,
}
