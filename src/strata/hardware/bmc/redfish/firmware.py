"""Firmware over Redfish: what there is, and updates that the BMC fetches or is given."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from strata.core.errors import BadRequest, NotOffered
from strata.hardware.bmc.protocol import Firmware, Task
from strata.hardware.bmc.redfish.client import Json, Raw, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import below, items, path_of, text
from strata.hardware.bmc.redfish.find import action, around, follow, linked, maybe, service
from strata.hardware.bmc.redfish.pairing import top
from strata.hardware.bmc.redfish.sensors import number
from strata.hardware.bmc.redfish.tasks import begun

OCTETS = "application/octet-stream"


async def read_firmware(client: RedfishClient, target: Target) -> Sequence[Firmware]:
    """What firmware there is; not that of another node behind the same BMC."""
    update = await service(client, target, "UpdateService")
    path = linked(target, update, "FirmwareInventory", what="firmware inventory")
    near, where = await around(client, target), follow(target)
    found = []
    for body in items(await client.tree(target.address, path), "Members"):
        if near.relation(body, where) == "other":
            continue
        related = [where(link) for link in items(body, "RelatedItem")]
        own = [path for path in related if top(path) in (near.system, *near.own)]
        found.append(
            Firmware(
                id=where(body),
                name=text(body.get("Name")) or text(body.get("Id")),
                version=text(body.get("Version")),
                updateable=body.get("Updateable") is True,
                component=next(iter(own or related), ""),
            )
        )
    return found


async def _check_targets(client: RedfishClient, target: Target, targets: Sequence[str]) -> None:
    """Who may update one node behind a BMC may not update its neighbour."""
    near, where = await around(client, target), follow(target)
    for one in targets if near.others else ():
        body = await maybe(client, target, where(one))
        itself: Json = {"RelatedItem": [{"@odata.id": one}]}
        if "other" in (near.relation(itself, where), near.relation(body, where)):
            raise BadRequest("that is in another node", where=one[:200], hint="see the node's own firmware")


async def update_firmware(
    client: RedfishClient, target: Target, *, uri: str, image: bytes, targets: Sequence[str], apply_time: str
) -> Task:
    """Have it fetch ``uri``, or give it ``image``: one of the two."""
    if bool(uri) == bool(image):
        raise BadRequest("give a URI to fetch or an image to push, and not both", where="firmware update")
    update = await service(client, target, "UpdateService")
    await _check_targets(client, target, targets)
    if uri:
        return await _fetch(client, target, update, uri, targets, apply_time)
    most = number(update.get("MaxImageSizeBytes"))
    if most is not None and len(image) > most:
        raise BadRequest(f"it takes images of {most:.0f} bytes at most", where=f"{len(image)} bytes")
    where = path_of(target.bmc, update.get("MultipartHttpPushUri"))
    if where:
        parameters = {"Targets": list(targets), **_apply(target, update, apply_time, of="MultipartHttpPushUri")}
        body = multipart(
            ("UpdateParameters", "", "application/json", msgspec.json.encode(parameters)),
            ("UpdateFile", "image.bin", OCTETS, image),
        )
    elif where := path_of(target.bmc, update.get("HttpPushUri")):
        await _choose(client, target, update, targets, apply_time)
        body = Raw(image, OCTETS)
    else:
        raise NotOffered("it takes no pushed images", node=target.bmc.base, hint="give it a URI to fetch")
    timeout = client.settings.upload_timeout
    return begun(target, await client.request(target.address, "POST", where, body, timeout=timeout))


async def _fetch(
    client: RedfishClient, target: Target, update: Json, uri: str, targets: Sequence[str], apply_time: str
) -> Task:
    where, told = action(target, update, "#UpdateService.SimpleUpdate")
    body: dict[str, object] = {"ImageURI": uri}
    protocols = told.get("TransferProtocol@Redfish.AllowableValues")
    scheme = uri.partition(":")[0].upper()
    if isinstance(protocols, list) and protocols:
        if scheme not in protocols:
            offered = ", ".join(text(protocol) for protocol in protocols)[:200]
            raise NotOffered(f"it cannot fetch by {scheme}: only by {offered}", node=target.bmc.base)
        body["TransferProtocol"] = scheme
    if targets:
        body["Targets"] = list(targets)
    body |= _apply(target, told, apply_time)
    return begun(target, await client.request(target.address, "POST", where, body))


async def _choose(client: RedfishClient, target: Target, update: Json, targets: Sequence[str], apply_time: str) -> None:
    """Say what a plainly pushed image is for, and when it applies."""
    change: dict[str, object] = {}
    if targets:
        if "HttpPushUriTargets" not in update:
            raise NotOffered("it does not let one choose what a pushed image is for", node=target.bmc.base)
        change["HttpPushUriTargets"] = list(targets)
    if apply_time:
        if not below(update, "HttpPushUriOptions"):
            raise NotOffered("it does not let one choose when a pushed image applies", node=target.bmc.base)
        change["HttpPushUriOptions"] = {"HttpPushUriApplyTime": {"ApplyTime": apply_time}}
    if change:
        await client.patch(target.address, path_of(target.bmc, update), change)


def _apply(target: Target, told: Json, apply_time: str, *, of: str = "") -> Json:
    """The choice of when it applies, if one is wanted and can be had."""
    if not apply_time:
        return {}
    support = below(told, f"{of}@Redfish.OperationApplyTimeSupport") or below(
        told, "@Redfish.OperationApplyTimeSupport"
    )
    values = support.get("SupportedValues")
    if not isinstance(values, list) or apply_time not in values:
        offered = ", ".join(text(value) for value in values)[:200] if isinstance(values, list) else "no choice"
        raise NotOffered(f"it cannot apply {apply_time}: it offers {offered}", node=target.bmc.base)
    return {"@Redfish.OperationApplyTime": apply_time}


def multipart(*parts: tuple[str, str, str, bytes]) -> Raw:
    """A multipart/form-data body of (name, file name, type, data)."""
    boundary = secrets.token_hex(16)
    chunks = []
    for name, file, kind, data in parts:
        shown = f'; filename="{file}"' if file else ""
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{shown}\r\nContent-Type: {kind}\r\n\r\n'
        chunks += [head.encode(), data, b"\r\n"]
    return Raw(b"".join([*chunks, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}")
