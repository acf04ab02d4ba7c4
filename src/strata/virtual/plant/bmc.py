"""The BMCs of what feeds nodes: of a PDU, of a chassis full of nodes."""

from __future__ import annotations

from zlib import crc32

from strata.virtual.bmc.http import Reply
from strata.virtual.fleet.names import chassis_name, outlet_name
from strata.virtual.plant.plant import Plant
from strata.virtual.redfish import event_service as tree_events
from strata.virtual.redfish import services as tree_services
from strata.virtual.redfish.bmc import Account, Bmc, read_fence
from strata.virtual.redfish.body import (
    OK,
    Json,
    collection,
    done,
    error,
    link,
    links,
    one_of,
    read_json,
    resource,
)
from strata.virtual.redfish.router import Call, Deeds, Router, Views
from strata.virtual.redfish.site import Site
from strata.virtual.redfish.system import slot

COMMON_SERVICES = ("AccountService", "EventService", "Managers", "SessionService")
COMMON_VIEWS: Views[Bmc] = {**tree_services.VIEWS, **tree_events.VIEWS}
COMMON_DEEDS: Deeds[Bmc] = {**tree_services.DEEDS, **tree_events.DEEDS}


def plant_key(name: str) -> int:
    """A number that no node has, for the BMC of that name."""
    return -crc32(name.encode()) - 3


class PlantBmc(Bmc):
    """A BMC of something that is not a node."""

    def __init__(self, site: Site, plant: Plant, name: str, account: Account) -> None:
        super().__init__(site, name, account, plant_key(name))
        self.plant = plant


# -- PDUs


class PduBmc(PlantBmc):
    """A rack PDU with outlets that can be switched."""

    services = (*COMMON_SERVICES, "PowerEquipment")
    kind = "PDU"


def _power_equipment(bmc: PduBmc, call: Call) -> Json:
    path = f"{call.path}/RackPDUs"
    return resource(call.path, "PowerEquipment.v1_2_0", "Power equipment", Status=OK, RackPDUs=link(path))


def _pdus(bmc: PduBmc, call: Call) -> Json:
    return collection(call.path, "PowerDistribution", ["1"])


def _pdu(bmc: PduBmc, call: Call) -> Json:
    return resource(
        call.path,
        "PowerDistribution.v1_3_0",
        bmc.name,
        **bmc.part("PDU", "PDU"),
        EquipmentType="RackPDU",
        FirmwareVersion=bmc.firmware(call.now),
        Status=OK,
        Location=_located(bmc.name.removeprefix("pdu-")),
        Outlets=link(f"{call.path}/Outlets"),
        Links={"ManagedBy": links(tree_services.MANAGER)},
    )


def _outlets(bmc: PduBmc, call: Call) -> Json:
    return collection(call.path, "Outlet", bmc.plant.outlets(bmc.name))


def _outlet(bmc: PduBmc, call: Call) -> Json | None:
    chassis = bmc.plant.outlets(bmc.name).get(call.ids[0])
    if chassis is None:
        return None
    states = ["On", "Off"]
    target = f"{call.path}/Actions/Outlet.PowerControl"
    return resource(
        call.path,
        "Outlet.v1_4_0",
        outlet_name(chassis),
        PowerState="On" if bmc.plant.outlet_on[chassis] else "Off",
        PowerEnabled=bmc.plant.outlet_on[chassis],
        OutletType="IEC_60320_C19",
        PowerWatts={"Reading": round(bmc.plant.watts(chassis, call.now), 1)},
        ElectricalConsumerNames=[chassis_name(chassis)],
        Status=OK,
        Actions={"#Outlet.PowerControl": {"target": target, "PowerState@Redfish.AllowableValues": states}},
    )


def _control_outlet(bmc: PduBmc, call: Call) -> Reply:
    chassis = bmc.plant.outlets(bmc.name).get(call.ids[0])
    if chassis is None:
        return error(404, "ResourceMissingAtURI", f"There is no outlet {call.ids[0][:80]}.")
    wanted = one_of(read_json(call.request.body), "PowerState", ("On", "Off"))
    if not bmc.plant.take_fence(outlet_name(chassis), read_fence(call)):
        return _FENCED
    bmc.plant.switch_outlet(chassis, wanted == "On", now=call.now)
    return done()


PDU_VIEWS: Views[PduBmc] = {
    "PowerEquipment": _power_equipment,
    "PowerEquipment/RackPDUs": _pdus,
    "PowerEquipment/RackPDUs/1": _pdu,
    "PowerEquipment/RackPDUs/1/Outlets": _outlets,
    "PowerEquipment/RackPDUs/1/Outlets/*": _outlet,
}
PDU_DEEDS: Deeds[PduBmc] = {
    "POST PowerEquipment/RackPDUs/1/Outlets/*/Actions/Outlet.PowerControl": _control_outlet,
}


# -- chassis


class ChassisBmc(PlantBmc):
    """An enclosure full of nodes, which it can take the power from."""

    services = (*COMMON_SERVICES, "Chassis")
    kind = "Enclosure"
    manager_type = "EnclosureManager"


def _enclosures(bmc: ChassisBmc, call: Call) -> Json:
    return collection(call.path, "Chassis", ["Enclosure"])


def _enclosure(bmc: ChassisBmc, call: Call) -> Json:
    chassis = bmc.plant.enclosures[bmc.name]
    target = f"{call.path}/Actions/Chassis.Reset"
    return resource(
        call.path,
        "Chassis.v1_23_0",
        chassis_name(chassis),
        **bmc.part("Enclosure", "Enclosure"),
        ChassisType="Enclosure",
        PowerState="On" if bmc.plant.chassis_on[chassis] else "Off",
        Status=OK,
        Location=_located(chassis_name(chassis)),
        Links={"ManagedBy": links(tree_services.MANAGER)},
        Actions={"#Chassis.Reset": {"target": target, "ResetType@Redfish.AllowableValues": ["On", "ForceOff"]}},
    )


def _reset_enclosure(bmc: ChassisBmc, call: Call) -> Reply:
    chassis = bmc.plant.enclosures[bmc.name]
    wanted = one_of(read_json(call.request.body), "ResetType", ("On", "ForceOff"))
    if not bmc.plant.take_fence(chassis_name(chassis), read_fence(call)):
        return _FENCED
    if not bmc.plant.switch_chassis(chassis, wanted == "On", now=call.now):
        return error(409, "ActionNotSupported", "The chassis gets no power: its outlet is off.")
    return done()


CHASSIS_VIEWS: Views[ChassisBmc] = {"Chassis": _enclosures, "Chassis/Enclosure": _enclosure}
CHASSIS_DEEDS: Deeds[ChassisBmc] = {"POST Chassis/Enclosure/Actions/Chassis.Reset": _reset_enclosure}


def _located(place: str) -> Json:
    return {"PartLocationContext": place, **slot("Bay", place)}


_FENCED = error(412, "PreconditionFailed", "A newer or equal fence was taken before.")

PduBmc.router = Router({**COMMON_VIEWS, **PDU_VIEWS}, {**COMMON_DEEDS, **PDU_DEEDS})
ChassisBmc.router = Router({**COMMON_VIEWS, **CHASSIS_VIEWS}, {**COMMON_DEEDS, **CHASSIS_DEEDS})
