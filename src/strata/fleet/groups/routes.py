"""Groups of nodes."""

from __future__ import annotations

from strata.api.named import Named
from strata.fleet.groups.service import GroupService

_GROUPS = Named("/v1/groups", GroupService, "group", tag="groups", current=GroupService.group)
_GROUPS.list(GroupService.groups)
_GROUPS.show(GroupService.group, alone=True)
_GROUPS.put(GroupService.put_group)
_GROUPS.delete(GroupService.delete_group)
_GROUPS.routes.post("change_members", "/v1/groups/{name:str}/members", GroupService.change_members, "change", 404, 409)
