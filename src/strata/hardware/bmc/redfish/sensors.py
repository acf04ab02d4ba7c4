"""Sensors over Redfish, in the three shapes that there are: Sensors, the subsystems, and the old Thermal and Power.

Numbers come as numbers, as strings, as null and as nonsense; one that cannot be true is not passed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from strata.hardware.bmc.protocol import Reading, ReadingKind, Severity
from strata.hardware.bmc.redfish.client import Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import below, items, path_of, text
from strata.hardware.bmc.redfish.find import follow, home, maybe, members
from strata.hardware.bmc.redfish.pairing import Home
from strata.hardware.bmc.redfish.power import powered

KINDS: Mapping[str, ReadingKind] = {
    "Temperature": "temperature", "Rotational": "fan", "Power": "power", "EnergykWh": "energy",
    "EnergyJoules": "energy", "EnergyWh": "energy", "Voltage": "voltage", "Current": "current", "Humidity": "humidity",
    "AbsoluteHumidity": "other", "Frequency": "frequency", "Percent": "utilisation",
}  # fmt: skip

UNITS: Mapping[ReadingKind, str] = {
    "temperature": "Cel", "fan": "RPM", "power": "W", "energy": "kW.h", "voltage": "V", "current": "A",
    "humidity": "%", "frequency": "Hz", "utilisation": "%", "other": "",
}  # fmt: skip

BOUNDS: Mapping[ReadingKind, tuple[float, float]] = {
    "temperature": (-100, 300), "fan": (0, 200_000), "power": (0, 1e6), "energy": (0, 1e15), "voltage": (-1000, 1e5),
    "current": (-1e4, 1e4), "humidity": (0, 100), "frequency": (0, 1e12), "utilisation": (0, 1000),
    "other": (-1e15, 1e15),
}  # fmt: skip
"""What can be true, in the unit above; anything else is doubted."""

SEVERITIES: Mapping[object, Severity] = {"OK": "ok", "Warning": "warning", "Critical": "critical"}


WATTS = ("power", "energy")
"""What all nodes of a chassis draw together is not what one of them draws."""
SERVING = ("Chassis", "Enclosure", "Rack", "Room", "Fan", "PowerSupply", "Intake", "Exhaust", "Backplane")
"""Values of PhysicalContext: sensors of what a chassis has for all that is in it."""


async def read_sensors(client: RedfishClient, target: Target) -> Sequence[Reading]:
    """All sensors of what the address is about. Of a chassis that holds several nodes: those that say that they are of
    this one, and those of what serves all of them."""
    found: dict[tuple[str, str], Reading] = {}
    near = await home(client, target)
    if not near.own and not near.shared:  # an outlet or the like, which carries its own
        return list(_excerpt(await powered(client, target), *_METRICS))
    for path in (*near.own, *near.shared):
        for one, reading in await _chassis(client, target, await maybe(client, target, path)):
            if _ours(near, path, one, reading, follow(target)):
                found.setdefault((reading.kind, reading.name), reading)
    return list(found.values())


def _ours(near: Home, path: str, one: Json, reading: Reading, where: Callable[[object], str]) -> bool:
    relation = near.relation(one, where)
    if relation == "other" or path not in near.shared or relation == "own":
        return relation != "other"
    serves = reading.kind == "fan" or text(one.get("PhysicalContext")) in SERVING
    return reading.kind not in WATTS and (serves or relation == "common")


async def _chassis(client: RedfishClient, target: Target, body: Json) -> Sequence[tuple[Json, Reading]]:
    """The sensors of one chassis, each with the object that tells of it."""

    async def read(name: str) -> Json:
        return await maybe(client, target, path_of(target.bmc, body.get(name)))

    async def each(parent: Json, name: str) -> list[Json]:
        return await members(client, target, path_of(target.bmc, parent.get(name)))

    found = [(one, _sensor(one)) for one in await each(body, "Sensors") if "Reading" in one]
    if not found:
        found += [*_thermal(await read("Thermal")), *_power(await read("Power"))]
    if not found:
        for fan in await each(await read("ThermalSubsystem"), "Fans"):
            found.extend((fan, one) for one in _excerpt(fan, "SpeedPercent", "SpeedRPM"))
        for supply in await each(await read("PowerSubsystem"), "PowerSupplies"):
            metrics = await maybe(client, target, path_of(target.bmc, supply.get("Metrics")))
            told = {"Name": supply.get("Name"), "PhysicalContext": "PowerSupply"}
            found.extend((told, one) for one in _excerpt({**metrics, **told}, *_METRICS))
    if not any(one.kind == "power" for _, one in found):
        metrics = {"PhysicalContext": "Chassis", **await read("EnvironmentMetrics")}
        found.extend((metrics, one) for one in _excerpt(metrics, *_METRICS))
    return found


def number(value: object) -> float | None:
    """A number, also one that is written as text; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def reading(body: Json, value: object, kind: ReadingKind, *, name: str = "", unit: str = "") -> Reading:
    """A reading, believed only if it can be true."""
    status = below(body, "Status")
    found, doubt = number(value), ""
    low, high = BOUNDS[kind] if kind != "energy" or unit != "J" else (0, 1e18)
    if found is None:
        doubt = "absent" if value is None or status.get("State") == "Absent" else f"not a number: {str(value)[:40]!r}"
    elif not low <= found <= high:
        found, doubt = None, f"absurd: {found:g} {unit or UNITS[kind]}".strip()
    thresholds = below(body, "Thresholds")
    return Reading(
        name=name or text(body.get("Name")) or text(body.get("MemberId")) or text(body.get("Id")) or "unnamed",
        kind=kind,
        unit=unit or UNITS[kind],
        value=found,
        health=SEVERITIES.get(status.get("Health")) if isinstance(status.get("Health"), str) else None,
        high=number(below(thresholds, "UpperCritical").get("Reading") or body.get("UpperThresholdCritical")),
        low=number(below(thresholds, "LowerCritical").get("Reading") or body.get("LowerThresholdCritical")),
        doubt=doubt,
    )


def _sensor(body: Json) -> Reading:
    kind = KINDS.get(text(body.get("ReadingType")), "other")
    if kind == "utilisation" and "fan" in text(body.get("Name")).lower():
        kind = "fan"
    return reading(body, body.get("Reading"), kind, unit=text(body.get("ReadingUnits"), 20))


def _thermal(body: Json) -> Iterator[tuple[Json, Reading]]:
    for one in items(body, "Temperatures"):
        yield one, reading(one, one.get("ReadingCelsius"), "temperature")
    for one in items(body, "Fans"):
        unit = {"Percent": "%"}.get(text(one.get("ReadingUnits")), "RPM")
        name = text(one.get("Name")) or text(one.get("FanName"))
        yield one, reading(one, one.get("Reading"), "fan", name=name, unit=unit)


def _power(body: Json) -> Iterator[tuple[Json, Reading]]:
    for one in items(body, "PowerControl"):
        yield one, reading(one, one.get("PowerConsumedWatts"), "power", name=text(one.get("Name")) or "Power")
    for one in items(body, "Voltages"):
        yield one, reading(one, one.get("ReadingVolts"), "voltage")
    for one in items(body, "PowerSupplies"):
        told = one.get("PowerInputWatts", one.get("LastPowerOutputWatts"))
        yield one, reading(one, told, "power")


_METRICS: Mapping[str, tuple[ReadingKind, str]] = {
    "TemperatureCelsius": ("temperature", "Cel"), "HumidityPercent": ("humidity", "%"), "PowerWatts": ("power", "W"),
    "InputPowerWatts": ("power", "W"), "OutputPowerWatts": ("power", "W"), "EnergykWh": ("energy", "kW.h"),
    "InputVoltage": ("voltage", "V"), "InputCurrentAmps": ("current", "A"), "SpeedPercent": ("fan", "%"),
    "SpeedRPM": ("fan", "RPM"),
}  # fmt: skip
"""Properties that hold an excerpt of a sensor."""


def _excerpt(body: Json, *names: str) -> Iterator[Reading]:
    for name in names:
        if "Reading" in (part := below(body, name)):
            kind, unit = _METRICS[name]
            whose = text(body.get("Name"))
            yield reading(body, part["Reading"], kind, name=f"{whose} {name}".strip(), unit=unit)
