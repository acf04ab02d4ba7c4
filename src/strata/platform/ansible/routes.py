"""The fleet as Ansible sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litestar import MediaType, Response, get

from strata.api.rights import needs
from strata.api.services import Asked, Select
from strata.platform.ansible.service import AnsibleService


@get("/v1/ansible/inventory", tags=["ansible"], **needs("read", "node", 404))
async def ansible_inventory(ask: Asked, select: Select = "*") -> Response[Mapping[str, Any]]:
    """A dynamic inventory: groups with their hosts, and in `_meta` the variables of each host. Holds no secrets."""
    content = await ask.of(AnsibleService).inventory(ask.who, select)
    return Response(content, media_type=MediaType.JSON)  # type: ignore[arg-type]
