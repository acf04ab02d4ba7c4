"""Where clients begin: the versions, the service root and OData's list of services."""

from __future__ import annotations

import uuid

import strata
from strata.api.redfish.protocol.query import FEATURES
from strata.api.redfish.protocol.route import ROOT, Call, Json, Reply, Route, link
from strata.fleet.access.authority import Authority

SERVICES = (
    "Systems",
    "Chassis",
    "Managers",
    "Fabrics",
    "PowerEquipment",
    "TelemetryService",
    "UpdateService",
    "AggregationService",
    "SessionService",
    "AccountService",
    "EventService",
    "Registries",
)
_NAMESPACE = uuid.UUID("7e0e6a0a-6f6b-5f0e-9a53-1f0c4b0d5c7e")


async def versions(call: Call) -> Reply:
    """Which major versions of the protocol there are."""
    return Reply(body={"v1": f"{ROOT}/"})


async def root(call: Call) -> Json:
    """The service root."""
    found: Json = {
        "@odata.id": f"{ROOT}/",
        "@odata.type": "#ServiceRoot.v1_20_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Strata",
        "Description": "The whole machine as one Redfish service",
        "RedfishVersion": "1.20.0",
        "Product": "Strata",
        "Vendor": "Strata",
        "ServiceIdentification": f"strata {strata.__version__}",
        "ProtocolFeaturesSupported": FEATURES,
        "Tasks": link(f"{ROOT}/TaskService"),
        "Links": {
            "Sessions": link(f"{ROOT}/SessionService/Sessions"),
            "ManagerProvidingService": link(f"{ROOT}/Managers/strata"),
        },
        **{name: link(f"{ROOT}/{name}") for name in SERVICES},
    }
    authority = call.services.find(Authority)
    if authority is not None:
        # Controllers of one machine share its certificate authority, and so this.
        found["UUID"] = str(uuid.uuid5(_NAMESPACE, authority.certificate_path.read_text()))
    return found


async def odata(call: Call) -> Reply:
    """OData's service document."""
    services = [{"name": "Service", "kind": "Singleton", "url": f"{ROOT}/"}]
    services += [{"name": name, "kind": "Singleton", "url": f"{ROOT}/{name}"} for name in (*SERVICES, "TaskService")]
    return Reply(body={"@odata.context": f"{ROOT}/$metadata", "value": services})


_GET = frozenset({"GET"})

ROUTES: tuple[Route, ...] = (
    Route(template="/redfish", get=versions, public=_GET),
    Route(template=ROOT, get=root, public=_GET),
    Route(template=f"{ROOT}/odata", get=odata, public=_GET),
)
