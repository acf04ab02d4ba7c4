"""The sensors of a simulated server, as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc


class Sensor(NamedTuple):
    """One sensor. ``high`` and ``low`` are its critical thresholds."""

    id: str
    name: str
    kind: str
    units: str
    context: str
    reading: Callable[[NodeBmc, float], float]
    high: float | None = None
    low: float | None = None
    most: float = 1000.0
    """The highest that it can show."""


def _heat(base: float, per_watt: float) -> Callable[[NodeBmc, float], float]:
    return lambda bmc, now: round(base + per_watt * bmc.watts(now), 1)


def _fan(share: float) -> Callable[[NodeBmc, float], float]:
    return lambda bmc, now: float(round(share * (2000 + 12 * bmc.watts(now))) if bmc.power(now) != "Off" else 0)


def _supply(share: float) -> Callable[[NodeBmc, float], float]:
    return lambda bmc, now: round(share * bmc.watts(now), 1)


SENSORS = {
    sensor.id: sensor
    for sensor in (
        Sensor("IntakeTemp", "Intake Temp", "Temperature", "Cel", "Intake", lambda *_: 22.0, 45.0, -5.0, 125.0),
        Sensor("ExhaustTemp", "Exhaust Temp", "Temperature", "Cel", "Exhaust", _heat(24.0, 0.025), 75.0, None, 125.0),
        Sensor("CPU1Temp", "CPU1 Temp", "Temperature", "Cel", "CPU", _heat(30.0, 0.05), 95.0, None, 125.0),
        Sensor("CPU2Temp", "CPU2 Temp", "Temperature", "Cel", "CPU", _heat(31.0, 0.05), 95.0, None, 125.0),
        Sensor("Fan1", "Fan 1", "Rotational", "{rev}/min", "Fan", _fan(1.0), None, -1.0, 20000.0),
        Sensor("Fan2", "Fan 2", "Rotational", "{rev}/min", "Fan", _fan(1.02), None, -1.0, 20000.0),
        Sensor(
            "TotalPower", "Total Power", "Power", "W", "Chassis", lambda bmc, now: bmc.watts(now), 2400.0, None, 3000.0
        ),
        Sensor(
            "TotalEnergy", "Total Energy", "EnergykWh", "kW.h", "Chassis", lambda b, now: b.energy(now), None, None, 1e9
        ),
        Sensor("PS1Input", "PS1 Input Power", "Power", "W", "PowerSupply", _supply(0.5), 2400.0, None, 3000.0),
        Sensor("PS2Input", "PS2 Input Power", "Power", "W", "PowerSupply", _supply(0.5), 2400.0, None, 3000.0),
        Sensor("PS1Voltage", "PS1 Voltage", "Voltage", "V", "PowerSupply", lambda *_: 230.0, 264.0, 180.0, 300.0),
        Sensor("PS2Voltage", "PS2 Voltage", "Voltage", "V", "PowerSupply", lambda *_: 230.0, 264.0, 180.0, 300.0),
    )
}
