"""Accounts of a controller: changing a password. Nothing that it answers to that is repeated: some echo it."""

from __future__ import annotations

import math

from strata.core.errors import BadRequest
from strata.hardware.redfish.bmc import items, path_of, text
from strata.hardware.redfish.client import RedfishClient, Target
from strata.hardware.redfish.find import linked, service
from strata.hardware.redfish.sensors import number


async def set_password(client: RedfishClient, target: Target, user: str, password: str) -> None:
    """Change the password of ``user``. One that breaks the controller's rules for length is not sent."""
    about = await service(client, target, "AccountService")
    least, most = number(about.get("MinPasswordLength")), number(about.get("MaxPasswordLength"))
    if (least is not None and len(password) < least) or (most is not None and len(password) > most):
        raise BadRequest(
            f"it takes passwords of {least or 0:.0f} to {most or math.inf:.0f} characters", where="password"
        )
    accounts = linked(target, about, "Accounts", what="accounts")
    for account in items(await client.tree(target.address, accounts), "Members"):
        # Dell's iDRAC has sixteen places of which most are empty: nobody is called "".
        if user and account.get("UserName") == user and (path := path_of(target.bmc, account)):
            await client.patch(target.address, path, {"Password": password}, private=True)
            return
    raise BadRequest("it has no such account", where=text(user, 64))
