"""Where clients begin: the service root, OData's list of services, ``$metadata``, and what the messages mean.

Strata's own registry of messages is served here; Base is the standard's.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import strata
from strata.api.redfish.protocol.messages import BASE, STRATA, STRATA_MESSAGES
from strata.api.redfish.protocol.query import FEATURES
from strata.api.redfish.protocol.route import ROOT, Call, Json, Reply, Routes, link
from strata.api.redfish.protocol.schemas import SCHEMAS, VERSIONS, resource, type_of
from strata.fleet.access.authority import Authority

SERVICES = (
    "Systems", "Chassis", "Managers", "Fabrics", "PowerEquipment", "TelemetryService", "UpdateService",
    "AggregationService", "SessionService", "AccountService", "EventService", "Registries",
)  # fmt: skip
_NAMESPACE = uuid.UUID("7e0e6a0a-6f6b-5f0e-9a53-1f0c4b0d5c7e")

_PUBLISHED = "http://redfish.dmtf.org/schemas/v1"

_REGISTRIES = f"{ROOT}/Registries"
_OWN_VERSION = "1.0.0"
_OWN_FILE = f"{_REGISTRIES}/Strata/Strata.{_OWN_VERSION}.json"
_BASE_VERSION = "1.18.0"

_REGISTRY_FILES: dict[str, tuple[str, Json]] = {
    "Base": (BASE, {"PublicationUri": f"https://redfish.dmtf.org/registries/Base.{_BASE_VERSION}.json"}),
    "Strata": (STRATA, {"Uri": _OWN_FILE}),
}

ROUTES = Routes()


@ROUTES.get("/redfish", public=True)
async def versions(call: Call) -> Reply:
    """Which major versions of the protocol there are."""
    return Reply(body={"v1": f"{ROOT}/"})


@ROUTES.get(ROOT, public=True)
async def root(call: Call) -> Json:
    found: Json = {
        "@odata.id": f"{ROOT}/",
        "@odata.type": type_of("ServiceRoot"),
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


@ROUTES.get(f"{ROOT}/odata", public=True)
async def odata(call: Call) -> Reply:
    services = [{"name": "Service", "kind": "Singleton", "url": f"{ROOT}/"}]
    services += [{"name": name, "kind": "Singleton", "url": f"{ROOT}/{name}"} for name in (*SERVICES, "TaskService")]
    return Reply(body={"@odata.context": f"{ROOT}/$metadata", "value": services})


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
      <EntityContainer Name="Service" Extends="ServiceRoot.{VERSIONS["ServiceRoot"]}.ServiceContainer"/>
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


_METADATA = Reply(text=_document(), headers={"Content-Type": "application/xml"})


@ROUTES.get(f"{ROOT}/$metadata", public=True, media="application/xml")
async def metadata(call: Call) -> Reply:
    return _METADATA


async def _registries(call: Call) -> Mapping[str, tuple[str, Json]]:
    return _REGISTRY_FILES


@ROUTES.members(f"{_REGISTRIES}/{{registry}}", "MessageRegistryFile", "Message registries", None, _registries)
async def _registry(call: Call, path: str, found: tuple[str, Json]) -> Json:
    prefix, location = found
    name = f"The message registry {call.params['registry']}"
    more = {"Languages": ["en"], "Registry": prefix, "Location": [{"Language": "en", **location}]}
    return resource(path, "MessageRegistryFile", name, **more)


@ROUTES.get(_OWN_FILE)
async def own(call: Call) -> Json:
    return {
        "@odata.type": type_of("MessageRegistry"),
        "Id": f"Strata.{_OWN_VERSION}",
        "Name": "Strata's messages",
        "Language": "en",
        "Description": "What Strata says beside the standard's messages",
        "RegistryPrefix": "Strata",
        "RegistryVersion": _OWN_VERSION,
        "OwningEntity": "Strata",
        "Messages": {
            key: {
                "Description": f"Strata's {key}.",
                "Message": template.text,
                "MessageSeverity": template.severity,
                "NumberOfArgs": 1,
                "ParamTypes": ["string"],
                "ArgDescriptions": ["What happened, where, and what to do."],
                "Resolution": template.resolution,
            }
            for key, template in STRATA_MESSAGES.items()
        },
    }
