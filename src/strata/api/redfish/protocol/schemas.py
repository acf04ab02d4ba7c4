"""The schemas of the standard that resources follow, each in its version, and the resources made of them."""

from __future__ import annotations

from typing import Any

from strata.api.redfish.protocol.route import Json

_SCHEMAS = """
    AccountService.v1_15_1 Aggregate.v1_0_3 AggregationService.v1_0_3 AggregationSource.v1_5_0 Bios.v1_2_3
    Chassis.v1_28_0 ComputerSystem.v1_27_0 Drive.v1_22_0 EnvironmentMetrics.v1_5_0 EthernetInterface.v1_12_4
    Event.v1_9_0 EventDestination.v1_14_1 EventService.v1_10_3 Fabric.v1_4_0 Fan.v1_6_0 LogEntry.v1_21_0
    LogService.v1_9_0 Manager.v1_24_0 ManagerAccount.v1_12_1 ManagerNetworkProtocol.v1_12_0 Memory.v1_23_0
    Message.v1_2_0 MessageRegistry.v1_6_2 MessageRegistryFile.v1_1_3 MetricDefinition.v1_3_5 MetricReport.v1_5_2
    MetricReportDefinition.v1_4_7 Outlet.v1_4_4 Port.v1_18_0 PowerDistribution.v1_6_0 PowerEquipment.v1_2_3
    PowerSubsystem.v1_1_3 PowerSupply.v1_6_0 Processor.v1_22_0 Role.v1_3_2 Sensor.v1_12_0 ServiceRoot.v1_20_0
    Session.v1_7_1 SessionService.v1_1_9 Settings.v1_4_0 SoftwareInventory.v1_13_0 Storage.v1_21_0 Switch.v1_11_0
    Task.v1_7_4 TaskService.v1_2_1 TelemetryService.v1_4_1 ThermalMetrics.v1_3_2 ThermalSubsystem.v1_5_0
    UpdateService.v1_17_0 VirtualMedia.v1_6_5
"""
_COLLECTED = """
    Aggregate AggregationSource Chassis ComputerSystem Drive EthernetInterface EventDestination Fabric Fan LogEntry
    LogService ManagerAccount Manager Memory MessageRegistryFile MetricDefinition MetricReport
    MetricReportDefinition Outlet Port PowerDistribution PowerSupply Processor Role Sensor Session SoftwareInventory
    Storage Switch Task VirtualMedia
"""

VERSIONS = dict(schema.split(".") for schema in _SCHEMAS.split())
"""Schema → the version that resources here have. A crawl over the service checks it."""
SCHEMAS = tuple(sorted([*_SCHEMAS.split(), *(f"{name}Collection" for name in _COLLECTED.split())]))


def type_of(kind: str, within: str = "") -> str:
    """The ``@odata.type`` of a resource (``Chassis``), or of something ``within`` one."""
    return f"#{kind}.{VERSIONS[kind]}.{within or kind}"


def resource(path: str, kind: str, name: str, **more: Any) -> Json:
    """A resource; its id is the last part of its path."""
    return {"@odata.id": path, "@odata.type": type_of(kind), "Id": path.rpartition("/")[2], "Name": name, **more}
