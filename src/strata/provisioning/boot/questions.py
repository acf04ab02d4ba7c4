"""What booting asks of the rest of the controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from strata.provisioning.boot.profiles import DEFAULT


async def _not_known(_: str) -> bool:
    return False


class Questions(msgspec.Struct, frozen=True, kw_only=True):
    """What the boot service asks of the rest of the controller, about nodes by name."""

    attached: Callable[[str], bool | Awaitable[bool | None]]
    """Whether the node's agent is there. Another controller may have to be asked; None: nobody knows now."""
    speaks: Callable[[str], Awaitable[bool | None]]
    """The same, where the node does what a running one would not do: its agent is asked."""
    held: Callable[[str], bool]
    """Whether somebody took the node out of automation."""
    hold: Callable[[str, str], Awaitable[None]]
    """Take it out, for a reason."""
    console_tail: Callable[[str], Awaitable[str]]
    """What its console printed last."""
    off: Callable[[str], Awaitable[bool | None]] = _not_known
    """Whether the node is known to be switched off. None: it may be, and that is not known in time."""
    leased: Callable[[str], str] = lambda _: ""
    """The MAC that we gave an address to by the place where it is cabled; empty: we did not."""
    asked: Callable[[str, Literal["script", "fragment"]], None] = lambda _, what: None
    """It asked for something to boot, and gets it."""
    begun: Callable[[str], None] = lambda _: None
    """A new boot of it has begun, or has to: whoever spoke for the one before does so no more."""
    profile_of: Callable[[str], str] = lambda _: DEFAULT
    """The boot profile that its owners want."""
