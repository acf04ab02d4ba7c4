"""Protocols of BMCs beside Redfish. A new one is a folder and a line here: docs/how-to/add-to-strata.md shows it."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from strata.hardware.bmc.protocol import Bmc
from strata.hardware.bmc.redfish.endpoint import Credentials
from strata.hardware.inventory.records import Found

DIALECTS = {
    "ipmi": "strata.hardware.bmc.ipmi.dialect:ipmi",
}
"""Scheme of the address (``ipmi://…``) → ``module:function``, which takes who we are at an address."""

Login = Callable[[str], Credentials]
"""Who we are at an address."""
Accepts = Callable[[str, Credentials], Awaitable[bool]]
"""Whether the BMC at an address lets somebody with these credentials in; raises when it does not answer."""


class Dialect(NamedTuple):
    """One protocol, for all BMCs that speak it."""

    open: Callable[[str], Bmc]
    """The BMC at an address. Cheap, and asks nothing."""
    inventory: Callable[[str], Awaitable[Found]]
    """All that the BMC at an address tells of the machine and its parts."""
    accepts: Accepts
    forget: Callable[[str], None]
    """A person has set the password right: forget that it was refused."""
    close: Callable[[], Awaitable[None]]


def dialects(login: Login) -> Mapping[str, Dialect]:
    """All of them, by scheme."""
    found = {}
    for scheme, place in DIALECTS.items():
        module, _, function = place.partition(":")
        found[scheme] = getattr(importlib.import_module(module), function)(login)
    return found
