"""Sensors over Redfish, in the three shapes that there are: Sensors, the subsystems, and the old Thermal and Power;
and how fans and power supplies are, whether or not anything is measured of them.

Numbers come as numbers, as strings, as null and as nonsense; one that cannot be true is not passed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from strata.hardware.bmc.protocol import EMPTY, STATE, Reading, ReadingKind, Severity
from strata.hardware.bmc.readings import Marked, distinct
from strata.hardware.bmc.redfish.client import Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import below, items, path_of, text
from strata.hardware.bmc.redfish.find import follow, home, maybe, members
from strata.hardware.bmc.redfish.pairing import Home, name_of
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


PARTS: Mapping[str, tuple[str, str, ReadingKind]] = {
    "Fans": ("ThermalSubsystem", "Thermal", "fan"),
    "PowerSupplies": ("PowerSubsystem", "Power", "power"),
}
"""Parts that are looked after even where no sensor measures them: where they are, in newer and in older services."""


class _Told(NamedTuple):
    """A reading, and the object that tells of it."""

    by: Json
    reading: Reading
    of: str = ""
    """One of ``PARTS``: it tells of such a part itself."""


async def read_sensors(client: RedfishClient, target: Target) -> Sequence[Reading]:
    """All sensors of what the address is about, each under a name of its own. Of a chassis that holds several nodes:
    those that say that they are of this one, and those of what serves all of them."""
    found: list[Marked] = []
    listed: set[tuple[str, str]] = set()
    near = await home(client, target)
    if not near.own and not near.shared:  # an outlet or the like, which carries its own
        return list(_excerpt(await powered(client, target), *_METRICS))
    for path in (*near.own, *near.shared):
        here = []
        for told in await _chassis(client, target, await maybe(client, target, path)):
            shown = _ours(near, path, told, follow(target))
            mark = (text(told.by.get("@odata.id"), 512), told.reading.name)
            if shown is None or (mark[0] and mark in listed):
                continue
            here.append(mark)
            ident, chassis = text(told.by.get("MemberId")) or text(told.by.get("Id")), name_of(path)
            found.append(Marked(shown, (chassis, ident, f"{chassis} {ident}")))
        listed.update(here)  # one chassis may list what another has; within one, all are their own
    return distinct(found)


def _ours(near: Home, path: str, told: _Told, where: Callable[[object], str]) -> Reading | None:
    """What of a reading concerns the node: of the supply of a whole chassis how it is, not what it gives to all."""
    by, reading = told.by, told.reading
    relation = near.relation(by, where)
    if relation == "other":
        return None
    if path not in near.shared or relation == "own":
        return reading
    if reading.kind in WATTS:
        return _as_state(reading) if told.of else None
    serves = reading.kind == "fan" or text(by.get("PhysicalContext")) in SERVING
    return reading if serves or relation == "common" else None


async def _chassis(client: RedfishClient, target: Target, body: Json) -> Sequence[_Told]:
    """The sensors of one chassis, and how its fans and supplies are."""

    async def read(name: str) -> Json:
        return await maybe(client, target, path_of(target.bmc, body.get(name)))

    async def each(parent: Json, name: str) -> list[Json]:
        return await members(client, target, path_of(target.bmc, parent.get(name)))

    found = [_Told(one, _sensor(one)) for one in await each(body, "Sensors") if "Reading" in one]
    sensed = bool(found)
    if not sensed:
        found += [*_thermal(await read("Thermal")), *_power(await read("Power"))]
    for name, (newer, older, kind) in PARTS.items():
        if any(one.of == name for one in found):
            continue
        parts = await each(await read(newer), name)
        if not parts and sensed:
            parts = items(await read(older), name)
        for part in parts:
            if (state := _as_state(reading(part, None, kind))) is not None:
                found.append(_Told(part, state, name))
            if not sensed and (state is None or state.doubt != EMPTY):
                found += await _measured(client, target, part, name)
    if not any(one.reading.kind == "power" and one.reading.doubt not in (EMPTY, STATE) for one in found):
        metrics = {"PhysicalContext": "Chassis", **await read("EnvironmentMetrics")}
        found.extend(_Told(metrics, one) for one in _excerpt(metrics, *_METRICS))
    return found


async def _measured(client: RedfishClient, target: Target, part: Json, of: str) -> Sequence[_Told]:
    """What is measured of a fan or a supply where there are no sensors. How the part itself is, is told once."""
    body = {**part, "Status": None}
    if of == "Fans":
        return [_Told(part, one) for one in _excerpt(body, "SpeedPercent", "SpeedRPM")]
    metrics = await maybe(client, target, path_of(target.bmc, part.get("Metrics")))
    told = {"PhysicalContext": "PowerSupply", "Id": part.get("Id"), "@odata.id": part.get("@odata.id")}
    named = {**metrics, "Name": part.get("Name"), "Status": None}
    return [_Told(told, one) for one in _excerpt(named, *_METRICS)]


def _as_state(told: Reading) -> Reading | None:
    """How a part is, without any value; None where nobody says."""
    if told.doubt == EMPTY:
        return told
    return replace(told, value=None, doubt=STATE) if told.health is not None else None


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
    empty = status.get("State") == "Absent"
    if empty:
        found, doubt = None, EMPTY
    elif found is None:
        doubt = "absent" if value is None else f"not a number: {str(value)[:40]!r}"
    elif not low <= found <= high:
        found, doubt = None, f"absurd: {found:g} {unit or UNITS[kind]}".strip()
    thresholds = below(body, "Thresholds")
    return Reading(
        name=name or text(body.get("Name")) or text(body.get("MemberId")) or text(body.get("Id")) or "unnamed",
        kind=kind,
        unit=unit or UNITS[kind],
        value=found,
        # Some call an empty bay a warning.
        health=SEVERITIES.get(status.get("Health")) if isinstance(status.get("Health"), str) and not empty else None,
        high=number(below(thresholds, "UpperCritical").get("Reading") or body.get("UpperThresholdCritical")),
        low=number(below(thresholds, "LowerCritical").get("Reading") or body.get("LowerThresholdCritical")),
        doubt=doubt,
    )


def _sensor(body: Json) -> Reading:
    kind = KINDS.get(text(body.get("ReadingType")), "other")
    if kind == "utilisation" and "fan" in text(body.get("Name")).lower():
        kind = "fan"
    return reading(body, body.get("Reading"), kind, unit=text(body.get("ReadingUnits"), 20))


def _thermal(body: Json) -> Iterator[_Told]:
    for one in items(body, "Temperatures"):
        yield _Told(one, reading(one, one.get("ReadingCelsius"), "temperature"))
    for one in items(body, "Fans"):
        unit = {"Percent": "%"}.get(text(one.get("ReadingUnits")), "RPM")
        name = text(one.get("Name")) or text(one.get("FanName"))
        yield _Told(one, reading(one, one.get("Reading"), "fan", name=name, unit=unit), "Fans")


def _power(body: Json) -> Iterator[_Told]:
    for one in items(body, "PowerControl"):
        yield _Told(one, reading(one, one.get("PowerConsumedWatts"), "power", name=text(one.get("Name")) or "Power"))
    for one in items(body, "Voltages"):
        yield _Told(one, reading(one, one.get("ReadingVolts"), "voltage"))
    for one in items(body, "PowerSupplies"):
        told = one.get("PowerInputWatts", one.get("LastPowerOutputWatts"))
        yield _Told(one, reading(one, told, "power"), "PowerSupplies")


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
