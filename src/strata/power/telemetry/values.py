"""From what a BMC tells to what is kept: which sensor is the node's power, in which unit, what adds up.

Pure. Keys of ``Values`` are metrics of ``series`` and, of caps, the names in ``BOUNDS``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from strata.hardware.bmc.caps import of_accelerator, of_part
from strata.hardware.bmc.protocol import Reading
from strata.hardware.bmc.redfish.endpoint import Json, below, items, text
from strata.hardware.bmc.redfish.limits import OFF_MODES, bounds
from strata.hardware.bmc.redfish.sensors import number

Values = dict[str, float]

BOUNDS = {
    "supply": "supply",
    "least": "least",
    "most": "most",
    "accel-cap": "accel_cap",
    "accel-least": "accel_least",
    "accel-most": "accel_most",
}
"""What is seen of caps beside the metric ``cap`` → its column in ``PowerColumns``."""

JOULES = {"j": 1.0, "w.h": 3600.0, "wh": 3600.0, "kw.h": 3.6e6, "kwh": 3.6e6, "ws": 1.0, "w.s": 1.0}
_KINDS = {
    "Temperature": "temperature", "Power": "power", "EnergykWh": "energy", "EnergyJoules": "energy",
    "EnergyWh": "energy",
}  # fmt: skip
_UNITS = {"EnergykWh": "kw.h", "EnergyWh": "w.h"}
_WHOLE = re.compile(r"total|node|system|chassis|consum|pwr|input power$|^power$", re.IGNORECASE)
_ACCELERATOR = re.compile(r"gpu|accel", re.IGNORECASE)
_SUPPLY = re.compile(r"\bpsu?_?[0-9]|psu|supply", re.IGNORECASE)
_PART = re.compile(r"cpu|dimm|memory|mem\b|fan|drive|nic|riser|socket|vr\b", re.IGNORECASE)
_WHOLE_PLACES = ("Chassis", "System", "SystemBoard", "ComputeBay", "")
_ACCELERATORS = ("GPU", "GPUSubsystem", "Accelerator", "ASIC")


class Seen(NamedTuple):
    """One sensor: what it measures, its name, where it is (a PhysicalContext, empty: it does not say)."""

    kind: str
    name: str
    place: str
    value: float
    unit: str = ""


def settled(sensors: Iterable[Seen]) -> Values:
    """The metrics of a node, out of all of its sensors."""
    found: dict[str, list[Seen]] = {"power": [], "energy": [], "temperature": []}
    for one in sensors:
        if one.kind in found:
            found[one.kind].append(one)
    values: Values = {}
    whole, accelerators = _apart(found["power"])
    _put(values, "power", whole)
    if accelerators:
        values["accel-power"] = sum(one.value for one in accelerators)
    counters, _ = _apart(found["energy"])
    _put(values, "energy", [one._replace(value=one.value * joules(one.unit)) for one in counters])
    if found["temperature"]:
        values["temperature"] = max(one.value for one in found["temperature"])
    return values


def _put(values: Values, name: str, sensors: Sequence[Seen]) -> None:
    if sensors:
        values[name] = sum(one.value for one in sensors)


def _apart(sensors: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
    """The sensors whose sum is the whole node (one, or its supplies), and those of accelerators."""
    accelerators = [one for one in sensors if one.place in _ACCELERATORS or _ACCELERATOR.search(one.name)]
    rest = [one for one in sensors if one not in accelerators]
    supplies = [one for one in rest if one.place == "PowerSupply" or _SUPPLY.search(one.name)]
    others = [one for one in rest if one not in supplies and not _PART.search(one.name)]
    named = [one for one in others if one.place in _WHOLE_PLACES and _WHOLE.search(one.name)]
    whole = named[:1] or [one for one in others if one.place in _WHOLE_PLACES][:1]
    # What goes into the supplies is the node's; what comes out of them is less, and would count twice.
    inputs = [one for one in supplies if "out" not in one.name.lower()]
    return whole or inputs or supplies, accelerators


def joules(unit: str) -> float:
    """How many joules an energy counter counts in; those that do not say count kilowatt hours, as Redfish wants."""
    return JOULES.get(unit.strip().lower(), 3.6e6)


# -- shapes of Redfish


def from_sensors(bodies: Iterable[Json]) -> Values:
    """Resources of type Sensor."""
    return settled(_sensors(bodies))


def _sensors(bodies: Iterable[Json]) -> Iterator[Seen]:
    for body in bodies:
        value, kind = number(body.get("Reading")), _KINDS.get(text(body.get("ReadingType")))
        if value is not None and kind:
            yield Seen(kind, text(body.get("Name")), text(body.get("PhysicalContext")), value, sensor_unit(body))


def sensor_unit(body: Json) -> str:
    """The unit of a Sensor, from its type where it does not say."""
    return text(body.get("ReadingUnits"), 20) or _UNITS.get(text(body.get("ReadingType")), "")


def from_environment(body: Json, *, accelerator: bool = False) -> Values:
    """EnvironmentMetrics. Its temperature is the air's or the chip's, not the hottest: it is told apart as ``air``."""
    before = "accel-" if accelerator else ""
    found: Values = {}
    _take(found, f"{before}power", below(body, "PowerWatts").get("Reading"))
    if not accelerator:
        for name, unit in (("EnergyJoules", "j"), ("EnergykWh", "kw.h")):
            value = number(below(body, name).get("Reading"))
            if value is not None:
                found.setdefault("energy", value * joules(unit))
        _take(found, "air", below(body, "TemperatureCelsius").get("Reading"))
    return found | cap_of(below(body, "PowerLimitWatts"), before)


def cap_of(limit: Json, before: str = "") -> Values:
    """A cap: a Control, or its excerpt. One that is switched off is 0: known to be none."""
    if not limit:
        return {}
    found: Values = {}
    off = limit.get("ControlMode") in OFF_MODES or ("SetPoint" in limit and limit["SetPoint"] is None)
    _take(found, f"{before}cap", 0.0 if off else limit.get("SetPoint"))
    least, most = bounds(limit)
    _take(found, f"{before}least", least)
    _take(found, f"{before}most", most)
    return found


def from_power(body: Json, ours: Callable[[Json], bool] = lambda _: True) -> Values:
    """The old Power resource: the first entry that is ``ours`` and no part is the node, those that are called so are
    accelerators."""
    found: Values = {}
    for control in items(body, "PowerControl"):
        name = text(control.get("Name"))
        accelerator = of_accelerator("", name)
        if not ours(control) or (of_part("", name) and not accelerator):
            continue
        before = "accel-" if accelerator else ""
        value = number(control.get("PowerConsumedWatts"))
        if value is not None:
            if accelerator:
                found["accel-power"] = found.get("accel-power", 0.0) + value
            else:
                found.setdefault("power", value)
        if "PowerLimit" in control and f"{before}cap" not in found:
            limit = below(control, "PowerLimit").get("LimitInWatts")
            _take(found, f"{before}cap", 0.0 if limit is None else limit)
            cray = below(control, "Oem", "Cray", "PowerLimit")
            _take(found, f"{before}least", cray.get("Min"))
            _take(found, f"{before}most", cray.get("Max"))
    return found


def from_thermal(body: Json, ours: Callable[[Json], bool] = lambda _: True) -> Values:
    """The old Thermal resource."""
    told = [number(one.get("ReadingCelsius")) for one in items(body, "Temperatures") if ours(one)]
    known = [value for value in told if value is not None]
    return {"temperature": max(known)} if known else {}


def from_report(body: Json, sensors: Mapping[str, Json], own: Sequence[str]) -> Values:
    """A MetricReport. It tells only which property of which resource a value is: ``sensors`` are those of the node, by
    path, and ``own`` what the paths of all that is the node's begin with."""
    seen: dict[str, tuple[str, Seen]] = {}
    for one in items(body, "MetricValues"):
        value, of = number(one.get("MetricValue")), text(one.get("MetricProperty"), 1000)
        path, _, pointer = of.partition("#")
        made = text(one.get("Timestamp"), 64)
        if value is None or not path.startswith(tuple(own)) or made < seen.get(of, ("",))[0]:
            continue
        sensor = sensors.get(path.rstrip("/"))
        if sensor is not None and pointer in ("/Reading", "Reading"):
            kind = _KINDS.get(text(sensor.get("ReadingType")))
            if kind:
                name, place = text(sensor.get("Name")), text(sensor.get("PhysicalContext"))
                seen[of] = made, Seen(kind, name, place, value, sensor_unit(sensor))
        elif pointer.endswith(("PowerWatts/Reading", "PowerWatts", "PowerConsumedWatts")) and "Supplies" not in of:
            seen[of] = made, Seen("power", "accelerator" if "/Processors/" in path else "total", "", value)
        elif pointer.endswith(("EnergykWh/Reading", "EnergykWh")):
            seen[of] = made, Seen("energy", "accelerator" if "/Processors/" in path else "total", "", value, "kw.h")
    return settled(one for _, one in seen.values())


def from_readings(readings: Iterable[Reading]) -> Values:
    """What a BMC of another protocol tells."""
    return settled(Seen(one.kind, one.name, "", one.value, one.unit) for one in readings if one.value is not None)


def read_at(bodies: Iterable[Json]) -> float | None:
    """When a BMC read the energy counter that is in these resources, by its own clock: of a Sensor its reading's time,
    of a MetricReport the value's. None: it does not say."""
    told: list[str] = []
    for body in bodies:
        if text(body.get("ReadingType")).startswith("Energy"):
            told.append(text(body.get("ReadingTime"), 64))
        for one in items(body, "MetricValues"):
            if "Energy" in text(one.get("MetricProperty"), 1000):
                told.append(text(one.get("Timestamp"), 64) or text(body.get("Timestamp"), 64))
    found = [when for one in told if (when := _moment(one)) is not None]
    return max(found, default=None)


def _moment(written: str) -> float | None:
    try:
        when = dt.datetime.fromisoformat(written)
    except ValueError:
        return None
    return when.timestamp() if when.tzinfo is not None else None


def _take(found: Values, name: str, value: object) -> None:
    told = number(value)
    if told is not None:
        found[name] = told
