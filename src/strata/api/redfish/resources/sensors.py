"""What a node's enclosure measures: sensors, power and its cap, fans and power supplies. Read from its controller."""

from __future__ import annotations

from collections.abc import Mapping

from strata.api.redfish.protocol import bodies
from strata.api.redfish.protocol.route import Call, Json, Reply, Route, collection, link
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.chassis import node_here
from strata.api.redfish.resources.forms import known, label, maker, number, plain, present, resource, slot, status, when
from strata.api.redfish.resources.ids import CHASSIS
from strata.api.redfish.resources.needs import ACT, READ, READ_BMC
from strata.core.errors import NotFound
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
"""How controllers write those units."""
_WHOLE_NODE = ("total", "consum", "system", "node", "chassis", "input")
"""How controllers call the reading of the whole node's power."""
_AIR = ("inlet", "ambient", "intake")


async def _readings(call: Call) -> tuple[str, NodeReadings, dict[str, Reading]]:
    """The enclosure's path, and its sensors by id."""
    view = await node_here(call)
    said = await live.readings(call, view.name)
    return ids.enclosure(view.name), said, ids.named(said.readings, lambda reading: reading.name)


async def sensors(call: Call) -> Json:
    """All sensors of a node."""
    path, _, found = await _readings(call)
    return collection(f"{path}/Sensors", "Sensor", "Sensors", [f"{path}/Sensors/{ident}" for ident in found])


async def sensor(call: Call) -> Json:
    """One of them, as it was read a moment ago."""
    path, said, found = await _readings(call)
    ident = call.params["sensor"]
    if ident not in found:
        raise NotFound("no such sensor", where=ident[:80])
    reading = found[ident]
    kind, unit = _kind(reading)
    resulting = resource(
        f"{path}/Sensors/{ident}",
        "Sensor.v1_12_0",
        ident,
        plain(reading.name) or ident,
        ReadingType=kind,
        ReadingUnits=unit,
        Reading=reading.value,
        ReadingTime=when(said.time),
        Status=status("Enabled" if reading.value is not None else "UnavailableOffline", reading.health),
    )
    thresholds = known({"UpperCritical": _threshold(reading.high), "LowerCritical": _threshold(reading.low)})
    if thresholds:
        resulting["Thresholds"] = thresholds
    if reading.doubt:
        resulting["Description"] = plain(f"No reading: {reading.doubt}")
    return resulting


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


async def environment(call: Call) -> Json:
    """The node's power, its cap and its temperature at a glance."""
    path, _, found = await _readings(call)
    node = ids.node_of_enclosure(call.params["chassis"])
    result = resource(f"{path}/EnvironmentMetrics", "EnvironmentMetrics.v1_5_0", "EnvironmentMetrics", "Environment")
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


async def _parts(call: Call, kind: str) -> tuple[str, dict[str, ComponentView]]:
    view = await node_here(call)
    hardware = await live.hardware(call, view.name)
    found = [part for part in (hardware.components if hardware is not None else ()) if part.kind == kind]
    return ids.enclosure(view.name), ids.named(found, lambda part: ids.last_part(part.id))


async def power_subsystem(call: Call) -> Json:
    """What gives the node its power."""
    path, found = await _parts(call, "power-supply")
    ratings = [number(part, "capacity_watts") for part in found.values()]
    return resource(
        f"{path}/PowerSubsystem",
        "PowerSubsystem.v1_1_3",
        "PowerSubsystem",
        "Power",
        CapacityWatts=sum(filter(None, ratings)) if ratings and None not in ratings else None,
        Status=status("Enabled"),
        PowerSupplies=link(f"{path}/PowerSubsystem/PowerSupplies"),
    )


async def power_supplies(call: Call) -> Json:
    """The power supplies."""
    path, found = await _parts(call, "power-supply")
    path += "/PowerSubsystem/PowerSupplies"
    return collection(path, "PowerSupply", "Power supplies", [f"{path}/{ident}" for ident in found])


async def power_supply(call: Call) -> Json:
    """One of them."""
    path, found = await _parts(call, "power-supply")
    ident, part = _one(found, call.params["supply"])
    return resource(
        f"{path}/PowerSubsystem/PowerSupplies/{ident}",
        "PowerSupply.v1_6_0",
        ident,
        label(part, ident),
        PowerCapacityWatts=number(part, "capacity_watts"),
        FirmwareVersion=plain(part.firmware),
        Status=present(part),
        **maker(part),
        **slot(part),
    )


async def thermal_subsystem(call: Call) -> Json:
    """What cools the node."""
    path, _ = await _parts(call, "fan")
    return resource(
        f"{path}/ThermalSubsystem",
        "ThermalSubsystem.v1_5_0",
        "ThermalSubsystem",
        "Cooling",
        Status=status("Enabled"),
        Fans=link(f"{path}/ThermalSubsystem/Fans"),
        ThermalMetrics=link(f"{path}/ThermalSubsystem/ThermalMetrics"),
    )


async def thermal_metrics(call: Call) -> Json:
    """Every temperature of the node in one answer."""
    path, _, found = await _readings(call)
    return resource(
        f"{path}/ThermalSubsystem/ThermalMetrics",
        "ThermalMetrics.v1_3_2",
        "ThermalMetrics",
        "Temperatures",
        TemperatureReadingsCelsius=[
            {**_excerpt(path, ident, reading), "DeviceName": plain(reading.name)}
            for ident, reading in found.items()
            if reading.kind == "temperature"
        ],
    )


async def fans(call: Call) -> Json:
    """The fans."""
    path, found = await _parts(call, "fan")
    path += "/ThermalSubsystem/Fans"
    return collection(path, "Fan", "Fans", [f"{path}/{ident}" for ident in found])


async def fan(call: Call) -> Json:
    """One of them."""
    path, found = await _parts(call, "fan")
    ident, part = _one(found, call.params["fan"])
    return resource(
        f"{path}/ThermalSubsystem/Fans/{ident}",
        "Fan.v1_6_0",
        ident,
        label(part, ident),
        Status=present(part),
        **maker(part),
        **slot(part),
    )


def _one(found: Mapping[str, ComponentView], ident: str) -> tuple[str, ComponentView]:
    if ident not in found:
        raise NotFound("no such part", where=ident[:80])
    return ident, found[ident]


_HERE = f"{CHASSIS}/{{chassis}}"

ROUTES = (
    Route(template=f"{_HERE}/Sensors", get=sensors, rights={"GET": READ_BMC}),
    Route(template=f"{_HERE}/Sensors/{{sensor}}", get=sensor, rights={"GET": READ_BMC}),
    Route(
        template=f"{_HERE}/EnvironmentMetrics",
        get=environment,
        patch=patch_environment,
        rights={"GET": READ_BMC, "PATCH": ACT},
    ),
    Route(template=f"{_HERE}/PowerSubsystem", get=power_subsystem, rights={"GET": READ}),
    Route(template=f"{_HERE}/PowerSubsystem/PowerSupplies", get=power_supplies, rights={"GET": READ}),
    Route(template=f"{_HERE}/PowerSubsystem/PowerSupplies/{{supply}}", get=power_supply, rights={"GET": READ}),
    Route(template=f"{_HERE}/ThermalSubsystem", get=thermal_subsystem, rights={"GET": READ}),
    Route(template=f"{_HERE}/ThermalSubsystem/ThermalMetrics", get=thermal_metrics, rights={"GET": READ_BMC}),
    Route(template=f"{_HERE}/ThermalSubsystem/Fans", get=fans, rights={"GET": READ}),
    Route(template=f"{_HERE}/ThermalSubsystem/Fans/{{fan}}", get=fan, rights={"GET": READ}),
)
