"""Booting: profiles, what a node would be told, and how its boots went."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get, post
from litestar.params import PathParameter

from strata.api.http import seal, unseal
from strata.api.named import Named
from strata.api.rights import needs, public
from strata.api.services import Asked, Cursor, Limit, NodePath, Select
from strata.core.errors import NotFound
from strata.provisioning.boot import records as b
from strata.provisioning.boot.records import BootStatusPage
from strata.provisioning.boot.requests import BootControl

_TAG = "booting"
_ISO = "application/x-iso9660"

MediumPath = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9_-]{43}\.iso$(?!\n)", max_length=47)]


_PROFILES = Named("/v1/boot/profiles", BootControl, "boot_profile", tag=_TAG, kind="boot", current=BootControl.profile)
_PROFILES.list(
    BootControl.profiles,
    "All boot profiles. A node boots the one that its desire for `minos` names, else `default`.",
)
_PROFILES.show(BootControl.profile, "One boot profile, and what it comes to now.")
_PROFILES.put(
    BootControl.put_profile,
    "Create or replace a boot profile. `If-Match` and `If-None-Match: *` are honoured.",
    statuses=(409,),
)
_PROFILES.delete(
    BootControl.delete_profile, "Remove a boot profile that no node is set to boot. `If-Match` is honoured."
)


@get("/v1/boot/nodes", tags=[_TAG], **needs("read", "boot", 404))
async def boot_status(ask: Asked, select: Select = "*", limit: Limit = 1000, cursor: Cursor = None) -> b.BootStatusPage:
    """How nodes' boots went: generations, attempts, when they asked and when they arrived."""
    page = await ask.of(BootControl).status(ask.who, select, limit, unseal(cursor))
    return BootStatusPage(items=page.items, next=seal(page.next))


@get("/v1/boot/nodes/{name:str}/script", tags=[_TAG], **needs("read", "boot", 404))
async def boot_script(ask: Asked, name: NodePath) -> b.ScriptView:
    """The script that the node would get if it asked now. Changes nothing."""
    return await ask.of(BootControl).script(ask.who, name)


@post("/v1/boot/nodes/{name:str}/revoke", tags=[_TAG], status_code=200, **needs("change", "boot", 404))
async def revoke_node_certificate(ask: Asked, name: NodePath) -> b.BootStatusView:
    """Make the node's certificate good for nothing; its next boot gets a new one."""
    return await ask.of(BootControl).revoke(ask.who, name)


@get("/v1/boot/media/{name:str}", tags=[_TAG], media_type=_ISO, **public(404, 503))
async def boot_medium(ask: Asked, name: MediumPath) -> Response[bytes]:
    """A boot medium (ISO), by a name that nobody can guess, until its node has booted from it. nginx sends the file."""
    file = ask.of(BootControl).medium(name)
    if file is None:
        raise NotFound("there is no such boot medium, or it was removed", where="medium")
    return Response(b"", headers={"X-Accel-Redirect": f"/boot-media-file/{file}"}, media_type=_ISO)
