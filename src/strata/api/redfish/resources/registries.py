"""Registries: what the messages of this service mean. Strata's own is served here; Base is the standard's."""

from __future__ import annotations

from strata.api.redfish.protocol.messages import BASE, STRATA, STRATA_MESSAGES
from strata.api.redfish.protocol.route import ROOT, Call, Json, Route, collection
from strata.core.errors import NotFound

_REGISTRIES = f"{ROOT}/Registries"
_OWN_VERSION = "1.0.0"
_OWN_FILE = f"{_REGISTRIES}/Strata/Strata.{_OWN_VERSION}.json"
_BASE_VERSION = "1.18.0"

_LOCATIONS: dict[str, Json] = {
    "Base": {"Language": "en", "PublicationUri": f"https://redfish.dmtf.org/registries/Base.{_BASE_VERSION}.json"},
    "Strata": {"Language": "en", "Uri": _OWN_FILE},
}
_PREFIXES = {"Base": BASE, "Strata": STRATA}


async def registries(call: Call) -> Json:
    """All of them."""
    return collection(
        _REGISTRIES, "MessageRegistryFile", "Message registries", [f"{_REGISTRIES}/{name}" for name in _LOCATIONS]
    )


async def registry(call: Call) -> Json:
    """Where one of them is."""
    name = call.params["registry"]
    if name not in _LOCATIONS:
        raise NotFound("no such registry")
    return {
        "@odata.id": f"{_REGISTRIES}/{name}",
        "@odata.type": "#MessageRegistryFile.v1_1_3.MessageRegistryFile",
        "Id": name,
        "Name": f"The message registry {name}",
        "Languages": ["en"],
        "Registry": _PREFIXES[name],
        "Location": [_LOCATIONS[name]],
    }


async def own(call: Call) -> Json:
    """Strata's own messages."""
    return {
        "@odata.type": "#MessageRegistry.v1_6_2.MessageRegistry",
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


ROUTES: tuple[Route, ...] = (
    Route(template=_REGISTRIES, get=registries),
    Route(template=f"{_REGISTRIES}/{{registry}}", get=registry),
    Route(template=_OWN_FILE, get=own),
)
