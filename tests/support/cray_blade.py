"""The controller of a Cray EX blade behind a real socket: four nodes, an enclosure around them, one manager.

It behaves: what is changed stays changed, with bounds and ETags. Its shape is that of the node cards that the tests of
Cray's hardware state manager (github.com/Cray-HPE/hms-smd, pkg/redfish) and power control (Cray-HPE/
hms-power-control) describe: no links between systems and chassis, members in no order, a manager that calls itself an
EnclosureManager, caps as Controls of the first schema (SettingRangeMin) or, before those, in the Power of the chassis.

    async with CrayBlade() as blade:
        RedfishBmc(client, blade.node(1)) ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from support.odd_bmc import ROOT, Asked, OddBmc

LEAST, MOST = 350, 925
ORDER = ("Node1", "Node0", "Enclosure", "Node3", "Node2")
NODES = ("Node0", "Node1", "Node2", "Node3")
LOGS = f"{ROOT}/Managers/BMC/LogServices"


def link(*path: str) -> dict[str, str]:
    return {"@odata.id": "/".join((ROOT, *path))}


class CrayBlade(OddBmc):
    """``controls``: caps are Controls, else in PowerControl. ``names``: what the chassis of the nodes are called."""

    def __init__(self, *, controls: bool = True, names: Mapping[str, str] | None = None) -> None:
        self.chassis = dict(names or {}) or {name: name for name in NODES}
        self._tags: dict[str, int] = {}
        members = [self.chassis.get(name, name) for name in ORDER]
        tree: dict[str, dict[str, Any]] = {
            ROOT: {name: link(name) for name in ("Systems", "Chassis", "Managers", "UpdateService")},
            f"{ROOT}/Systems": {"Members": [link("Systems", name) for name in NODES]},
            f"{ROOT}/Chassis": {"Members": [link("Chassis", name) for name in members]},
            f"{ROOT}/Managers": {"Members": [link("Managers", "BMC")]},
            f"{ROOT}/Managers/BMC": {
                "@odata.type": "#Manager.v1_4_0.Manager", "Id": "BMC", "Name": "BMC", "ManagerType": "EnclosureManager",
                "Manufacturer": "HPE", "FirmwareVersion": "nc.1.9.9", "LogServices": {"@odata.id": LOGS},
                "NetworkProtocol": link("Managers", "BMC", "NetworkProtocol"),
                "Links": {"ManagerInChassis": link("Chassis", "Self")},
            },
            f"{ROOT}/Managers/BMC/NetworkProtocol": {"NTP": {"NTPServers": ["10.0.0.1"]}},
            LOGS: {"Members": [{"@odata.id": f"{LOGS}/event"}]},
            f"{LOGS}/event": {"Entries": {"@odata.id": f"{LOGS}/event/Entries"}},
            f"{LOGS}/event/Entries": {"Members": [{"Id": "1", "Message": "a node came up"}]},
            f"{ROOT}/Chassis/Enclosure": {
                "@odata.type": "#Chassis.v1_5_1.Chassis", "Id": "Enclosure", "ChassisType": "Enclosure",
                "SerialNumber": "HA18340007", "Manufacturer": "HPE", "LocationIndicatorActive": False,
                "Controls": link("Chassis", "Enclosure", "Controls"), "Power": link("Chassis", "Enclosure", "Power"),
                "Links": {"ComputerSystems@odata.count": 0},
            },
            f"{ROOT}/Chassis/Enclosure/Controls": {"Members": [link("Chassis", "Enclosure", "Controls", "PowerLimit")]},
            f"{ROOT}/Chassis/Enclosure/Controls/PowerLimit": _control("Enclosure Power Limit"),
            f"{ROOT}/Chassis/Enclosure/Power": {
                "PowerControl": [{"Name": "Enclosure Power Control", "PowerConsumedWatts": 1700}]
            },
        }  # fmt: skip
        for place, name in enumerate(NODES):
            tree |= _node(place, name, self.chassis[name], controls)
        super().__init__(tree)
        self.resources: dict[str, Any] = {path: {"@odata.id": path, **body} for path, body in tree.items()}

    def node(self, place: int) -> str:
        """The address of a node."""
        return f"{self.address}{ROOT}/Systems/Node{place}"

    def cap(self, place: int) -> float | None:
        """The cap that is set of a node; None: there is none."""
        base = f"{ROOT}/Chassis/{self.chassis[f'Node{place}']}"
        control = self.resources.get(f"{base}/Controls/NodePowerLimit")
        if control:
            return None if control["ControlMode"] == "Disabled" else control["SetPoint"]
        return self.resources[f"{base}/Power"]["PowerControl"][0]["PowerLimit"]["LimitInWatts"]

    @property
    def changed(self) -> set[str]:
        """What was changed, or tried to."""
        return {one.path for one in self.asked if one.method == "PATCH"}

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        if path not in self.resources or (request.method, path) in self.answers:
            return await super()._answer(request)
        self.asked.append(Asked(request.method, path, request.headers, await request.read(), request.query_string))
        tag = f'W/"{self._tags.get(path, 0)}"'
        if request.method == "GET":
            return web.json_response(self.resources[path], headers={"ETag": tag})
        if request.method != "PATCH":
            return web.Response(status=405)
        if request.headers.get("If-Match", tag) != tag:
            return web.Response(status=412)
        body = await request.json()
        watts = _watts(body)
        if watts is not None and not LEAST <= watts <= MOST:
            return web.json_response({"error": {"message": f"{watts} is out of range"}}, status=400)
        self.resources[path] = _merged(self.resources[path], body)
        self._tags[path] = self._tags.get(path, 0) + 1
        return web.Response(status=204)


def _node(place: int, name: str, chassis: str, controls: bool) -> dict[str, dict[str, Any]]:
    base, system = f"{ROOT}/Chassis/{chassis}", f"{ROOT}/Systems/{name}"
    nic = f"{base}/NetworkAdapters/HPCNet0"
    body: dict[str, Any] = {
        "@odata.type": "#Chassis.v1_5_1.Chassis", "Id": chassis, "Name": chassis, "ChassisType": "Blade",
        "LocationIndicatorActive": False, "Power": link("Chassis", chassis, "Power"),
        "Sensors": link("Chassis", chassis, "Sensors"), "NetworkAdapters": link("Chassis", chassis, "NetworkAdapters"),
        "Links": {"ComputerSystems@odata.count": 0, "ManagedBy@odata.count": 0},
    }  # fmt: skip
    power = {"Name": "Node Power Control", "PowerConsumedWatts": 400 + place, "PowerCapacityWatts": 900}
    accelerator: dict[str, Any] = {"Name": "Accelerator0 Power Control"}
    bounds = {"Cray": {"PowerLimit": {"Min": LEAST, "Max": MOST}}}
    found: dict[str, dict[str, Any]] = {
        system: {
            "@odata.type": "#ComputerSystem.v1_5_0.ComputerSystem", "Id": name, "Manufacturer": "HPE",
            "SystemType": "Physical", "SerialNumber": f"N{place}00", "PowerState": "On", "Links": {},
        },
        f"{base}/Sensors": {"Members": [link("Chassis", chassis, "Sensors", "Temp")]},
        f"{base}/Sensors/Temp": {"Name": "CPU Temp", "ReadingType": "Temperature", "Reading": 50 + place},
        f"{base}/NetworkAdapters": {"Members": [{"@odata.id": nic}]},
        nic: {
            "@odata.type": "#NetworkAdapter.v1_0_1.NetworkAdapter", "Id": "HPCNet0", "SerialNumber": f"HG{place}00",
        },
    }  # fmt: skip
    if controls:
        body["Controls"] = link("Chassis", chassis, "Controls")
        # Members come in no order: the node's is not the first.
        names = ("Accelerator0PowerLimit", "NodePowerLimit")
        found[f"{base}/Controls"] = {"Members": [link("Chassis", chassis, "Controls", one) for one in names]}
        found[f"{base}/Controls/NodePowerLimit"] = _control("Node Power Limit")
        found[f"{base}/Controls/Accelerator0PowerLimit"] = _control("Accelerator0 Power Limit")
    else:
        accelerators = [{"@odata.id": f"{base}/Power#/PowerControl/Accelerator0"}]
        power |= {"PowerLimit": {"LimitInWatts": None}, "Oem": bounds, "RelatedItem": accelerators}
        accelerator |= {"PowerLimit": {"LimitInWatts": None}, "Oem": bounds}
    return found | {base: body, f"{base}/Power": {"PowerControl": [power, accelerator]}}


def _control(name: str) -> dict[str, Any]:
    return {
        "@odata.type": "#Control.v1_0_0.Control", "Id": name.replace(" ", ""), "Name": name, "ControlType": "Power",
        "ControlMode": "Disabled", "SetPoint": 0, "SettingRangeMin": LEAST, "SettingRangeMax": MOST,
        "PhysicalContext": "Chassis",
    }  # fmt: skip


def _watts(body: Mapping[str, Any]) -> float | None:
    listed = [one.get("PowerLimit", {}).get("LimitInWatts") for one in body.get("PowerControl", ())]
    return next((watts for watts in (body.get("SetPoint"), *listed) if watts is not None), None)


def _merged(old: Any, new: Any) -> Any:
    """A change as Redfish has it: objects by name, entries of lists by place."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: _merged(old.get(name), value) for name, value in new.items()}
    if isinstance(old, list) and isinstance(new, list):
        return [_merged(one, new[place]) if place < len(new) and new[place] else one for place, one in enumerate(old)]
    return new
