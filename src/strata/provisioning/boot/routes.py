"""Booting: profiles, what a node would be told, and how its boots went."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get
from litestar.params import PathParameter

from strata.api.named import Named
from strata.api.rights import public
from strata.api.services import Asked, Cursor, Limit, NodePath, Select
from strata.core.errors import NotFound
from strata.provisioning.boot.requests import BootControl

_TAG = "booting"
_ISO = "application/x-iso9660"

MediumPath = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9_-]{43}\.iso$(?!\n)", max_length=47)]


_PROFILES = Named("/v1/boot/profiles", BootControl, "boot_profile", tag=_TAG, kind="boot", current=BootControl.profile)


@get("/v1/boot/media/{name:str}", tags=[_TAG], media_type=_ISO, **public(404, 503))
async def boot_medium(ask: Asked, name: MediumPath) -> Response[bytes]:
    """A boot medium (ISO), by a name that nobody can guess, until its node has booted from it. nginx sends the file."""
    file = ask.of(BootControl).medium(name)
    if file is None:
        raise NotFound("there is no such boot medium, or it was removed", where="medium")
    return Response(b"", headers={"X-Accel-Redirect": f"/boot-media-file/{file}"}, media_type=_ISO)


_PROFILES.list(BootControl.profiles)
_PROFILES.show(BootControl.profile)
_PROFILES.put(BootControl.put_profile, statuses=(409,))
_PROFILES.delete(BootControl.delete_profile)
_PROFILES.routes.get(
    "boot_status", "/v1/boot/nodes", BootControl.status, 404, select=Select, limit=Limit, cursor=Cursor
)
_PROFILES.routes.get("boot_script", "/v1/boot/nodes/{name:str}/script", BootControl.script, 404, name=NodePath)
_PROFILES.routes.post(
    "revoke_node_certificate", "/v1/boot/nodes/{name:str}/revoke", BootControl.revoke, "change", 404, name=NodePath
)
