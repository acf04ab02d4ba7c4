"""The BMCs of what feeds nodes: of a PDU, of a chassis full of nodes."""

from __future__ import annotations

from typing import ClassVar
from zlib import crc32

from strata.virtual.bmc.http import Reply
from strata.virtual.fleet.names import chassis_name, outlet_name
from strata.virtual.plant.plant import Plant
from strata.virtual.redfish import events, services
from strata.virtual.redfish.bmc import FENCED, Account, Bmc, read_fence
from strata.virtual.redfish.body import OK, Json, action, done, error, link, links, one_of, read_json, slot
from strata.virtual.redfish.router import Call, Router, Tree
from strata.virtual.redfish.services import MANAGER
from strata.virtual.redfish.site import Site

COMMON_SERVICES = ("AccountService", "EventService", "Managers", "SessionService")
_PDU: Tree[PduBmc] = Tree()
_CHASSIS: Tree[ChassisBmc] = Tree()


def plant_key(name: str) -> int:
    """A number that no node has, for the BMC of that name."""
    return -crc32(name.encode()) - 3


class PlantBmc(Bmc):
    """The BMC of something that is not a node."""

    def __init__(self, site: Site, plant: Plant, name: str, account: Account) -> None:
        super().__init__(site, name, account, plant_key(name))
        self.plant = plant


# -- PDUs


@_PDU.view("PowerEquipment", "PowerEquipment.v1_2_0")
def _power_equipment(bmc: PduBmc, call: Call) -> Json:
    return {"Name": "Power equipment", "Status": OK, "RackPDUs": link(f"{call.path}/RackPDUs")}


@_PDU.members("PowerEquipment/RackPDUs", "PowerDistribution.v1_3_0", ["1"])
def _pdu(bmc: PduBmc, call: Call) -> Json:
    return {
        "Name": bmc.name,
        **bmc.part("PDU", "PDU"),
        "EquipmentType": "RackPDU",
        "FirmwareVersion": bmc.firmware(call.now),
        "Status": OK,
        "Location": _located(bmc.name.removeprefix("pdu-")),
        "Outlets": link(f"{call.path}/Outlets"),
        "Links": {"ManagedBy": links(MANAGER)},
    }


@_PDU.members("PowerEquipment/RackPDUs/1/Outlets", "Outlet.v1_4_0", lambda bmc, call: bmc.plant.outlets(bmc.name))
def _outlet(bmc: PduBmc, call: Call) -> Json:
    chassis = bmc.plant.outlets(bmc.name)[call.ids[0]]
    return {
        "Name": outlet_name(chassis),
        "PowerState": "On" if bmc.plant.outlet_on[chassis] else "Off",
        "PowerEnabled": bmc.plant.outlet_on[chassis],
        "OutletType": "IEC_60320_C19",
        "PowerWatts": {"Reading": round(bmc.plant.watts(chassis, call.now), 1)},
        "ElectricalConsumerNames": [chassis_name(chassis)],
        "Status": OK,
        "Actions": action(call.path, "Outlet.PowerControl", PowerState=["On", "Off"]),
    }


@_PDU.handles("POST PowerEquipment/RackPDUs/1/Outlets/*/Actions/Outlet.PowerControl")
def _control_outlet(bmc: PduBmc, call: Call) -> Reply:
    chassis = bmc.plant.outlets(bmc.name).get(call.ids[0])
    if chassis is None:
        return error(404, "ResourceMissingAtURI", f"There is no outlet {call.ids[0][:80]}.")
    wanted = one_of(read_json(call.request.body), "PowerState", ("On", "Off"))
    if not bmc.plant.take_fence(outlet_name(chassis), read_fence(call)):
        return FENCED
    bmc.plant.switch_outlet(chassis, wanted == "On", now=call.now)
    return done()


class PduBmc(PlantBmc):
    """A rack PDU with outlets that can be switched."""

    router: ClassVar[Router] = Router(services.TREE, events.TREE, _PDU)
    services = (*COMMON_SERVICES, "PowerEquipment")
    kind = "PDU"


# -- chassis


@_CHASSIS.members("Chassis", "Chassis.v1_23_0", ["Enclosure"])
def _enclosure(bmc: ChassisBmc, call: Call) -> Json:
    chassis = bmc.plant.enclosures[bmc.name]
    return {
        "Name": chassis_name(chassis),
        **bmc.part("Enclosure", "Enclosure"),
        "ChassisType": "Enclosure",
        "PowerState": "On" if bmc.plant.chassis_on[chassis] else "Off",
        "Status": OK,
        "Location": _located(chassis_name(chassis)),
        "Links": {"ManagedBy": links(MANAGER)},
        "Actions": action(call.path, "Chassis.Reset", ResetType=["On", "ForceOff"]),
    }


@_CHASSIS.handles("POST Chassis/Enclosure/Actions/Chassis.Reset")
def _reset_enclosure(bmc: ChassisBmc, call: Call) -> Reply:
    chassis = bmc.plant.enclosures[bmc.name]
    wanted = one_of(read_json(call.request.body), "ResetType", ("On", "ForceOff"))
    if not bmc.plant.take_fence(chassis_name(chassis), read_fence(call)):
        return FENCED
    if not bmc.plant.switch_chassis(chassis, wanted == "On", now=call.now):
        return error(409, "ActionNotSupported", "The chassis gets no power: its outlet is off.")
    return done()


class ChassisBmc(PlantBmc):
    """An enclosure full of nodes, which it can take the power from."""

    router: ClassVar[Router] = Router(services.TREE, events.TREE, _CHASSIS)
    services = (*COMMON_SERVICES, "Chassis")
    kind = "Enclosure"
    manager_type = "EnclosureManager"


def _located(place: str) -> Json:
    return {"PartLocationContext": place, **slot("Bay", place)}
