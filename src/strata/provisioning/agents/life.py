"""Whether a node's minimal OS is up, down or hung, from all that is known. Pure.

``hung`` ends with the node's power being cut, so it is said only when nothing else explains the silence; where it
might be our own fault, nothing is said.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from strata.provisioning.agents.hub import SILENT_AFTER

HUNG_AFTER = SILENT_AFTER + 20.0
"""Seconds of silence after which a node that should speak is hung: one that booted anew by itself has asked by then."""

Word = Literal["up", "down", "hung", "unknown"]


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node, in Unix seconds; 0: never, as far as we know."""

    contact: float = 0.0
    """Its agent last spoke to us."""
    missed: float = 0.0
    """Its agent last did not speak though it was asked to."""
    crashed: float = 0.0
    """Its kernel last said that it dies."""
    redeemed: float = 0.0
    """Its present boot got its certificate."""
    asked: float = 0.0
    """It last asked for something to boot."""
    dark: float = 0.0
    """It was last seen without power, or its power was cut."""
    listening: float = 0.0
    """Since when we would have heard its agent."""
    all_silent: bool = False
    """So many others fell silent with it that it is likely our fault."""


def os_word(signs: Signs, now: float) -> Word:
    """What the signs say."""
    if signs.contact > max(signs.dark, signs.missed) and now - signs.contact <= SILENT_AFTER:
        return "up"
    if not signs.redeemed:
        return "down"  # this boot has no certificate yet, so there is no agent that could speak
    alive = max(signs.contact, signs.redeemed)
    if max(signs.asked, signs.crashed) > alive:
        return "down"
    if signs.dark > alive:
        # A BMC that says so may lie: until the agent is missed, nothing is done on its word alone.
        return "unknown" if now - signs.contact <= SILENT_AFTER else "down"
    if now - max(alive, signs.listening) <= HUNG_AFTER or signs.all_silent:
        return "unknown"
    return "hung"
