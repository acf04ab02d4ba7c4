"""``$metadata``: which schemas the resources follow, by the standard's own addresses."""

from __future__ import annotations

from strata.api.redfish.protocol.route import ROOT, Call, Reply, Route

SCHEMAS = (
    "AccountService.v1_15_1",
    "Aggregate.v1_0_3",
    "AggregateCollection",
    "AggregationService.v1_0_3",
    "AggregationSource.v1_5_0",
    "AggregationSourceCollection",
    "Bios.v1_2_3",
    "Chassis.v1_28_0",
    "ChassisCollection",
    "ComputerSystem.v1_27_0",
    "ComputerSystemCollection",
    "Drive.v1_22_0",
    "DriveCollection",
    "EnvironmentMetrics.v1_5_0",
    "EthernetInterface.v1_12_4",
    "EthernetInterfaceCollection",
    "Event.v1_9_0",
    "EventDestination.v1_14_1",
    "EventDestinationCollection",
    "EventService.v1_10_3",
    "Fabric.v1_4_0",
    "FabricCollection",
    "Fan.v1_6_0",
    "FanCollection",
    "LogEntry.v1_21_0",
    "LogEntryCollection",
    "LogService.v1_9_0",
    "LogServiceCollection",
    "Manager.v1_24_0",
    "ManagerAccount.v1_12_1",
    "ManagerAccountCollection",
    "ManagerCollection",
    "ManagerNetworkProtocol.v1_12_0",
    "Memory.v1_23_0",
    "MemoryCollection",
    "Message.v1_2_0",
    "MessageRegistry.v1_6_2",
    "MessageRegistryFile.v1_1_3",
    "MessageRegistryFileCollection",
    "MetricDefinition.v1_3_5",
    "MetricDefinitionCollection",
    "MetricReport.v1_5_2",
    "MetricReportCollection",
    "MetricReportDefinition.v1_4_7",
    "MetricReportDefinitionCollection",
    "Outlet.v1_4_4",
    "OutletCollection",
    "Port.v1_18_0",
    "PortCollection",
    "PowerDistribution.v1_6_0",
    "PowerDistributionCollection",
    "PowerEquipment.v1_2_3",
    "PowerSubsystem.v1_1_3",
    "PowerSupply.v1_6_0",
    "PowerSupplyCollection",
    "Processor.v1_22_0",
    "ProcessorCollection",
    "Role.v1_3_2",
    "RoleCollection",
    "Sensor.v1_12_0",
    "SensorCollection",
    "ServiceRoot.v1_20_0",
    "Session.v1_7_1",
    "SessionCollection",
    "SessionService.v1_1_9",
    "Settings.v1_4_0",
    "SoftwareInventory.v1_13_0",
    "SoftwareInventoryCollection",
    "Storage.v1_21_0",
    "StorageCollection",
    "Switch.v1_11_0",
    "SwitchCollection",
    "Task.v1_7_4",
    "TaskCollection",
    "TaskService.v1_2_1",
    "TelemetryService.v1_4_1",
    "ThermalMetrics.v1_3_2",
    "ThermalSubsystem.v1_5_0",
    "UpdateService.v1_17_0",
    "VirtualMedia.v1_6_5",
    "VirtualMediaCollection",
)
"""Every schema that a resource here has, in the version that it has. A crawl over the service checks this list."""

_PUBLISHED = "http://redfish.dmtf.org/schemas/v1"


def _document() -> str:
    references = "\n".join(map(_reference, SCHEMAS))
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">
{references}
  <edmx:Reference Uri="{_PUBLISHED}/RedfishExtensions_v1.xml">
    <edmx:Include Namespace="RedfishExtensions.v1_0_0" Alias="Redfish"/>
  </edmx:Reference>
  <edmx:DataServices>
    <Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">
      <EntityContainer Name="Service" Extends="ServiceRoot.v1_20_0.ServiceContainer"/>
    </Schema>
  </edmx:DataServices>
</edmx:Edmx>
"""


def _reference(schema: str) -> str:
    name, _, version = schema.partition(".")
    versioned = f'\n    <edmx:Include Namespace="{schema}"/>' if version else ""
    return f"""  <edmx:Reference Uri="{_PUBLISHED}/{name}_v1.xml">
    <edmx:Include Namespace="{name}"/>{versioned}
  </edmx:Reference>"""


_TEXT = _document()


async def metadata(call: Call) -> Reply:
    """The document."""
    return Reply(text=_TEXT, headers={"Content-Type": "application/xml"})


ROUTES: tuple[Route, ...] = (
    Route(template=f"{ROOT}/$metadata", get=metadata, public=frozenset({"GET"}), media="application/xml"),
)
