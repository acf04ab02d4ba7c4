"""Where a simulated node boots from: the override, and virtual media."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish.body import Json, collection, only, read_json, refuse, resource
from strata.virtual.redfish.router import Call, Deeds, Views

TARGETS = ("None", "Pxe", "UefiHttp", "Cd", "Hdd", "Usb", "BiosSetup")
NO_OVERRIDE: Mapping[str, object] = {
    "BootSourceOverrideEnabled": "Disabled",
    "BootSourceOverrideTarget": "None",
    "BootSourceOverrideMode": "UEFI",
    "HttpBootUri": None,
}
VALUES: Mapping[str, Sequence[str]] = {
    "BootSourceOverrideEnabled": ("Disabled", "Once", "Continuous"),
    "BootSourceOverrideTarget": TARGETS,
    "BootSourceOverrideMode": ("UEFI", "Legacy"),
}
DRIVES = {"CD1": ["CD", "DVD"], "USB1": ["USBStick"]}


class Boots(Protocol):
    """A BMC whose node boots from somewhere."""

    boot: Json
    """The override."""
    boot_values: Mapping[str, Sequence[str]]
    """What its properties may be."""
    drives: Mapping[str, Sequence[str]]
    """Virtual drive → the kinds of media that it takes."""
    media: dict[str, str]
    """Virtual drive → what is in it."""

    def insert(self, drive: str, image: str) -> Reply:
        """Put the image at this URI into an empty drive."""
        ...

    def eject(self, drive: str) -> Reply:
        """Take out what is there, if anything is."""
        ...


def boot_options(bmc: Boots) -> Json:
    """The override as it is, and what it could be."""
    return {f"{name}@Redfish.AllowableValues": values for name, values in bmc.boot_values.items()} | bmc.boot


def set_boot(bmc: Boots, wanted: Mapping[str, object]) -> None:
    """Change the override."""
    only(wanted, **dict.fromkeys(bmc.boot, (str,)))
    for name, values in bmc.boot_values.items():
        if wanted.get(name, values[0]) not in values:
            refuse(400, "PropertyValueNotInList", f"{name} is one of {', '.join(values)}.")
    after = bmc.boot | dict(wanted)
    if wanted.get("BootSourceOverrideEnabled") == "Disabled":
        after["BootSourceOverrideTarget"] = "None"
    bmc.boot = after


def _media(bmc: Boots, call: Call) -> Json:
    return collection(call.path, "VirtualMedia", bmc.drives)


def _medium(bmc: Boots, call: Call) -> Json | None:
    name = call.ids[0]
    if name not in bmc.drives:
        return None
    image = bmc.media.get(name, "")
    target = f"{call.path}/Actions/VirtualMedia."
    return resource(
        call.path,
        "VirtualMedia.v1_6_0",
        name,
        MediaTypes=bmc.drives[name],
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


def _insert(bmc: Boots, call: Call) -> Reply:
    name = call.ids[0]
    image = read_json(call.request.body).get("Image")
    if name not in bmc.drives:
        refuse(404, "ResourceMissingAtURI", f"There is no drive {name[:80]}.")
    if not isinstance(image, str) or "://" not in image:
        refuse(400, "ActionParameterMissing", "The action needs the parameter Image, a URI.")
    if bmc.media.get(name):
        refuse(409, "ResourceInUse", "There is an image in the drive: eject it first.")
    return bmc.insert(name, image)


def _eject(bmc: Boots, call: Call) -> Reply:
    return bmc.eject(call.ids[0])


VIEWS: Views[Boots] = {"Systems/1/VirtualMedia": _media, "Systems/1/VirtualMedia/*": _medium}

DEEDS: Deeds[Boots] = {
    "POST Systems/1/VirtualMedia/*/Actions/VirtualMedia.InsertMedia": _insert,
    "POST Systems/1/VirtualMedia/*/Actions/VirtualMedia.EjectMedia": _eject,
}
