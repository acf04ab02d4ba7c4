"""What a node draws, as the resources of every kind of node tell it: part of theirs, none of its own."""

from __future__ import annotations

from typing import Protocol

from strata.virtual.redfish.body import OK, ROOT, Json

CHASSIS = f"{ROOT}/Chassis/1"
_SENSORS = f"{CHASSIS}/Sensors"


class Drawing(Protocol):
    """A BMC that knows what its node draws."""

    def watts(self, now: float) -> float:
        """Now."""

    def energy(self, now: float) -> float:
        """Kilowatt hours so far."""


def metrics(bmc: Drawing, now: float) -> Json:
    """As environment metrics have it."""
    return {
        "PowerWatts": {"Reading": bmc.watts(now), "DataSourceUri": f"{_SENSORS}/TotalPower"},
        "EnergykWh": {"Reading": bmc.energy(now), "DataSourceUri": f"{_SENSORS}/TotalEnergy"},
    }


def control(bmc: Drawing, now: float) -> Json:
    """As the older ``Power`` has it."""
    return {
        "@odata.id": f"{CHASSIS}/Power#/PowerControl/0",
        "MemberId": "0",
        "Name": "Node power",
        "PowerConsumedWatts": bmc.watts(now),
        "Status": OK,
    }
