"""What a node's enclosure measures: sensors, power and its cap, fans and power supplies. Read from its BMC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from strata.api.redfish.protocol import bodies
from strata.api.redfish.protocol.route import Call, Json, Reply, Routes, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.chassis import node_here
from strata.api.redfish.resources.forms import known, label, number, plain, present, status, when
from strata.api.redfish.resources.ids import CHASSIS
from strata.api.redfish.resources.needs import ACT, READ, READ_BMC
from strata.hardware.bmc.protocol import PowerLimit, Reading
from strata.hardware.bmc.records import NodeReadings
from strata.hardware.bmc.service import BmcService
from strata.hardware.inventory.records import ComponentView

_TYPES: Mapping[str, tuple[str, str]] = {
    "temperature": ("Temperature", "Cel"),
    "fan": ("Rotational", "{rev}/min"),
    "power": ("Power", "W"),
    "voltage": ("Voltage", "V"),
    "current": ("Current", "A"),
    "humidity": ("Humidity", "%"),
    "frequency": ("Frequency", "Hz"),
    "utilisation": ("Percent", "%"),
}
"""Redfish's word for a kind of reading, and its unit (in UCUM)."""
_ENERGY = {"j": ("EnergyJoules", "J"), "wh": ("EnergyWh", "W.h"), "kwh": ("EnergykWh", "kW.h")}
_USUAL = ("", "cel", "c", "celsius", "rpm", "{rev}/min", "w", "watts", "v", "volts", "a", "amps", "%", "percent", "hz")
"""How BMCs write those units."""
_WHOLE_NODE = ("total", "consum", "system", "node", "chassis", "input")
"""How BMCs call the reading of the whole node's power."""
_AIR = ("inlet", "ambient", "intake")
_HERE = f"{CHASSIS}/{{chassis}}"

ROUTES = Routes()


async def _readings(call: Call) -> dict[str, tuple[NodeReadings, Reading]]:
    """The sensors of an enclosure by id, each with the look that it is from."""
    said = await live.readings(call, (await node_here(call)).name)
    found = ids.named(said.readings, lambda reading: reading.name)
    return {ident: (said, reading) for ident, reading in found.items()}


@ROUTES.members(f"{_HERE}/Sensors/{{sensor}}", "Sensor", "Sensors", READ_BMC, _readings)
async def _sensor(call: Call, path: str, here: tuple[NodeReadings, Reading]) -> Json:
    said, reading = here
    kind, unit = _kind(reading)
    found = resource(
        path,
        "Sensor",
        plain(reading.name) or call.params["sensor"],
        ReadingType=kind,
        ReadingUnits=unit,
        Reading=reading.value,
        ReadingTime=when(said.time),
        Status=status("Enabled" if reading.value is not None else "UnavailableOffline", reading.health),
    )
    thresholds = known({"UpperCritical": _threshold(reading.high), "LowerCritical": _threshold(reading.low)})
    if thresholds:
        found["Thresholds"] = thresholds
    if reading.doubt:
        found["Description"] = plain(f"No reading: {reading.doubt}")
    return found


def _threshold(value: float | None) -> Json | None:
    return None if value is None else {"Reading": value}


def _kind(reading: Reading) -> tuple[str | None, str | None]:
    unit = reading.unit.strip().lower()
    if reading.kind == "fan" and ("%" in unit or "percent" in unit):
        return "Percent", "%"
    if reading.kind == "energy":
        return _ENERGY.get(unit.replace(".", ""), (None, plain(reading.unit, 32)))
    kind, usual = _TYPES.get(reading.kind, (None, None))
    return kind, usual if unit in _USUAL else plain(reading.unit, 32)


# -- power and its cap


@ROUTES.get(f"{_HERE}/EnvironmentMetrics", READ_BMC)
async def environment(call: Call) -> Json:
    """The node's power, its cap and its temperature at a glance."""
    found = {ident: reading for ident, (_, reading) in (await _readings(call)).items()}
    node = ids.node_of_enclosure(call.params["chassis"])
    path = ids.enclosure(node)
    result = resource(f"{path}/EnvironmentMetrics", "EnvironmentMetrics", "Environment")
    power = _pick(found, "power", _WHOLE_NODE)
    if power:
        result["PowerWatts"] = _excerpt(path, power, found[power])
    if inlet := _pick(found, "temperature", _AIR):
        result["TemperatureCelsius"] = _excerpt(path, inlet, found[inlet])
    if limit := next(iter(await live.limits(call, node)), None):
        result["PowerLimitWatts"] = _limit(limit, found[power].value if power else None)
    return result


def _pick(found: Mapping[str, Reading], kind: str, words: tuple[str, ...]) -> str:
    """The reading that stands for the whole: the only one, or the one that is called so. Empty: none does."""
    alike = [ident for ident, reading in found.items() if reading.kind == kind]
    if len(alike) == 1:
        return alike[0]
    return next((ident for word in words for ident in alike if word in ident.lower()), "")


def _excerpt(path: str, ident: str, reading: Reading) -> Json:
    return {"DataSourceUri": f"{path}/Sensors/{ident}", "Reading": reading.value}


def _limit(limit: PowerLimit, reading: float | None) -> Json:
    return {
        "SetPoint": limit.watts,
        "ControlMode": "Disabled" if limit.watts is None else "Automatic",
        **known({"AllowableMin": limit.least, "AllowableMax": limit.most, "Reading": reading}),
    }


@ROUTES.patch(f"{_HERE}/EnvironmentMetrics", ACT)
async def patch_environment(call: Call) -> Reply:
    """Cap the node's power; a null or disabled set point takes the cap off."""
    current = await environment(call)
    given = bodies.change(call, {"PowerLimitWatts": dict}, current)
    limit = bodies.part(given, "PowerLimitWatts", {"SetPoint": float, "ControlMode": str}, current)
    mode = bodies.one_of(limit.get("ControlMode") or "Automatic", ("Automatic", "Disabled"), "ControlMode")
    node = ids.node_of_enclosure(call.params["chassis"])
    if "SetPoint" not in limit and mode == "Automatic":
        raise bodies.missing("PowerLimitWatts/SetPoint")
    watts = None if mode == "Disabled" else limit["SetPoint"]
    outcome = await call.of(BmcService).set_limit(call.who, node, "", watts)
    live.kept(call).forget(("limits", node))
    return bodies.done(outcome)


# -- subsystems: parts that were discovered


def _parts(kind: str) -> Callable[[Call], Awaitable[dict[str, ComponentView]]]:
    async def find(call: Call) -> dict[str, ComponentView]:
        return ids.by_last_part(await live.components(call, (await node_here(call)).name, kind))

    return find


_supplies, _fans = _parts("power-supply"), _parts("fan")


@ROUTES.get(f"{_HERE}/PowerSubsystem", READ)
async def power_subsystem(call: Call) -> Json:
    ratings = [number(part, "capacity_watts") for part in (await _supplies(call)).values()]
    path = f"{CHASSIS}/{call.params['chassis']}/PowerSubsystem"
    return resource(
        path,
        "PowerSubsystem",
        "Power",
        CapacityWatts=sum(filter(None, ratings)) if ratings and None not in ratings else None,
        Status=status("Enabled"),
        PowerSupplies=link(f"{path}/PowerSupplies"),
    )


@ROUTES.members(f"{_HERE}/PowerSubsystem/PowerSupplies/{{supply}}", "PowerSupply", "Power supplies", READ, _supplies)
async def _supply(call: Call, path: str, part: ComponentView) -> Json:
    rating, firmware = number(part, "capacity_watts"), plain(part.firmware)
    name = label(part, path)
    return resource(path, "PowerSupply", name, PowerCapacityWatts=rating, FirmwareVersion=firmware, **present(part))


@ROUTES.get(f"{_HERE}/ThermalSubsystem", READ)
async def thermal_subsystem(call: Call) -> Json:
    await node_here(call)
    path = f"{CHASSIS}/{call.params['chassis']}/ThermalSubsystem"
    fans, metrics = link(f"{path}/Fans"), link(f"{path}/ThermalMetrics")
    return resource(path, "ThermalSubsystem", "Cooling", Status=status("Enabled"), Fans=fans, ThermalMetrics=metrics)


@ROUTES.get(f"{_HERE}/ThermalSubsystem/ThermalMetrics", READ_BMC)
async def thermal_metrics(call: Call) -> Json:
    """Every temperature of the node in one answer."""
    found, path = await _readings(call), f"{CHASSIS}/{call.params['chassis']}"
    readings = [
        {**_excerpt(path, ident, reading), "DeviceName": plain(reading.name)}
        for ident, (_, reading) in found.items()
        if reading.kind == "temperature"
    ]
    where = f"{path}/ThermalSubsystem/ThermalMetrics"
    return resource(where, "ThermalMetrics", "Temperatures", TemperatureReadingsCelsius=readings)


@ROUTES.members(f"{_HERE}/ThermalSubsystem/Fans/{{fan}}", "Fan", "Fans", READ, _fans)
async def _fan(call: Call, path: str, part: ComponentView) -> Json:
    return resource(path, "Fan", label(part, path), **present(part))
