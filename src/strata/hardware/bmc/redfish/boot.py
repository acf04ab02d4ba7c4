"""Where a node boots from, its virtual drives, and its identify light."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strata.core.errors import BadRequest, NotOffered
from strata.hardware.bmc.protocol import Boot, BootTarget, Media
from strata.hardware.bmc.redfish.client import Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import below, path_of, text
from strata.hardware.bmc.redfish.find import action, around, home, manager, maybe, system
from strata.hardware.bmc.redfish.pairing import name_of
from strata.hardware.bmc.redfish.power import find_system
from strata.hardware.bmc.redfish.quirks import quirks

TARGETS: Mapping[BootTarget, tuple[str, ...]] = {
    "none": ("None",),
    "pxe": ("Pxe",),
    "http": ("UefiHttp",),
    "media": ("Cd", "UsbCd", "Usb"),
    "disk": ("Hdd",),
    "setup": ("BiosSetup",),
}
"""What we call it → what Redfish does, best first."""

WORDS = {word: target for target, words in TARGETS.items() for word in words}

LIGHT_ON = ("Blinking", "Lit")
"""Values of IndicatorLED, best first."""


async def read_boot(client: RedfishClient, target: Target) -> Boot:
    """The boot override that is set."""
    boot = below(await system(client, target), "Boot")
    enabled = boot.get("BootSourceOverrideEnabled")
    word = WORDS.get(text(boot.get("BootSourceOverrideTarget")), "none")
    mode = boot.get("BootSourceOverrideMode")
    return Boot(
        target=word if enabled in ("Once", "Continuous") else "none",
        once=enabled != "Continuous",
        uri=uri if "://" in (uri := text(boot.get("HttpBootUri"), 2048)) else "",
        uefi=mode == "UEFI" if mode in ("UEFI", "Legacy") else None,
    )


async def write_boot(client: RedfishClient, target: Target, wanted: Boot) -> None:
    """Set the boot override, in one request."""
    if wanted.uri and wanted.target != "http":
        raise BadRequest("a boot URI is for the target http", where="uri")
    body = await system(client, target)
    boot = below(body, "Boot")
    if not boot:
        raise NotOffered("it has no boot override", node=target.bmc.base)
    known = await quirks(client, target, body)
    change: dict[str, object] = {
        "BootSourceOverrideEnabled": "Disabled" if wanted.target == "none" else "Once" if wanted.once else "Continuous",
        "BootSourceOverrideTarget": _word(target, boot, wanted.target, usb_cd=known.usb_cd),
    }
    if wanted.uri:
        if "HttpBootUri" not in boot:  # Dell's among others
            hint = "let DHCP tell the node where its boot file is"
            raise NotOffered("it does not take the URI of a boot file", node=target.bmc.base, hint=hint)
        change["HttpBootUri"] = wanted.uri
    mode = boot.get("BootSourceOverrideMode")
    asked = mode if wanted.uefi is None else "UEFI" if wanted.uefi else "Legacy"
    # A mode that is sent without need is refused by HPE and makes Dell's start a configuration job.
    if asked != mode or (known.echo_boot_mode and isinstance(mode, str)):
        change["BootSourceOverrideMode"] = asked
    where = target.resource
    if known.future_state:
        where = path_of(target.bmc, below(body, "@Redfish.Settings").get("SettingsObject")) or where
    await client.patch(target.address, where, {"Boot": change})


def _word(target: Target, boot: Json, wanted: BootTarget, *, usb_cd: bool) -> str:
    allowed = boot.get("BootSourceOverrideTarget@Redfish.AllowableValues")
    words = TARGETS[wanted]
    if not isinstance(allowed, list) or wanted == "none":
        return words[0]
    if wanted == "media" and usb_cd and "UsbCd" in allowed:
        return "UsbCd"
    for word in words:
        if word in allowed:
            return word
    offered = ", ".join(text(word) for word in allowed)[:200]
    raise NotOffered(f"it cannot boot from {wanted}: it allows only {offered}", node=target.bmc.base)


async def read_media(client: RedfishClient, target: Target) -> Sequence[Media]:
    """The virtual drives."""
    return [
        Media(
            id=path_of(target.bmc, drive),
            kind=", ".join(_kinds(drive)) or "unknown",
            image=text(drive.get("Image"), 2048) if drive.get("Inserted") is not False else "",
        )
        for drive in await _drives(client, target)
    ]


async def insert_media(client: RedfishClient, target: Target, image: str) -> None:
    """Put the image at this URI into the first CD drive; an empty one ejects."""
    drives = await _drives(client, target)
    drive = next((d for d in drives if {"CD", "DVD"} & set(_kinds(d))), None)
    if drive is None:
        raise NotOffered("it has no virtual CD drive", node=target.bmc.base)
    name = "#VirtualMedia.InsertMedia" if image else "#VirtualMedia.EjectMedia"
    try:
        where, told = action(target, drive, name)
    except NotOffered:
        # Lenovo and others before 2019 have no actions: the drive itself is changed.
        change = {"Image": image or None, "Inserted": bool(image)}
        await client.patch(target.address, path_of(target.bmc, drive), change)
        return
    body: dict[str, object] = {"Image": image} if image else {}
    protocols = told.get("TransferProtocolType@Redfish.AllowableValues")
    scheme = image.partition(":")[0].upper()
    if image and isinstance(protocols, list) and scheme in protocols:
        body["TransferProtocolType"] = scheme
    await client.request(target.address, "POST", where, body)


async def _drives(client: RedfishClient, target: Target) -> Sequence[Json]:
    """The drives, at the system (since 2020) or at its manager."""
    path = path_of(target.bmc, (await system(client, target)).get("VirtualMedia"))
    if not path:
        body = await maybe(client, target, await manager(client, target, offering="VirtualMedia"))
        path = path_of(target.bmc, body.get("VirtualMedia"))
        if path and (others := (await around(client, target)).peers):
            named = ", ".join(name_of(other) for other in others[:4])
            raise NotOffered(f"its virtual drives are the BMC's own, which also has {named}", node=target.bmc.base)
    if not path:
        raise NotOffered("it has no virtual media", node=target.bmc.base)
    members = (await client.tree(target.address, path)).get("Members")
    return [drive for drive in members if isinstance(drive, Mapping)] if isinstance(members, list) else []


def _kinds(drive: Json) -> list[str]:
    kinds = drive.get("MediaTypes")
    return [text(kind, 20) for kind in kinds if isinstance(kind, str)] if isinstance(kinds, list) else []


async def identify(client: RedfishClient, target: Target, on: bool) -> None:
    """Switch the identify light of what the address names, or of the chassis that it has for itself."""
    resource = target.resource or await find_system(client, target)
    if await _lit(client, target, resource, on):
        return
    near = await home(client, target)
    for path in near.own:
        if path != resource and await _lit(client, target, path, on):
            return
    if near.shared:
        named = ", ".join(name_of(path) for path in near.shared)
        raise NotOffered(f"it has no identify light of its own: {named} also holds other nodes", node=target.bmc.base)
    raise NotOffered("it has no identify light", node=target.bmc.base)


async def _lit(client: RedfishClient, target: Target, path: str, on: bool) -> bool:
    """Switch the light of one resource; False where it has none."""
    body = await maybe(client, target, path)
    if "LocationIndicatorActive" in body:
        await client.patch(target.address, path, {"LocationIndicatorActive": on})
        return True
    if "IndicatorLED" in body:
        allowed = body.get("IndicatorLED@Redfish.AllowableValues")
        words = LIGHT_ON if on else ("Off",)
        word = next((w for w in words if not isinstance(allowed, list) or w in allowed), words[0])
        await client.patch(target.address, path, {"IndicatorLED": word})
        return True
    return False
