"""Where a simulated node boots from: the override, and virtual media."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from strata.virtual.http import Reply
from strata.virtual.redfish_body import Json, collection, done, only, read_json, refuse, resource
from strata.virtual.redfish_router import Call, Deeds, Views

if TYPE_CHECKING:
    from strata.virtual.node_bmc import NodeBmc

TARGETS = ("None", "Pxe", "UefiHttp", "Cd", "Hdd", "Usb", "BiosSetup")
NO_OVERRIDE: Mapping[str, object] = {
    "BootSourceOverrideEnabled": "Disabled",
    "BootSourceOverrideTarget": "None",
    "BootSourceOverrideMode": "UEFI",
    "HttpBootUri": None,
}
_VALUES = {
    "BootSourceOverrideEnabled": ("Disabled", "Once", "Continuous"),
    "BootSourceOverrideTarget": TARGETS,
    "BootSourceOverrideMode": ("UEFI", "Legacy"),
}
DRIVES = {"CD1": ["CD", "DVD"], "USB1": ["USBStick"]}


def boot_options(bmc: NodeBmc) -> Json:
    """The override as it is, and what it could be."""
    return {f"{name}@Redfish.AllowableValues": values for name, values in _VALUES.items()} | bmc.boot


def set_boot(bmc: NodeBmc, wanted: Mapping[str, object]) -> None:
    """Change the override."""
    only(wanted, **dict.fromkeys(NO_OVERRIDE, (str,)))
    for name, values in _VALUES.items():
        if wanted.get(name, values[0]) not in values:
            refuse(400, "PropertyValueNotInList", f"{name} is one of {', '.join(values)}.")
    after = bmc.boot | dict(wanted)
    if wanted.get("BootSourceOverrideEnabled") == "Disabled":
        after["BootSourceOverrideTarget"] = "None"
    bmc.boot = after


def _media(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "VirtualMedia", DRIVES)


def _medium(bmc: NodeBmc, call: Call) -> Json | None:
    name = call.ids[0]
    if name not in DRIVES:
        return None
    image = bmc.media.get(name, "")
    target = f"{call.path}/Actions/VirtualMedia."
    return resource(
        call.path,
        "VirtualMedia.v1_6_0",
        name,
        MediaTypes=DRIVES[name],
        Image=image or None,
        ImageName=image.rpartition("/")[2] or None,
        Inserted=bool(image),
        ConnectedVia="URI" if image else "NotConnected",
        WriteProtected=True,
        Actions={
            "#VirtualMedia.InsertMedia": {"target": f"{target}InsertMedia"},
            "#VirtualMedia.EjectMedia": {"target": f"{target}EjectMedia"},
        },
    )


def _insert(bmc: NodeBmc, call: Call) -> Reply:
    name = call.ids[0]
    image = read_json(call.request.body).get("Image")
    if name not in DRIVES:
        refuse(404, "ResourceMissingAtURI", f"There is no drive {name[:80]}.")
    if not isinstance(image, str) or "://" not in image:
        refuse(400, "ActionParameterMissing", "The action needs the parameter Image, a URI.")
    if bmc.media.get(name):
        refuse(409, "ResourceInUse", "There is an image in the drive: eject it first.")
    bmc.media[name] = image
    return done()


def _eject(bmc: NodeBmc, call: Call) -> Reply:
    bmc.media.pop(call.ids[0], None)
    return done()


VIEWS: Views[NodeBmc] = {"Systems/1/VirtualMedia": _media, "Systems/1/VirtualMedia/*": _medium}

DEEDS: Deeds[NodeBmc] = {
    "POST Systems/1/VirtualMedia/*/Actions/VirtualMedia.InsertMedia": _insert,
    "POST Systems/1/VirtualMedia/*/Actions/VirtualMedia.EjectMedia": _eject,
}
